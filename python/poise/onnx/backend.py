"""An ONNX backend that runs models made of the operator Attention, for ONNX's own test runner.

In: models, nodes and NumPy arrays. Out: tuples of arrays. Must not happen here: a model with
another operator run in part, or a meaning of the operator beside poise.onnx.attention.

The names of the module are those that runners expect of a backend: prepare, run_model, run_node,
is_compatible, supports_device.
"""

import onnx
from onnx import checker, defs, helper, numpy_helper
from onnx.backend import base

from .operator import attention

__all__ = ["Backend", "BackendRep", "is_compatible", "prepare", "run_model", "run_node",
           "supports_device"]

_VERSIONS = (23, 24, 25)  # of the operator; another would need another reading of its page
_ATTRIBUTES = {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale",
               "softcap", "softmax_precision"}
_WINDOW = {"left_window_size", "right_window_size"}  # since 25


def _about(name, sentence):
    return f"[onnx.backend] {name}: {sentence}"


def _refusal_of_node(node, opset):
    """Why this node is not computed here, or None."""
    if node.op_type != "Attention" or node.domain not in ("", "ai.onnx"):
        return _about("node", f"operator {node.domain or 'ai.onnx'}.{node.op_type}, expected "
                              "ai.onnx.Attention")
    if opset < _VERSIONS[0]:
        return _about("opset", f"{opset}, expected {_VERSIONS[0]} or later")
    version = defs.get_schema("Attention", opset).since_version
    if version not in _VERSIONS:
        return _about("opset", f"{opset} has version {version} of Attention, expected one of "
                               f"{_VERSIONS}")
    known = _ATTRIBUTES | _WINDOW if opset >= 25 else _ATTRIBUTES
    for attribute in node.attribute:
        if attribute.name not in known:
            return _about("attribute", f"{attribute.name} is not in Attention of opset {opset}")
    return None


def _opset_of(model):
    return next((entry.version for entry in model.opset_import
                 if entry.domain in ("", "ai.onnx")), 0)


def _refusal_of_device(device):
    if Backend.supports_device(device):
        return None
    return _about("device", f"{device!r}, expected 'CPU'")


def _refusal(model, device):
    """Why this model is not run here, or None."""
    refusal = _refusal_of_device(device)
    if refusal is None and not model.graph.node:
        refusal = _about("model", "a graph without nodes, expected Attention")
    opset = _opset_of(model)
    for node in model.graph.node:
        refusal = refusal or _refusal_of_node(node, opset)
    return refusal


def _without_window(node, opset):
    """The node as this version of onnx can check it: it may be older than the window."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    unknown = _WINDOW - set(defs.get_schema("Attention", opset).attributes)
    for attribute in list(plain.attribute):
        if attribute.name in unknown:
            plain.attribute.remove(attribute)
    return plain


def _compute(node, values):
    """The named outputs of one node, in its order; values: arrays by name."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    inputs = [values[name] if name else None for name in node.input]
    wants_qk = len(node.output) > 3 and node.output[3] != ""
    outputs = attention(*inputs, **attributes, return_qk=wants_qk)
    for name, slot, output in zip(node.output, outputs._fields, outputs):
        if name and output is None:
            raise ValueError(_about(slot, "there is none with nonpad_kv_seqlen"))
    return {name: output for name, output in zip(node.output, outputs) if name}


def _by_name(names, arrays, what):
    arrays = list(arrays)
    if len(arrays) != len(names):
        raise ValueError(_about("inputs", f"{len(arrays)} arrays, but the {what} has {len(names)} "
                                          f"inputs: {', '.join(names)}"))
    return dict(zip(names, arrays))


class BackendRep(base.BackendRep):
    """A model that was checked and is ready to run; made by prepare()."""

    def __init__(self, model):
        self._nodes = list(model.graph.node)
        self._constants = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._inputs = [i.name for i in model.graph.input if i.name not in self._constants]
        self._outputs = [output.name for output in model.graph.output]

    def run(self, inputs, **kwargs):
        """Runs the model.

        Args:
            inputs: NumPy arrays, one per input of the graph that is no initializer, in its order.

        Returns:
            tuple of arrays, one per output of the graph.

        Raises:
            ValueError, TypeError: as poise.onnx.attention; a wrong number of inputs; kwargs.
        """
        if kwargs:
            raise ValueError(_about("run", f"no option {next(iter(kwargs))!r} is known"))
        values = {**self._constants, **_by_name(self._inputs, inputs, "model")}
        for node in self._nodes:
            values.update(_compute(node, values))
        return tuple(values[name] for name in self._outputs)


class Backend(base.Backend):
    """ONNX backend for models whose every node is Attention of opset 23, 24 or 25, on the CPU.

    Initializers and any number of nodes are fine; functions, other operators and other devices are
    refused with a ValueError, and is_compatible() is False for them.
    """

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        """Whether prepare() takes the model."""
        return _refusal(model, device) is None

    @classmethod
    def supports_device(cls, device):
        """True for 'CPU'."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        """Checks a ModelProto with onnx.checker and makes it ready to run.

        Returns:
            BackendRep.

        Raises:
            ValueError: another operator, opset, attribute or device; what onnx.checker refuses.
        """
        refusal = _refusal(model, device)
        if refusal is not None:
            raise ValueError(refusal)
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        nodes = [_without_window(node, _opset_of(model)) for node in model.graph.node]
        del plain.graph.node[:]
        plain.graph.node.extend(nodes)
        try:
            super().prepare(plain, device, **kwargs)
        except checker.ValidationError as error:
            raise ValueError(_about("model", str(error))) from error
        return BackendRep(model)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **kwargs):
        """Runs one Attention node.

        Args:
            node: NodeProto. inputs: NumPy arrays, one per input that the node names, in its order.
            outputs_info: ignored. opset_version: default the newest that onnx knows.

        Returns:
            tuple of arrays, one per output that the node names.

        Raises:
            ValueError, TypeError: as prepare() and poise.onnx.attention.
        """
        opset = kwargs.setdefault("opset_version", defs.onnx_opset_version())
        refusal = _refusal_of_device(device) or _refusal_of_node(node, opset)
        if refusal is not None:
            raise ValueError(refusal)
        try:
            super().run_node(_without_window(node, opset), inputs, device, outputs_info, **kwargs)
        except checker.ValidationError as error:
            raise ValueError(_about("node", str(error))) from error
        names = [name for name in node.input if name]
        return tuple(_compute(node, _by_name(names, inputs, "node")).values())


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
