"""Inputs of a shape, and how far a contestant may be from the float64 answer (reference.py).

In: a Shape, a folder. Out: <name>.safetensors for all contestants; NumPy arrays for those written
in Python; the error of an answer. Elements are standard normal (zeros and constants run faster than
data).
Must not happen here: reading an answer of a contestant before the reference is computed.
"""

import pathlib
import zlib

import numpy as np

import tensor_file

_SPELLING = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
# Largest |out - reference| allowed, in units of the largest |reference|. f32: ten times what a
# plain float32 computation shows, and too little for one that rounds to 16 bits on the way. 16-bit:
# weights and results rounded to that type (2^-9 and 2^-12 of their size), with room for both.
BOUNDS = {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2}


def _round_bf16(values):
    """The bit patterns of the nearest bfloat16 numbers, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(array):
    """A float32 copy; uint16 holds bfloat16 bits."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def make(shape, folder):
    """Writes the inputs of a shape and returns their path. Same shape, same bytes."""
    random = np.random.default_rng(zlib.crc32(shape.name.encode()))
    tensors = {}
    for name, like in shape.inputs().items():
        extents = shape.extents(like)
        values = random.standard_normal(extents, dtype=np.float32)
        if shape.dtype == "bf16":
            values = _round_bf16(values)
        elif shape.dtype == "f16":
            values = values.astype(np.float16)
        tensors[name] = (_SPELLING[shape.dtype], extents, values.tobytes())
    if shape.padding:
        lengths = random.integers(shape.kv_len // 2, shape.kv_len + 1, shape.batch, dtype=np.int32)
        tensors["lengths"] = ("I32", lengths.shape, lengths.tobytes())
    path = pathlib.Path(folder) / f"{shape.name}.safetensors"
    tensor_file.write(path, tensors)
    return path


def load(path):
    """The file's tensors as arrays in the file's layout, bfloat16 as uint16."""
    types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32}
    return {name: np.frombuffer(data, types[dtype]).reshape(extents)
            for name, (dtype, extents, data) in tensor_file.read(path).items()}


def as_bhld(array, shape):
    """A view [B, H, L, D] of an array in the shape's layout."""
    return array if shape.layout == "bhld" else array.transpose(0, 2, 1, 3)


def visible(shape, lengths=None):
    """The boolean mask [B or 1, 1, Lq or 1, Lk] of what a query sees, None when it sees all."""
    mask = None
    keys = np.arange(shape.kv_len)
    if shape.causal:
        last = np.arange(shape.q_len)[:, None] + (shape.kv_len - shape.q_len)
        mask = keys <= last
        if shape.window:
            mask &= keys > last - shape.window
        mask = mask[None, None]
    if shape.padding:
        padding = (keys < lengths[:, None])[:, None, None]
        mask = padding if mask is None else mask & padding
    return mask


def error(expected, path):
    """How far an answer file is from {name: reference}, whose order it has.

    The largest over the results of: largest |answer - reference| over the largest |reference| of
    that result; inf for NaN or another number of elements.
    """
    answer, begin, worst = np.fromfile(path, np.float32), 0, 0.0
    if answer.size != sum(array.size for array in expected.values()):
        return float("inf")
    for array in expected.values():
        got = answer[begin:begin + array.size].reshape(array.shape)
        begin += array.size
        distance = float(np.abs(got - array).max() / np.abs(array).max())
        worst = max(worst, distance) if np.isfinite(distance) else float("inf")
    return worst
