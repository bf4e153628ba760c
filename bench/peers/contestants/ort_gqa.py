"""com.microsoft GroupQueryAttention on ONNX Runtime's CPU provider: its kernel for language models.

Always causal, bottom-right. Keys before the first query come as past_key and past_value in a buffer
that is also present_key and present_value, so a call writes only the newest Lq keys, as in use.
Inputs are [B, L, H * D], laid out before the clock starts.
Must not happen here: a full problem passed off as causal, unless one query makes them the same.
"""

import numpy as np

import problem
import protocol
from contestants import ort_session
from shapes import Shape


def _load(fields, path, threads):
    shape = Shape(**fields)
    if not shape.causal and shape.q_len > 1:
        raise protocol.CannotExpress("GroupQueryAttention is always causal")
    arrays = problem.load(path)
    element = ort_session.ELEMENT[shape.dtype]
    past = shape.kv_len - shape.q_len
    key, value = (problem.as_bhld(arrays[name], shape) for name in ("key", "value"))

    def newest(x):
        return np.ascontiguousarray(x[:, :, past:].transpose(0, 2, 1, 3)).reshape(
            shape.batch, shape.q_len, -1)

    inputs = [("query", ort_session.flat(arrays["query"], shape), element),
              ("key", newest(key), element), ("value", newest(value), element)]
    outputs, shared = ["out", "present_key", "present_value"], ()
    if past:
        inputs += [("past_key", np.array(key), element), ("past_value", np.array(value), element)]
        shared = (("past_key", "present_key"), ("past_value", "present_value"))
    else:
        inputs += [None, None]
    last = np.full(shape.batch, shape.kv_len - 1, np.int32)
    total = np.array(shape.kv_len, np.int32)
    inputs += [("seqlens_k", last, ort_session.TensorProto.INT32),
               ("total", total, ort_session.TensorProto.INT32)]
    attributes = {"num_heads": shape.q_heads, "kv_num_heads": shape.kv_heads}
    if shape.window:
        attributes["local_window_size"] = shape.window
    return ort_session.prepare(
        "GroupQueryAttention", "com.microsoft", attributes, inputs, outputs, shape, threads,
        lambda x: ort_session.unflat(x, shape), "GroupQueryAttention", shared)


if __name__ == "__main__":
    protocol.serve(ort_session.VERSIONS, _load)
