"""jax.nn.dot_product_attention, jitted for the CPU.

Its layout is [B, L, H, D]; inputs are laid out before the clock starts. XLA sizes its pool by the
cores it may use, which the driver sets.
Must not happen here: a call that returns before its result is there (JAX dispatches at will).
"""

import jax
import ml_dtypes
import numpy as np

import problem
import protocol
from shapes import Shape


def _load(fields, path, threads):
    del threads  # the pinned cores
    shape = Shape(**fields)
    arrays = problem.load(path)

    def device(array):
        array = np.ascontiguousarray(problem.as_bhld(array, shape).transpose(0, 2, 1, 3))
        return jax.device_put(array.view(ml_dtypes.bfloat16) if shape.dtype == "bf16" else array)

    query, key, value = (device(arrays[name]) for name in ("query", "key", "value"))
    options, ran = {}, "XLA"
    square = shape.q_len == shape.kv_len
    mask = None
    if shape.causal and square:
        options["is_causal"] = True
        if shape.window:
            options["local_window_size"] = (shape.window - 1, 0)
    elif shape.causal:
        mask = jax.device_put(problem.visible(shape))
        ran += ", boolean mask"
    lengths = jax.device_put(arrays["lengths"]) if shape.padding else None

    @jax.jit
    def attention(query, key, value, mask, lengths):
        return jax.nn.dot_product_attention(query, key, value, mask=mask,
                                            key_value_seq_lengths=lengths, **options)

    result = []

    def call():
        result[:] = [attention(query, key, value, mask, lengths).block_until_ready()]

    call()  # compiles
    return protocol.Prepared(
        call, lambda: np.ascontiguousarray(np.asarray(result[0].transpose(0, 2, 1, 3), np.float32)),
        ran)


if __name__ == "__main__":
    protocol.serve({"jax": jax.__version__}, _load)
