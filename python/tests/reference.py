"""Attention in float64 NumPy, materialised: what the package's results are compared with.

In: arrays [..., H, L, D] and the options whose meaning is tested here. Out: out, lse, weights. Must
not happen here: a use of poise, or an order of operations other than docs/semantics.md's.
"""

import numpy as np


def visible_keys(lead, q_heads, q_len, kv_len, causal=None, window=None, diagonal=None,
                 kv_lengths=None):
    """Bool [..., Hq, Lq, Lk]: which key each query may see by its place."""
    batches = int(np.prod(lead, dtype=np.int64))
    visible = np.ones((batches, q_heads, q_len, kv_len), bool)
    i, j = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
    for b in range(batches):
        n = kv_len if kv_lengths is None else int(kv_lengths[b])
        offset = {"top_left": 0, "bottom_right": n - q_len, None: n - q_len}.get(causal, causal)
        if diagonal is not None:
            offset = int(np.broadcast_to(diagonal, batches)[b])
        visible[b] &= j < n
        if causal is not None:
            visible[b] &= j <= i + offset
        if window is not None:
            left, right = window
            if left >= 0:
                visible[b] &= j >= i + offset - left
            if right >= 0:
                visible[b] &= j <= i + offset + right
    return visible.reshape(*lead, q_heads, q_len, kv_len)


def attention(query, key, value, mask=None, bias=None, scale=None, softcap=0.0, sinks=None,
              causal=None, window=None, diagonal=None, kv_lengths=None, alibi_slopes=None):
    """(out, lse, weights), all float64; query heads share key heads, leading axes broadcast."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    group = query.shape[-3] // key.shape[-3]
    key, value = np.repeat(key, group, -3), np.repeat(value, group, -3)
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else np.asarray(scale, np.float64)
    scores = query @ np.swapaxes(key, -1, -2) * (
        scale if np.ndim(scale) == 0 else scale[:, None, None])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    logits = scores if bias is None else scores + np.asarray(bias, np.float64)
    if alibi_slopes is not None:  # ends aligned, whatever the batch
        q_len, kv_len = logits.shape[-2:]
        i, j = np.arange(q_len)[:, None], np.arange(kv_len)
        distance = np.abs(i + kv_len - q_len - j)
        logits = logits - np.asarray(alibi_slopes, np.float64)[:, None, None] * distance
    seen = visible_keys(logits.shape[:-3], *logits.shape[-3:], causal, window, diagonal, kv_lengths)
    if mask is not None:
        seen = seen & np.broadcast_to(np.asarray(mask), logits.shape)
    logits = np.where(seen, logits, -np.inf)
    sink = np.full(logits.shape[-3], -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    sink = np.broadcast_to(sink[:, None], logits.shape[:-1])
    top = np.maximum(logits.max(-1, initial=-np.inf), sink)
    safe = np.where(np.isfinite(top), top, 0)
    weights = np.exp(logits - safe[..., None])
    total = weights.sum(-1) + np.exp(sink - safe)
    with np.errstate(divide="ignore"):
        lse = safe + np.log(total)
    weights = weights / np.where(total > 0, total, 1)[..., None]
    return weights @ value, lse, weights
