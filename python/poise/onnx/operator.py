"""ONNX's Attention as a function: its inputs, attributes and outputs on the library's options.

In: NumPy arrays and attribute values. Out: AttentionOutputs. Must not happen here: arithmetic of
attention, which is the library's, or a rule that the library checks already; its sentences are
handed on under the operator's names.
"""

import re
from typing import NamedTuple

import numpy as np

from .. import functional
from .._core import AuxRequest

__all__ = ["AttentionOutputs", "attention"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
# TensorProto.DataType. Softmax runs in float32 at least, which meets the 16-bit ones.
_FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16 = 1, 10, 11, 16
_QK_OUTPUTS = ("scores", "capped", "logits", "weights")  # by qk_matmul_output_mode
_NAMES = {
    "query": "Q", "key": "K", "value": "V", "mask": "attn_mask", "bias": "attn_mask",
    "kv_lengths": "nonpad_kv_seqlen", "window": "left_window_size, right_window_size",
}


class AttentionOutputs(NamedTuple):
    """The operator's outputs, in its order; None where the operator has none to give."""

    Y: np.ndarray
    present_key: np.ndarray | None
    present_value: np.ndarray | None
    qk_matmul_output: np.ndarray | None


def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *,
    is_causal=0, kv_num_heads=None, left_window_size=-1, q_num_heads=None, qk_matmul_output_mode=0,
    right_window_size=-1, scale=None, softcap=0.0, softmax_precision=None, return_qk=False,
    threads=None,
):
    """The ONNX operator Attention, https://onnx.ai/onnx/operators/onnx__Attention.html.

    Query i of a sequence stands at key i + o: o is the length of the past, nonpad_kv_seqlen - Lq
    with an external cache, and 0 otherwise. A row that sees no key gives zeros in Y and in the
    weights. Masked and padded keys may hold anything, NaN too.

    Args:
        Q: [B, Hq, Lq, D] or [B, Lq, Hq * D]; float16, bfloat16 (ml_dtypes), float32 or float64.
            Any strides; no copy.
        K: [B, Hkv, Lk, D] or [B, Lk, Hkv * D], with as many axes and the dtype of Q.
        V: [B, Hkv, Lk, Dv] or [B, Lk, Hkv * Dv], with as many axes as Q. Where its dtype differs
            from Q's, both are widened to a dtype that holds both.
        attn_mask: bool, True = may attend, or floats added after softcap (-inf = masked). One to
            four axes that broadcast to [B, Hq, Lq, total]; total = past + Lk. A last axis shorter
            than total is padded with masked keys, one of 1 too.
        past_key, past_value: [B, Hkv, past, D] and [B, Hkv, past, Dv], of the dtypes of K and V;
            both or none. The present is the past followed by K and V.
        nonpad_kv_seqlen: [B] int64 or int32, 0 ... Lk: keys from there on are padding. Not with
            a past.
        is_causal: 1: query i sees keys up to i + o.
        left_window_size, right_window_size: keys from i + o - left to i + o + right; -1 = open
            (opset 25).
        q_num_heads, kv_num_heads: Hq and Hkv; needed with 3-D inputs, else checked.
        scale: factor of the dot products, default 1/sqrt(D). Its root is not taken: negative ones
            are legal.
        softcap: scores become softcap * tanh(scores / softcap); 0 = off.
        softmax_precision: 1, 10, 11 or 16 (TensorProto: float, float16, double, bfloat16). 11
            computes all of it in float64; the others are met by float32.
        return_qk: make qk_matmul_output, [B, Hq, Lq, total], the matrix that the kernel avoids.
        qk_matmul_output_mode: what it is: 0 = scale * Q K^T, 1 = after softcap, 2 = after the
            masks, -inf where masked, 3 = after softmax.
        threads: of this call; default poise.get_num_threads(). Changes no bit.

    Returns:
        AttentionOutputs: Y with the axes and dtype of Q; present_key and present_value, 4-D,
        which without a past are views of K and V, and with nonpad_kv_seqlen None;
        qk_matmul_output in the dtype of Q, or None.

    Raises:
        ValueError: shapes and numbers that do not fit, inputs that exclude each other.
        TypeError: dtypes, integer masks, and inputs that are no NumPy arrays.

    Example:
        >>> import numpy as np, poise.onnx
        >>> Q = np.ones((1, 2, 3 * 8), np.float32)               # 2 queries, 3 heads
        >>> K = np.ones((1, 2, 8), np.float32)                   # 1 head of keys
        >>> past = np.zeros((1, 1, 5, 8), np.float32)
        >>> outputs = poise.onnx.attention(
        ...     Q, K, K, past_key=past, past_value=past, q_num_heads=3, kv_num_heads=1, is_causal=1)
        >>> outputs.Y.shape, outputs.present_key.shape
        ((1, 2, 24), (1, 1, 7, 8))
    """
    given = {"Q": Q, "K": K, "V": V, "attn_mask": attn_mask, "past_key": past_key,
             "past_value": past_value, "nonpad_kv_seqlen": nonpad_kv_seqlen}
    for name, array in given.items():
        if not isinstance(array, np.ndarray) and (array is not None or name in "QKV"):
            raise TypeError(_about(name, f"expected a NumPy array, got {type(array).__name__}"))
    _check_attributes(is_causal, qk_matmul_output_mode, softmax_precision, left_window_size,
                      right_window_size)
    query, key, value = _by_heads(given, q_num_heads, kv_num_heads)
    _check_dtypes(given)

    past_len = 0
    if past_key is not None or past_value is not None:
        if nonpad_kv_seqlen is not None:
            raise ValueError(_about("nonpad_kv_seqlen", "given beside past_key and past_value"))
        key = _after_past("past_key", past_key, "K", key)
        value = _after_past("past_value", past_value, "V", value)
        past_len = past_key.shape[2]
    present = (key, value) if nonpad_kv_seqlen is None else (None, None)

    dtype = _common_dtype(Q.dtype, V.dtype, softmax_precision)
    query, key, value = (x.astype(dtype, copy=False) for x in (query, key, value))
    Y = np.empty((*Q.shape[:-1], value.shape[-1] * (q_num_heads if Q.ndim == 3 else 1)), dtype)
    mask = _padded(attn_mask, key.shape[2])
    options = {"scale": scale, "softcap": softcap, "threads": threads}
    masks = {
        "mask": mask if mask is not None and mask.dtype == np.bool_ else None,
        "bias": mask if mask is not None and mask.dtype != np.bool_ else None,
        "window": None if left_window_size == right_window_size == -1
        else (left_window_size, right_window_size),
        "kv_lengths": nonpad_kv_seqlen,
    }
    # An external cache ends with the queries; otherwise they follow the past, if any.
    if nonpad_kv_seqlen is not None:
        masks["causal"] = "bottom_right" if is_causal else None
    else:
        masks["causal"] = past_len if is_causal else None
        masks["diagonal"] = past_len
    name = _QK_OUTPUTS[qk_matmul_output_mode]
    request = AuxRequest(**{name: True}) if return_qk else None
    try:
        result = functional.attention(query, key, value, **options, **masks, return_aux=request,
                                      out=_heads_of(Y, q_num_heads) if Y.ndim == 3 else Y)
        if return_qk and nonpad_kv_seqlen is not None and qk_matmul_output_mode < 2:
            # The products with padding count as outputs here; a call without values makes them.
            result = functional.attention(query, key, value[..., :0], **options,
                                          return_aux=request)
    except (ValueError, TypeError) as error:
        raise type(error)(_under_onnx_names(str(error))) from None
    with np.errstate(over="ignore"):  # an infinity is what ONNX's own 16 bits would hold
        qk = getattr(result[1], name).astype(Q.dtype, copy=False) if return_qk else None
        return AttentionOutputs(Y.astype(Q.dtype, copy=False), *present, qk)


def _about(name, sentence):
    return f"[onnx.attention] {name}: {sentence}"


def _under_onnx_names(sentence):
    call = re.match(r"\[\w+\] (\w+)", sentence)
    if call is None:
        return sentence
    return f"[onnx.attention] {_NAMES.get(call[1], call[1])}{sentence[call.end():]}"


def _check_attributes(is_causal, qk_mode, precision, left, right):
    for name, number, allowed in (
            ("is_causal", is_causal, (0, 1)), ("qk_matmul_output_mode", qk_mode, (0, 1, 2, 3)),
            ("softmax_precision", precision, (None, _FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16))):
        if number is not None and not isinstance(number, (int, np.integer)) or (
                number not in allowed):
            raise ValueError(_about(name, f"{number!r}, expected one of {allowed}"))
    for name, size in (("left_window_size", left), ("right_window_size", right)):
        if not isinstance(size, (int, np.integer)):
            raise TypeError(_about(name, f"expected an integer, got {type(size).__name__}"))
        if size < -1:
            raise ValueError(_about(name, f"{size}, expected -1 (open) or more"))


def _heads_of(array, heads):
    """[B, L, H * D] as [B, H, L, D], a view."""
    batch, length, hidden = array.shape
    return array.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def _by_heads(given, q_num_heads, kv_num_heads):
    """Q, K and V as 4-D views."""
    views = []
    for name, attribute, heads in (("Q", "q_num_heads", q_num_heads),
                                   ("K", "kv_num_heads", kv_num_heads),
                                   ("V", "kv_num_heads", kv_num_heads)):
        array = given[name]
        if array.ndim not in (3, 4) or array.ndim != given["Q"].ndim:
            raise ValueError(_about(name, f"shape {list(array.shape)}, expected three axes or four"
                                          ", as many in Q, K and V"))
        if heads is not None and (
                not isinstance(heads, (int, np.integer)) or isinstance(heads, bool) or heads < 1):
            raise ValueError(_about(attribute, f"{heads!r}, expected a positive integer"))
        if array.ndim == 4:
            if heads is not None and heads != array.shape[1]:
                raise ValueError(_about(attribute, f"{heads}, but {name} has {array.shape[1]} "
                                                   "heads"))
            views.append(array)
            continue
        if heads is None:
            raise ValueError(_about(attribute, "missing; 3-D inputs need it"))
        if array.shape[2] % heads != 0:
            raise ValueError(_about(name, f"hidden size {array.shape[2]} is no multiple of "
                                          f"{attribute} {heads}"))
        views.append(_heads_of(array, heads))
    return views


def _check_dtypes(given):
    for name in ("Q", "K", "V"):
        dtype = given[name].dtype
        if dtype.name not in _FLOATS:
            raise TypeError(_about(name, f"dtype {dtype}, expected one of {', '.join(_FLOATS)}"))
    for name, other in (("K", "Q"), ("past_key", "K"), ("past_value", "V")):
        if given[name] is not None and given[name].dtype != given[other].dtype:
            raise TypeError(_about(name, f"dtype {given[name].dtype} differs from {other}'s "
                                         f"{given[other].dtype}"))
    mask = given["attn_mask"]
    if mask is not None and mask.dtype.name not in ("bool", *_FLOATS):
        raise TypeError(_about("attn_mask", f"dtype {mask.dtype}, expected bool or one of "
                                            f"{', '.join(_FLOATS)}"))


def _after_past(name, past, new_name, new):
    """past and then the new keys or values, along the sequence."""
    if past is None:
        other = "past_value" if name == "past_key" else "past_key"
        raise ValueError(_about(name, f"missing beside {other}"))
    expected = [new.shape[0], new.shape[1], "past", new.shape[3]]
    if past.ndim != 4 or any(past.shape[axis] != new.shape[axis] for axis in (0, 1, 3)):
        raise ValueError(_about(name, f"shape {list(past.shape)}, expected "
                                      f"[{', '.join(map(str, expected))}] to go before {new_name}"))
    return np.concatenate((past, new), axis=2)


def _common_dtype(query, value, precision):
    """The dtype of the computation: it holds Q's and V's, and doubles when they are asked for."""
    if precision == _DOUBLE:
        return np.dtype(np.float64)
    if query == value:
        return query
    widest = max(query, value, key=lambda dtype: dtype.itemsize)
    return widest if widest.itemsize > 2 else np.dtype(np.float32)


def _padded(mask, total):
    """The mask with `total` keys; ONNX pads the last axis where NumPy would broadcast it."""
    if mask is None:
        return None
    if mask.ndim == 0:
        raise ValueError(_about("attn_mask", "no axes, expected one to four"))
    missing = total - mask.shape[-1]
    if missing <= 0:
        return mask  # a longer one is refused by the library, with both shapes
    masked = False if mask.dtype == np.bool_ else -np.inf
    return np.concatenate(
        (mask, np.full((*mask.shape[:-1], missing), masked, mask.dtype)), axis=-1)
