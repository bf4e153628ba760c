"""OpenVINO's ScaledDotProductAttention operator, compiled by its CPU plugin.

Grouped heads are an axis of their own over which K and V broadcast; blhd memory passes a Transpose
inside the model, which the plugin may fuse. INFERENCE_PRECISION_HINT is float32 unless the inputs
are bfloat16: by default the plugin computes a float32 model in bfloat16 where the CPU has it.
Must not happen here: causal with Lq != Lk, which OpenVINO aligns top-left: a mask says it instead.
"""

import numpy as np
import openvino
from openvino import opset13 as ops

import problem
import protocol
from shapes import Shape

_TYPES = {"f32": openvino.Type.f32, "f16": openvino.Type.f16, "bf16": openvino.Type.bf16}
_core = openvino.Core()


def _tensor(array, shape):
    # NumPy has no bfloat16: OpenVINO shows such memory as float16, here seen as the bits it holds.
    tensor = openvino.Tensor(_TYPES[shape.dtype], list(array.shape))
    tensor.data.view(array.dtype)[:] = array
    return tensor


def _load(fields, path, threads):
    shape = Shape(**fields)
    arrays = problem.load(path)
    tensors = [_tensor(arrays[name], shape) for name in ("query", "key", "value")]
    parameters = [ops.parameter(list(x.shape), _TYPES[shape.dtype]) for x in tensors]
    nodes = list(parameters)
    if shape.layout == "blhd":
        nodes = [ops.transpose(x, ops.constant([0, 2, 1, 3], np.int64)) for x in nodes]
    if shape.group > 1:
        split = [[shape.batch, shape.kv_heads, shape.group, shape.q_len, shape.head_dim]] + [
            [shape.batch, shape.kv_heads, 1, shape.kv_len, shape.head_dim]] * 2
        nodes = [ops.reshape(x, ops.constant(extents, np.int64), special_zero=False)
                 for x, extents in zip(nodes, split)]
    causal = shape.causal and shape.q_len == shape.kv_len and not shape.window
    mask = None if causal else problem.visible(shape, arrays.get("lengths"))
    ran = "ScaledDotProductAttention"
    if mask is not None:
        bias = np.where(mask, np.float32(0), np.float32(-np.inf))
        if shape.group > 1:
            bias = bias[:, :, None]
        parameters.append(ops.parameter(list(bias.shape), openvino.Type.f32))
        tensors.append(openvino.Tensor(bias))
        nodes.append(ops.convert(parameters[-1], _TYPES[shape.dtype]) if shape.dtype != "f32"
                     else parameters[-1])
        ran += ", additive mask"
    result = ops.scaled_dot_product_attention(*nodes, causal=causal)
    precision = "bf16" if shape.dtype == "bf16" else "f32"
    compiled = _core.compile_model(openvino.Model([result], parameters), "CPU", {
        "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": False})
    request = compiled.create_infer_request()
    for index, tensor in enumerate(tensors):
        request.set_input_tensor(index, tensor)
    kinds = [str(node.get_rt_info()["layerType"].astype(str))
             for node in compiled.get_runtime_model().get_ops()]
    fused = not {"Softmax", "SoftMax"} & set(kinds)
    ran += f", {'fused' if fused else 'MatMul, Softmax, MatMul'}, {precision}"

    def call():
        request.infer()

    def output():
        tensor = request.get_output_tensor(0)
        is_bf16 = tensor.element_type == openvino.Type.bf16
        data = tensor.data.view(np.uint16) if is_bf16 else tensor.data
        extents = (shape.batch, shape.q_heads, shape.q_len, shape.head_dim)
        return np.ascontiguousarray(problem.widen(data).reshape(extents))

    call()
    return protocol.Prepared(call, output, ran)


if __name__ == "__main__":
    protocol.serve({"openvino": openvino.__version__}, _load)
