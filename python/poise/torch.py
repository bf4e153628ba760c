"""poise on torch tensors: operators with gradients, and a mode that sends torch's calls here.

In: CPU tensors. Out: tensors with their place in torch's graph. Must not happen here: how it works;
that is in _torch_ops.py, _torch_autograd.py, _torch_calls.py and _torch_use.py.

poise.scaled_dot_product_attention and poise.attention come here by themselves for tensors that
record gradients and in torch.compile; importing this registers the operators torch.ops.poise.*.
"""

from typing import Any

from . import _torch_calls
from ._torch_use import use

__all__ = ["attention", "use"]


def attention(
    query, key, value, *, return_lse=False, causal=None, scale=None, softcap=None, mask=None,
    bias=None, window=None, diagonal=None, kv_lengths=None, q_lengths=None, alibi_slopes=None,
    sinks=None, dropout_p=0.0, dropout_seed=None, dropout_offset=0, threads=None,
) -> Any:
    """poise.attention on tensors, always by way of the operator torch.ops.poise.forward.

    Args:
        query, key, value: [..., H, L, D] tensors on the CPU, as in poise.attention.
        return_lse: also return lse, the log of each row's denominator, with gradients.
        Others: as there. bias, scale, sinks and alibi_slopes have gradients when they are tensors
            that require them.

    Returns:
        out [..., Hq, Lq, Dv], or (out, lse [..., Hq, Lq]).

    Raises:
        ValueError, TypeError: as poise.attention.

    Example:
        >>> import torch, poise.torch
        >>> q = torch.randn(1, 2, 5, 8, requires_grad=True)
        >>> out, lse = poise.torch.attention(q, q, q, causal="bottom_right", return_lse=True)
        >>> lse.sum().backward()
        >>> q.grad.shape
        torch.Size([1, 2, 5, 8])
    """
    out, lse = _torch_calls.recorded(
        query, key, value, grouped=True, lse=return_lse, causal=causal, scale=scale,
        softcap=softcap, mask=mask, bias=bias, window=window, diagonal=diagonal,
        kv_lengths=kv_lengths, q_lengths=q_lengths, alibi_slopes=alibi_slopes, sinks=sinks,
        dropout_p=dropout_p, dropout_seed=dropout_seed, dropout_offset=dropout_offset,
        threads=threads)
    return (out, lse) if return_lse else out
