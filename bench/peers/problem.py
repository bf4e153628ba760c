"""Inputs of a shape, the float64 answer, and how far a contestant may be from it.

In: a Shape, a folder. Out: <name>.safetensors for all contestants; NumPy arrays for those written
in Python; the reference. Elements are standard normal (zeros and constants run faster than data).
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
# Query rows the reference handles at a time: bounds its memory.
_ROWS = 512


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
    for name, heads, length in (("query", shape.q_heads, shape.q_len),
                                ("key", shape.kv_heads, shape.kv_len),
                                ("value", shape.kv_heads, shape.kv_len)):
        axes = (heads, length) if shape.layout == "bhld" else (length, heads)
        extents = (shape.batch, *axes, shape.head_dim)
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


def _rows(query, key, value, first_row, shape, length):
    """The answer for some query rows of one head, from the keys they can see at all."""
    diagonal = shape.kv_len - shape.q_len
    begin, end = 0, length
    if shape.causal:
        end = min(end, first_row + len(query) + diagonal)
        if shape.window:
            begin = max(0, first_row + diagonal - shape.window + 1)
    scores = query @ key[begin:end].T / np.sqrt(shape.head_dim)
    if shape.causal:
        last = np.arange(first_row, first_row + len(query))[:, None] + diagonal
        keys = np.arange(begin, end)
        seen = keys <= last
        if shape.window:
            seen &= keys > last - shape.window
        scores[~seen] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    return scores @ value[begin:end] / scores.sum(axis=1, keepdims=True)


def reference(shape, path):
    """Attention in float64, [B, Hq, Lq, D]. Every query of these shapes sees a key."""
    arrays = load(path)
    lengths = arrays.get("lengths", np.full(shape.batch, shape.kv_len))
    query, key, value = (as_bhld(arrays[name], shape) for name in ("query", "key", "value"))
    out = np.empty(query.shape)
    for b in range(shape.batch):
        for h in range(shape.q_heads):
            wide = [widen(x).astype(np.float64) for x in
                    (query[b, h], key[b, h // shape.group], value[b, h // shape.group])]
            for row in range(0, shape.q_len, _ROWS):
                out[b, h, row:row + _ROWS] = _rows(
                    wide[0][row:row + _ROWS], wide[1], wide[2], row, shape, lengths[b])
    return out


def error(shape, expected, path):
    """Largest |out - reference| of an answer file over the largest |reference|; inf for NaN."""
    answer = np.fromfile(path, np.float32)
    if answer.size != expected.size:
        return float("inf")
    distance = np.abs(answer.reshape(expected.shape) - expected).max() / np.abs(expected).max()
    return float(distance) if np.isfinite(distance) else float("inf")
