"""poise.qk_clip_: weights of query and key scaled down where a head's scores exceeded a bound.

In: a torch model, and what a watch measured of it. Out: the model with rows of Wq and Wk (and of
their biases) multiplied in place. Must not happen here: a write before every layer's layout is
known, or a guess of a layout.
"""

import numbers
import re
from typing import NamedTuple

import numpy
import torch

from . import _core

__all__ = ["qk_clip_"]

# Fused projections whose output is [all of q | all of k | all of v].
_FUSED = ("qkv", "qkv_proj", "Wqkv", "c_attn", "in_proj")
_SEPARATE = (("q_proj", "k_proj"), ("query", "key"), ("q_lin", "k_lin"), ("to_q", "to_k"),
             ("wq", "wk"))
_NORMS = ("q_norm", "k_norm", "query_norm", "key_norm", "q_layernorm", "k_layernorm", "qk_norm",
          "norm_q", "norm_k", "query_layernorm", "key_layernorm", "q_ln", "k_ln")


def _interleaves(module):
    """Whether a fused projection goes q, k, v block by block under a name of _FUSED."""
    return getattr(module, "multi_query", None) is False or any(  # GPTBigCodeAttention
        base.__name__ == "CodeGenAttention" for base in type(module).__mro__)


class _Rows(NamedTuple):
    """Some outputs of a projection: a parameter and its bias, along `axis`, from `first` on."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    axis: int
    first: int

    def multiply(self, factors, head_dim):
        factors = factors.repeat_interleave(head_dim)
        for tensor, axis in ((self.weight, self.axis), (self.bias, 0)):
            if tensor is None:
                continue
            part = tensor.narrow(axis, self.first, factors.numel())
            shape = [1] * part.dim()
            shape[axis] = -1
            part.mul_(factors.to(part.dtype).view(shape))


class _Layer(NamedTuple):
    name: str
    query: _Rows
    key: _Rows
    heads: int
    kv_heads: int
    head_dim: int


def _refuse(name, module, reason):
    raise ValueError(f"[qk_clip_] {name}: {type(module).__name__} {reason}")


def _projection(name, module, child):
    """(weight, bias, axis of the outputs) of a linear layer, by torch's layout or GPT-2's."""
    linear = getattr(module, child)
    if isinstance(linear, torch.nn.Linear):
        return linear.weight, linear.bias, 0
    if type(linear).__name__ == "Conv1D" and getattr(linear, "weight", torch.empty(0)).dim() == 2:
        return linear.weight, linear.bias, 1  # [in, out]
    _refuse(name, module, f"has {child} of type {type(linear).__name__}, expected Linear or Conv1D")


def _found(name, module, stats):
    """The rows of query and key, and how many of them the layout has."""
    if isinstance(module, torch.nn.MultiheadAttention):
        bias, width = module.in_proj_bias, module.embed_dim
        if module.in_proj_weight is not None:
            weights = (module.in_proj_weight, module.in_proj_weight)
        else:
            weights = (module.q_proj_weight, module.k_proj_weight)
        fused = module.in_proj_weight is not None
        if module.bias_k is not None:
            _refuse(name, module, "has bias_k, a key that belongs to no projection")
        if bias is not None and not fused:
            return (_Rows(weights[0], bias[:width], 0, 0),
                    _Rows(weights[1], bias[width:2 * width], 0, 0), width, width)
        return (_Rows(weights[0], bias, 0, 0), _Rows(weights[1], bias, 0, width if fused else 0),
                width, width)
    for child in _NORMS:
        if getattr(module, child, None) is not None and not isinstance(
                getattr(module, child), torch.nn.Identity):
            _refuse(name, module, f"normalises query or key after the projection ({child}), so "
                                  "that the weights' size has no effect; scale the norm's gain")
    for q_name, k_name in _SEPARATE:
        if hasattr(module, q_name) and hasattr(module, k_name):
            q_weight, q_bias, q_axis = _projection(name, module, q_name)
            k_weight, k_bias, k_axis = _projection(name, module, k_name)
            return (_Rows(q_weight, q_bias, q_axis, 0), _Rows(k_weight, k_bias, k_axis, 0),
                    q_weight.shape[q_axis], k_weight.shape[k_axis])
    for child in _FUSED:
        if hasattr(module, child):
            if _interleaves(module):
                _refuse(name, module, f"interleaves q, k and v in {child}: not a layout known here")
            weight, bias, axis = _projection(name, module, child)
            q_rows, k_rows = stats.heads * stats.head_dim, stats.kv_heads * stats.head_dim
            v_rows = weight.shape[axis] - q_rows - k_rows
            if v_rows < stats.kv_heads or v_rows % stats.kv_heads:
                _refuse(name, module, f"has {child} with {weight.shape[axis]} outputs, which are "
                                      f"not {q_rows} of q, {k_rows} of k, and those of v")
            return (_Rows(weight, bias, axis, 0), _Rows(weight, bias, axis, q_rows), q_rows, k_rows)
    children = ", ".join(child for child, _ in module.named_children()) or "no modules"
    _refuse(name, module, f"has a layout that is not known (inside: {children}); known are "
                          "separate q_proj and k_proj, query and key, and fused "
                          f"{', '.join(_FUSED)} as [q | k | v]")


def _layer(model, label, stats):
    name = re.sub(r"#\d+$", "", label)
    try:
        module = model if name == type(model).__name__ else model.get_submodule(name)
    except AttributeError:
        raise ValueError(f"[qk_clip_] {name}: the model has no such module") from None
    query, key, q_rows, k_rows = _found(name, module, stats)
    expected = (stats.heads * stats.head_dim, stats.kv_heads * stats.head_dim)
    if (q_rows, k_rows) != expected:
        _refuse(name, module, f"projects to {q_rows} outputs of q and {k_rows} of k; {stats.heads} "
                              f"and {stats.kv_heads} heads of {stats.head_dim} were measured")
    return _Layer(name, query, key, stats.heads, stats.kv_heads, stats.head_dim)


@torch.no_grad()
def qk_clip_(model, w, tau=100.0):
    """Scales down Wq and Wk of the heads whose largest score exceeded tau, in place (QK-clip).

    gamma = min(1, tau / largest score). A head with a key head of its own gets sqrt(gamma) on its
    rows of Wq and of Wk; where query heads share a key head, gamma goes to the rows of Wq alone, so
    that no other head changes. Biases scale with their rows. A module that runs several times in a
    step (shared weights) gets the smallest gamma. Kimi K2, arXiv 2507.20534, section 2.1.

    Args:
        model: the torch.nn.Module that was watched.
        w: the watch, whose last measured step counts, or {module name: Stats}.
        tau: the largest score allowed, > 0; scores are scale * q . k, before softcap and bias.

    Returns:
        {module name: gamma, array [Hq]} of the layers in which a head was scaled.

    Raises:
        TypeError: what is no model, watch or Stats. ValueError: tau; a layout that is not known, by
            the module's name; a norm between projection and scores. Nothing is written then.

    Example:
        >>> import torch, poise
        >>> model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> with torch.no_grad():
        ...     _ = model.self_attn.in_proj_weight.mul_(20)
        >>> x = torch.randn(2, 10, 32)
        >>> with poise.watch(model) as w:
        ...     _ = model(x)
        >>> gamma = poise.qk_clip_(model, w, tau=10)["self_attn"]
        >>> with poise.watch(model) as w:
        ...     _ = model(x)
        >>> bool((gamma < 1).all()), bool((w.stats["self_attn"].max_score < 10.001).all())
        (True, True)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"[qk_clip_] model: {type(model).__name__}, expected a torch.nn.Module")
    if not (isinstance(tau, numbers.Real) and 0 < tau < float("inf")):
        raise ValueError(f"[qk_clip_] tau: {tau!r}, expected a number above 0")
    measured = w if isinstance(w, dict) else getattr(w, "stats", None)
    if not (isinstance(measured, dict) and all(
            isinstance(label, str) and isinstance(stats, _core.Stats)
            for label, stats in measured.items())):
        raise TypeError(f"[qk_clip_] w: {type(w).__name__}, expected a watch or {{name: Stats}}")
    planned = {}
    for label, stats in measured.items():
        factors = numpy.array(_core.clip_factors(stats, tau))  # [Hq, 3]: gamma, of Wq, of Wk
        if (factors == 1).all():
            continue
        layer = _layer(model, label, stats)
        rows = (layer.query.weight.data_ptr(), layer.query.first)
        before = planned.get(rows)
        if before is not None:
            factors = numpy.minimum(factors, before[1])
        planned[rows] = (layer, factors)
    for layer, factors in planned.values():
        of_query, of_key = torch.from_numpy(factors.T[1:].copy())
        layer.query.multiply(of_query, layer.head_dim)
        if layer.heads == layer.kv_heads:
            layer.key.multiply(of_key, layer.head_dim)
    return {layer.name: factors[:, 0] for layer, factors in planned.values()}
