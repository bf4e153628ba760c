"""Attention as functions: PyTorch's signature, and the library's own names.

In: arrays and keyword arguments. Out: the result in the query's kind. Must not happen here: checks
that the library makes, and Python work that a call of a few microseconds would notice.
"""

import operator
import sys
import warnings
from typing import Any

from . import _core

__all__ = ["attention", "explain", "scaled_dot_product_attention"]

_NAMES = frozenset({
    "causal", "scale", "softcap", "attn_mask", "mask", "bias", "window", "diagonal", "kv_lengths",
    "q_lengths", "alibi_slopes", "sinks", "dropout_p", "dropout_seed", "dropout_offset", "threads"})
_PLAIN = _core.Options()
_TOP_LEFT = _core.Options(causal="top_left")
_warned_of_alignment = False


def _calls_of_torch(query):
    """poise's module for torch tensors when the query is one, else None. Imports no torch."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(query, getattr(torch, "Tensor", ())):
        return None
    from . import _torch_calls

    return _torch_calls


def _draw_seed(query, dropout_p):
    """A seed for this call from the generator that governs the query's kind, if not torch's."""
    if hasattr(query, "__array_namespace__") and type(query).__module__.split(".")[0] != "numpy":
        raise ValueError(
            f"[forward] dropout_seed: arrays of {type(query).__module__} have no generator to draw "
            f"from; dropout_p={dropout_p} needs a seed")
    import numpy

    return int(numpy.random.randint(0, 2**63 - 1, dtype=numpy.int64))


def _warn_of_alignment(query, key):
    """PyTorch's is_causal starts at the top left; say so once where another reading is likely."""
    global _warned_of_alignment
    if query.shape[-2] != key.shape[-2]:
        _warned_of_alignment = True
        warnings.warn(
            f"is_causal=True starts at the top left, as in PyTorch: with {query.shape[-2]} queries "
            f"and {key.shape[-2]} keys the last query does not see the last key or sees it too "
            'early; causal="bottom_right" aligns the ends',
            stacklevel=3)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
    *, causal=None, window=None, softcap=None, sinks=None, alibi_slopes=None, kv_lengths=None,
    q_lengths=None, bias=None, diagonal=None, dropout_seed=None, dropout_offset=0, threads=None,
    return_aux=None, out=None,
) -> Any:
    """Scaled dot-product attention with the signature and meaning of PyTorch's function.

    The first eight parameters are those of torch.nn.functional.scaled_dot_product_attention. Unlike
    there, attn_mask and is_causal may be given together: a key is visible only if both allow it.

    Args:
        query: [..., Hq, Lq, D], float16, bfloat16, float32 or float64. Leading axes, also those of
            key, value and masks, broadcast; [L, D] is a call with one head.
        key: [..., Hkv, Lk, D], of query's dtype.
        value: [..., Hkv, Lk, Dv], of query's dtype.
        attn_mask: bool, True = may attend, or floats added to the scores (-inf = masked), which
            broadcast to [..., Hq, Lq, Lk].
        dropout_p: probability in [0, 1) of dropping a weight, always in force. The seed comes from
            torch's generator for tensors, from numpy.random's for arrays.
        is_causal: query i sees keys 0 ... i (the top left corner, whatever the lengths), or up to
            i + diagonal where that is given.
        scale: factor of the dot products, default 1/sqrt(D); one number, or one per head [Hq].
        enable_gqa: query head h reads key head h // (Hq / Hkv). Without it the heads must agree or
            broadcast.
        causal: instead of is_causal: "top_left", "bottom_right" (the last query sees the last key)
            or an offset o: query i sees keys up to i + o.
        window: (left, right): keys from i + o - left to i + o + right, -1 = open.
        softcap: scores become softcap * tanh(scores / softcap); 0 = off.
        sinks: [Hq], a logit per head that joins the denominator only.
        alibi_slopes: [Hq] or [B, Hq]; -slope * |i + o - j| is added to the logits.
        kv_lengths: [B] integers; keys from there on do not exist, and are not read.
        q_lengths: [B] integers; rows from there on are 0 and take no part.
        bias: floats added to the scores, beside a bool attn_mask.
        diagonal: the offset o of causal, window and ALiBi, one integer or [B], instead of the
            one that causal or is_causal names. Without either it is Lk - Lq (kv_lengths - Lq).
        dropout_seed, dropout_offset: instead of a generator's; the same pair drops the same
            weights.
        threads: of this call; default get_num_threads(). Changes no bit.
        return_aux: an AuxRequest; the call then returns (out, aux).
        out: an array [..., Hq, Lq, Dv] to write to; it is also returned.

    Returns:
        [..., Hq, Lq, Dv] in the kind and dtype of query, its axes in memory ordered as query's; or
        (that, Aux) with return_aux.

    Raises:
        ValueError: shapes, numbers or layouts that do not fit, arrays on another device.
        TypeError: dtypes, and objects that are no arrays.

    Torch tensors have gradients (also lse, bias, attn_mask of floats, scale, sinks, alibi_slopes),
    forward mode, and a place in torch.compile's graph; autocast casts as for torch's function.

    Example:
        >>> import numpy as np, poise
        >>> rng = np.random.default_rng(0)
        >>> q, k, v = (rng.standard_normal((2, 4, 6, 8), dtype=np.float32) for _ in range(3))
        >>> out, aux = poise.scaled_dot_product_attention(
        ...     q, k, v, is_causal=True, return_aux=poise.AuxRequest(lse=True, stats=True))
        >>> out.shape, aux.lse.shape, aux.stats.heads
        ((2, 4, 6, 8), (2, 4, 6), 4)
        >>> bool(np.all(out[:, :, 0] == v[:, :, 0]))  # the first query sees the first key only
        True
    """
    calls = _calls_of_torch(query)
    if is_causal:
        if causal is not None:
            raise ValueError("[forward] causal: given beside is_causal=True; give one of them")
        if not _warned_of_alignment and (calls is None or not calls.is_compiling()):
            _warn_of_alignment(query, key)
        causal = "top_left"
    if dropout_p != 0.0 and dropout_seed is None:
        dropout_seed = calls.draw_seed() if calls else _draw_seed(query, dropout_p)
    if calls is not None:
        if calls.is_autocast_enabled("cpu"):
            query, key, value, attn_mask, bias = calls.autocast(query, key, value, attn_mask, bias)
        if calls.is_recorded(query, key, value, attn_mask, bias, scale, sinks, alibi_slopes):
            return calls.attend(
                query, key, value, return_aux, grouped=enable_gqa, causal=causal, scale=scale,
                softcap=softcap, attn_mask=attn_mask, bias=bias, window=window, diagonal=diagonal,
                kv_lengths=kv_lengths, q_lengths=q_lengths, alibi_slopes=alibi_slopes, sinks=sinks,
                dropout_p=dropout_p, dropout_seed=dropout_seed, dropout_offset=dropout_offset,
                threads=threads, out=out)
    if (attn_mask is None and scale is None and window is None and softcap is None and sinks is None
            and alibi_slopes is None and kv_lengths is None and q_lengths is None and bias is None
            and diagonal is None and dropout_p == 0.0 and threads is None
            and (causal is None or is_causal)):
        options = _TOP_LEFT if is_causal else _PLAIN
    else:
        options = _core.Options(
            causal, scale, softcap, attn_mask, None, bias, window, diagonal, kv_lengths, q_lengths,
            alibi_slopes, sinks, dropout_p, 0 if dropout_seed is None else dropout_seed,
            dropout_offset, threads)
    return _core.forward(query, key, value, options, return_aux, out, enable_gqa)


def _blhd(layout):
    if layout not in ("bhld", "blhd"):
        raise ValueError(f"[forward] layout: {layout!r}, expected 'bhld' or 'blhd'")
    return layout == "blhd"


def attention(
    query, key, value, *, causal=None, scale=None, softcap=None, mask=None, bias=None, window=None,
    diagonal=None, kv_lengths=None, q_lengths=None, alibi_slopes=None, sinks=None, dropout_p=0.0,
    dropout_seed=0, dropout_offset=0, threads=None, layout="bhld", return_aux=None, out=None,
) -> Any:
    """Attention under the library's own names: query heads share key heads, nothing is drawn.

    Args:
        query: [..., Hq, Lq, D]; with layout="blhd" [..., Lq, Hq, D]. float16, bfloat16, float32 or
            float64.
        key, value: [..., Hkv, Lk, D] and [..., Hkv, Lk, Dv], in the same layout and of the same
            dtype; Hq is a multiple of Hkv.
        causal: None, "top_left", "bottom_right" or an offset.
        mask: bool, True = may attend. bias: floats added after softcap. Both may be given, both
            broadcast to [..., Hq, Lq, Lk], in either layout.
        dropout_p, dropout_seed, dropout_offset: the same numbers drop the same weights.
        layout: "bhld" (PyTorch, ONNX) or "blhd" (FlashAttention, JAX); no copy in either.
        Others: as in scaled_dot_product_attention.

    Returns:
        out in query's layout, kind and dtype, or (out, Aux) with return_aux; aux arrays are
        [..., Hq, Lq] in both layouts.

    Raises:
        ValueError, TypeError: as scaled_dot_product_attention.

    Example:
        >>> import numpy as np, poise
        >>> q = np.ones((1, 5, 8, 16), np.float32)   # blhd: 5 queries, 8 heads
        >>> k = np.ones((1, 7, 2, 16), np.float32)   # 7 keys, 2 heads
        >>> poise.attention(q, k, k, causal="bottom_right", layout="blhd").shape
        (1, 5, 8, 16)
    """
    calls = _calls_of_torch(query)
    if calls is not None and calls.is_recorded(query, key, value, bias, scale, sinks, alibi_slopes):
        return calls.attend_in_layout(
            query, key, value, return_aux, _blhd(layout), causal=causal, scale=scale,
            softcap=softcap, mask=mask, bias=bias, window=window, diagonal=diagonal,
            kv_lengths=kv_lengths, q_lengths=q_lengths, alibi_slopes=alibi_slopes, sinks=sinks,
            dropout_p=dropout_p, dropout_seed=dropout_seed, dropout_offset=dropout_offset,
            threads=threads, out=out)
    options = _core.Options(
        causal, scale, softcap, None, mask, bias, window, diagonal, kv_lengths, q_lengths,
        alibi_slopes, sinks, dropout_p, dropout_seed, dropout_offset, threads)
    return _core.forward(query, key, value, options, return_aux, out, True, _blhd(layout))


def options_of(call, options):
    """_core.Options of a dict by the names of attention()."""
    if unknown := sorted(options.keys() - _NAMES):
        raise TypeError(
            f"[{call}] {unknown[0]}: no such option; known are {', '.join(sorted(_NAMES))}")
    return _core.Options(**options)


def explain(shape, *, dtype="float32", **options) -> str:
    """What attention would do with a call of this shape: kernel, tiles, tasks, memory, and why.

    Args:
        shape: (B, Hq, Hkv, Lq, Lk, D) or (B, Hq, Hkv, Lq, Lk, D, Dv).
        dtype: "float32", "float64", "float16" or "bfloat16".
        options: those of attention().

    Returns:
        Text.

    Example:
        >>> import poise
        >>> "flops" in poise.explain((1, 32, 8, 4096, 4096, 128), causal="bottom_right")
        True
    """
    try:
        extents = [operator.index(extent) for extent in shape]
    except TypeError:
        raise TypeError(f"[explain] shape: {shape!r}, expected six or seven integers") from None
    return _core.explain(extents, str(dtype), options_of("explain", options))
