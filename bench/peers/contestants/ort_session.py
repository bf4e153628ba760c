"""What the ONNX Runtime contestants share: a model of one node, bound to buffers, ready to run.

In: a node, its inputs as arrays. Out: a Prepared that runs it on the CPU provider with inputs and
outputs bound beforehand. Thread pools keep their defaults (the driver stops who is not in turn).
Must not happen here: a choice of operator.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper
import onnxruntime

import problem
import protocol

VERSIONS = {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}
ELEMENT = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_OPSET = 23
_IR_VERSION = 11


def flat(array, shape):
    """[B, L, H * D] from an array in the shape's layout."""
    array = problem.as_bhld(array, shape).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(array).reshape(array.shape[0], array.shape[1], -1)


def unflat(array, shape):
    """[B, Hq, Lq, D] from a result [B, Lq, Hq * D]."""
    return array.reshape(shape.batch, shape.q_len, shape.q_heads, -1).transpose(0, 2, 1, 3)


def prepare(operator, domain, attributes, inputs, outputs, shape, threads, arrange, ran,
            shared=()):
    """Builds the model and binds it.

    inputs: (name, array, element type) in the operator's order, None for one left out; outputs:
    names, the first is the result. arrange(result) gives [B, Hq, Lq, D]. shared: (input, output)
    pairs in one buffer.
    """
    named = [(f"left_out_{i}" if item is None else item[0], item) for i, item in enumerate(inputs)]
    node = helper.make_node(operator, [name if item else "" for name, item in named], outputs,
                            domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(name, item[2], None) for name, item in named if item],
        [helper.make_tensor_value_info(name, ELEMENT[shape.dtype], None) for name in outputs])
    model = helper.make_model(
        graph, ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {}
    for name, item in named:
        if item:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                item[1], item[2])
            binding.bind_ortvalue_input(name, values[name])
    buffers = dict((output, values[source]) for source, output in shared)
    for name in outputs:
        if name in buffers:
            binding.bind_ortvalue_output(name, buffers[name])
        else:
            binding.bind_output(name)

    def call():
        session.run_with_iobinding(binding)

    # The first run makes the buffers of the results; from then on they are bound too.
    call()
    for name, value in zip(outputs, binding.get_outputs()):
        binding.bind_ortvalue_output(name, value)

    def output():
        result = binding.get_outputs()[0].numpy()
        return np.ascontiguousarray(problem.widen(arrange(result)))

    return protocol.Prepared(call, output, ran)
