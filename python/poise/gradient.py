"""Gradients of attention: backward, forward mode, and second derivatives.

In: what the forward call got, what it left (out, and row_max and row_sum of AuxRequest(state=True)
or lse), and the gradient of a loss. Out: arrays in the query's kind. Must not happen here: a record
of operations; poise.torch is for autograd.
"""

from . import _core
from .functional import options_of

__all__ = ["backward", "double_backward", "jvp"]


def backward(
    query, key, value, out, dout, *, row_max=None, row_sum=None, lse=None, dlse=None, dq=True,
    dk=True, dv=True, dbias=None, dsinks=False, dscale=None, dslopes=False, stats=None,
    layout="bhld", **options,
):
    """Gradients of a loss with respect to what attention got, without the L x L matrix.

    Args:
        query, key, value: as in attention(); their leading axes do not broadcast here.
        out: what the forward call returned.
        dout: gradient with respect to out, of its shape and dtype, any strides.
        row_max, row_sum: aux.row_max and aux.row_sum of the forward call, [..., Hq, Lq].
        lse: aux.lse instead of them, at the price of more rounding when scores are large.
        dlse: gradient with respect to lse, [..., Hq, Lq].
        dq, dk, dv: whether each is wanted.
        dbias: True for the gradient of the bias, in its shape; or a shape that broadcasts to
            [B, Hq, Lq, Lk] to sum it to.
        dsinks, dslopes: whether they are wanted.
        dscale: True for the gradient of the scale, in its shape: one number, or [Hq] of a scale per
            head; "per_head" for [Hq] of any.
        stats: the poise.Stats of the forward call; gradient statistics join them.
        layout: of query, key, value, out and dout.
        options: those of the forward call, by the names of attention().

    Returns:
        Gradients, with None for what was not wanted.

    Raises:
        ValueError, TypeError: as scaled_dot_product_attention.

    Example:
        >>> import numpy as np, poise
        >>> q = k = v = np.random.default_rng(0).standard_normal((1, 2, 4, 8), dtype=np.float32)
        >>> out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(state=True))
        >>> dout = np.ones_like(out)
        >>> g = poise.backward(q, k, v, out, dout, row_max=aux.row_max, row_sum=aux.row_sum)
        >>> bool(np.allclose(g.dv.sum(), dout.sum()))  # weights of a row sum to one
        True
    """
    return _core.backward(
        query, key, value, out, dout, options_of("backward", options), row_max, row_sum, lse,
        dlse, dq, dk, dv, dbias, dsinks, dscale, dslopes, stats, _is_blhd(layout, "backward"))


def jvp(
    query, key, value, out, *, query_tangent=None, key_tangent=None, value_tangent=None,
    row_max=None, row_sum=None, lse=None, layout="bhld", **options,
):
    """Forward mode: how out and lse move when query, key and value do. float32 and float64.

    Args:
        query, key, value, out, row_max, row_sum, lse, options: as in backward().
        query_tangent, key_tangent, value_tangent: of the shapes of query, key and value; None =
            stands still.

    Returns:
        (tangent of out, tangent of lse).

    Raises:
        ValueError, TypeError: as scaled_dot_product_attention; TypeError for 16-bit dtypes.

    Example:
        >>> import numpy as np, poise
        >>> q = k = v = np.random.default_rng(0).standard_normal((1, 2, 4, 8))
        >>> out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(state=True))
        >>> moved, _ = poise.jvp(q, k, v, out, value_tangent=v, row_max=aux.row_max,
        ...                      row_sum=aux.row_sum)
        >>> bool(np.allclose(moved, out))  # attention is linear in value
        True
    """
    return _core.jvp(
        query, key, value, out, options_of("jvp", options), query_tangent, key_tangent,
        value_tangent, row_max, row_sum, lse, _is_blhd(layout, "jvp"))


def double_backward(
    query, key, value, out, dout, *, ddq=None, ddk=None, ddv=None, row_max=None, row_sum=None,
    lse=None, dlse=None, layout="bhld", **options,
):
    """Reverse mode over backward(): gradients of a loss made of dq, dk and dv. float32 and float64.

    Args:
        query, key, value, out, dout, row_max, row_sum, lse, dlse, options: as in backward().
        ddq, ddk, ddv: gradients of the loss with respect to dq, dk and dv; None = 0.

    Returns:
        Gradients with respect to (query, key, value, dout, dlse); the last is None without dlse.

    Raises:
        ValueError, TypeError: as scaled_dot_product_attention; TypeError for 16-bit dtypes.

    Example:
        >>> import numpy as np, poise
        >>> q = k = v = np.random.default_rng(0).standard_normal((1, 2, 4, 8))
        >>> out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(state=True))
        >>> second = poise.double_backward(q, k, v, out, np.ones_like(out), ddv=v,
        ...                                row_max=aux.row_max, row_sum=aux.row_sum)
        >>> bool(np.allclose(second[3], out))  # dv is linear in dout
        True
    """
    return _core.double_backward(
        query, key, value, out, dout, options_of("double_backward", options), ddq, ddk, ddv,
        row_max, row_sum, lse, dlse, _is_blhd(layout, "double_backward"))


def _is_blhd(layout, call):
    if layout not in ("bhld", "blhd"):
        raise ValueError(f"[{call}] layout: {layout!r}, expected 'bhld' or 'blhd'")
    return layout == "blhd"
