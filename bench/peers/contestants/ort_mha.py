"""com.microsoft MultiHeadAttention on ONNX Runtime's CPU provider.

Inputs are [B, L, H * D], the operator's own layout, laid out before the clock starts whatever the
shape's layout. Causal is its attribute `unidirectional`, padding its key_padding_mask.
Must not happen here: repeating K and V to imitate grouped heads.
"""

import numpy as np

import problem
import protocol
from contestants import ort_session
from shapes import Shape


def _load(fields, path, threads):
    shape = Shape(**fields)
    if shape.group > 1:
        raise protocol.CannotExpress("MultiHeadAttention has one kv head per query head")
    if shape.dtype == "bf16":
        raise protocol.CannotExpress("MultiHeadAttention has no bfloat16 kernel on the CPU")
    arrays = problem.load(path)
    element = ort_session.ELEMENT[shape.dtype]
    inputs = [(name, ort_session.flat(arrays[name], shape), element)
              for name in ("query", "key", "value")]
    attributes = {"num_heads": shape.q_heads}
    ran = "MultiHeadAttention"
    if shape.padding:
        inputs += [None, ("padding", arrays["lengths"], ort_session.TensorProto.INT32)]
        ran += ", key_padding_mask"
    elif shape.causal and shape.q_len == shape.kv_len and not shape.window:
        attributes["unidirectional"] = 1
    elif shape.causal:
        seen = problem.visible(shape)
        bias = np.where(seen, np.float32(0), np.float32(-np.inf)).astype(arrays["query"].dtype)
        inputs += [None, None, ("bias", bias, element)]
        ran += ", attention_bias"
    return ort_session.prepare("MultiHeadAttention", "com.microsoft", attributes, inputs, ["out"],
                               shape, threads, lambda x: ort_session.unflat(x, shape), ran)


if __name__ == "__main__":
    protocol.serve(ort_session.VERSIONS, _load)
