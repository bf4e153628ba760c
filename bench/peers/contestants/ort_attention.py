"""ONNX's own Attention operator (opset 23) on ONNX Runtime's CPU provider.

Four axes for bhld memory; for blhd memory three, [B, L, H * D], as the operator defines them.
Must not happen here: is_causal with Lq != Lk, which ONNX aligns top-left: a mask says it instead.
"""

import problem
import protocol
from contestants import ort_session
from shapes import Shape


def _load(fields, path, threads):
    shape = Shape(**fields)
    arrays = problem.load(path)
    element = ort_session.ELEMENT[shape.dtype]
    straight = shape.layout == "bhld"
    inputs = [(name, arrays[name] if straight else ort_session.flat(arrays[name], shape), element)
              for name in ("query", "key", "value")]
    causal = shape.causal and shape.q_len == shape.kv_len and not shape.window
    attributes = {"is_causal": 1} if causal else {}
    if not straight:
        attributes |= {"q_num_heads": shape.q_heads, "kv_num_heads": shape.kv_heads}
    ran = "Attention-23"
    mask = None if causal else problem.visible(shape, arrays.get("lengths"))
    if mask is not None:
        extents = (shape.batch if shape.padding else 1, 1, shape.q_len, shape.kv_len)
        full = problem.np.ascontiguousarray(problem.np.broadcast_to(mask, extents))
        inputs.append(("mask", full, ort_session.TensorProto.BOOL))
        ran += ", boolean mask"
    arrange = (lambda x: x) if straight else (lambda x: ort_session.unflat(x, shape))
    return ort_session.prepare("Attention", "", attributes, inputs, ["out"], shape, threads,
                               arrange, ran)


if __name__ == "__main__":
    protocol.serve(ort_session.VERSIONS, _load)
