"""poise.use: every F.scaled_dot_product_attention of a block computed by poise.

In: a with block of torch code. Out: its calls computed by poise, counted. Must not happen here: a
call that poise did not compute without an error or a count, or a change to torch or to a model.
"""

import types

import torch
from torch.overrides import TorchFunctionMode

from . import _torch_calls

_F = torch.nn.functional


def attend(query, key, value, options, grouped=True):
    """poise's attention under a name of its own, by which a mode around this one sees the call."""
    if not _torch_calls.is_compiling() and torch.overrides.has_torch_function_variadic(
            query, key, value):
        return torch.overrides.handle_torch_function(
            attend, (query, key, value), query, key, value, options, grouped)
    return _torch_calls.run(_torch_calls.Call(query, key, value, options, grouped))


# Fused paths that compute attention inside; with a mode in force torch's modules do not take them.
_NATIVE = (torch._native_multi_head_attention, torch._transformer_encoder_layer_fwd)


def _with_its_calls_visible(function):
    """A copy of a function of torch that hands nothing over to a mode.

    torch hands the whole call over and switches the mode off inside, where the mode would miss
    scaled_dot_product_attention. The copy shares code and defaults.
    """
    names = {**function.__globals__, "has_torch_function": lambda tensors: False}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__,
                              function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_backward = _with_its_calls_visible(torch.autograd.backward)


def _backward_of_one(tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    _backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


# In backward, checkpointed calls are computed again: by poise, as before.
_INSIDE = {
    _F.multi_head_attention_forward: _with_its_calls_visible(_F.multi_head_attention_forward),
    torch.Tensor.backward: _backward_of_one, torch.autograd.backward: _backward,
    torch.autograd.grad: _with_its_calls_visible(torch.autograd.grad)}


class use(TorchFunctionMode):
    """Sends every torch.nn.functional.scaled_dot_product_attention of a block through poise.

    Also those in modules: nn.MultiheadAttention calls it, except with need_weights=True (its
    default), which multiplies matrices instead; its fused inference path, which bypasses it, is off
    inside the block. attn_mask and is_causal may be given together. Gradients, torch.compile and
    autocast work as without it, but torch.compile breaks its graph at nn.MultiheadAttention. The
    block is that of one thread, as for every mode of torch.

    Args:
        on_unsupported: what happens to calls that poise refuses (another device, an integer dtype,
            nested tensors, shapes that do not fit): "raise" raises the library's ValueError or
            TypeError; "fallback" passes them on to torch and counts them.

    Attributes:
        taken: calls computed by poise. passed_on: calls passed on to torch.
        reasons: the library's sentence of each refusal: how often.

    Example:
        >>> import torch, poise
        >>> q = torch.randn(1, 2, 5, 8)
        >>> with poise.use() as u:
        ...     out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        >>> u.taken, u.passed_on
        (1, 0)
    """

    def __init__(self, on_unsupported="raise"):
        if on_unsupported not in ("raise", "fallback"):
            raise ValueError(
                f"[use] on_unsupported: {on_unsupported!r}, expected 'raise' or 'fallback'")
        super().__init__()
        self.on_unsupported = on_unsupported
        self.taken = self.passed_on = 0
        self.reasons = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is _F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        if func in _INSIDE:
            with self:
                return _INSIDE[func](*args, **kwargs)
        if func in _NATIVE:
            return self._pass_on(func, args, kwargs, ValueError(
                f"[use] torch.{func.__name__} computes attention inside, out of reach"))
        return func(*args, **kwargs)

    def compute(self, call):
        """Computes a _torch_calls.Call; what else happens to calls is for subclasses."""
        return attend(*call)

    def _attend(self, *args, **kwargs):
        call = _torch_calls.native(*args, **kwargs)
        drops = call.options["dropout_p"] != 0.0
        if not drops or self.on_unsupported == "raise":
            generator = None
        else:
            generator = torch.get_rng_state()  # a refused call must not have drawn from it
        try:
            out = self.compute(call)
        except (ValueError, TypeError) as refusal:
            if generator is not None:
                torch.set_rng_state(generator)
            return self._pass_on(_F.scaled_dot_product_attention, args, kwargs, refusal)
        self.taken += 1
        return out

    def _pass_on(self, func, args, kwargs, refusal):
        if self.on_unsupported == "raise":
            raise refusal
        self.passed_on += 1
        reason = str(refusal)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return func(*args, **kwargs)
