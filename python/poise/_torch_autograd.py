"""Records of gradients around the operators: reverse mode, forward mode, and reverse over reverse.

In: the arguments of an operator, and a Measurement that rides along. Out: its results, with their
place in torch's graph. Must not happen here: a derivative the library lacks taken as zero.
"""

import torch
from torch.autograd import Function, forward_ad

from . import _core, _torch_ops
from ._torch_ops import DIFFERENTIABLE, NAMES, NUMBERS, STATE, TENSORS

_ops = torch.ops.poise


class Measurement:
    """What a recorded call measures on its way.

    In: request, an AuxRequest; after_backward, None or a function that gets the poise.Stats of the
    call once backward has added the gradient statistics. Out: aux, after forward.
    """

    __slots__ = ("request", "after_backward", "aux")

    def __init__(self, request, after_backward=None):
        self.request, self.after_backward, self.aux = request, after_backward, None

    def request_of(self, lse):
        """The request with what the gradients need."""
        asked = self.request
        return _core.AuxRequest(
            asked.lse or lse, asked.max_scores, asked.stats, asked.scores, asked.weights,
            lse_without_sink=asked.lse_without_sink, state=True, capped=asked.capped,
            logits=asked.logits)


def traced():
    """Whether somebody looks at operators, so that they must not be left out."""
    return torch._C._len_torch_dispatch_stack() > 0


def _call(name, arguments):
    """The operator where it is looked at, else its kernel: the way there costs microseconds."""
    if not traced():
        return getattr(_torch_ops, name)(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(_ops, name).default(*arguments)


def _refuse_vmap(name):
    raise ValueError(
        f"[{name}] vmap: leading axes are batches here already; give them to the call instead")


def _no_vmap(name):
    def vmap(info, in_dims, *arguments):
        _refuse_vmap(name)

    return staticmethod(vmap)


def _is_batched(tensor):
    """Whether it stands for many: is_grads_batched and vectorize=True of torch.autograd."""
    return tensor is not None and (torch._C._functorch.is_batchedtensor(tensor)
                                   or torch._C._functorch.is_legacy_batchedtensor(tensor))


def _no_derivative(name, mode):
    def refuse(ctx, *gradients):
        raise ValueError(f"[{name}] the library has no {mode} of this derivative")

    return staticmethod(refuse)


class Attention(Function):
    """forward(): the operator's arguments and a Measurement or None; its results."""

    @staticmethod
    def forward(*arguments):
        *arguments, measurement = arguments
        if measurement is None:
            return _call("forward", arguments)
        results, measurement.aux = _torch_ops.forward(
            *arguments, request=measurement.request_of(arguments[-1]))
        return results

    @staticmethod
    def setup_context(ctx, inputs, output):
        out, row_max, row_sum, lse = output
        *_, ctx.lse, measurement = inputs
        # Not the measurement itself: its aux has lse, which leads back here, and Python's collector
        # sees no circle that goes through an object of C++.
        ctx.on_backward = None
        if measurement is not None and measurement.after_backward is not None:
            ctx.on_backward = (measurement.aux.stats, measurement.after_backward)
        ctx.numbers = inputs[TENSORS:TENSORS + NUMBERS]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(row_max, row_sum, *(() if ctx.lse else (lse,)))
        saved = (*inputs[:TENSORS], out, row_max, row_sum)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx, dout, _row_max, _row_sum, dlse):
        *tensors, out, row_max, row_sum = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:DIFFERENTIABLE])
        rest = (None,) * (TENSORS - DIFFERENTIABLE + NUMBERS + 2)
        if dout is None and dlse is None:
            return (None,) * DIFFERENTIABLE + rest
        if _is_batched(dout) or _is_batched(dlse):
            _refuse_vmap("backward")
        if dout is None:
            dout = torch.zeros_like(out)
        arguments = (dout, dlse, *tensors, out.detach(), row_max, row_sum, *ctx.numbers, wanted)
        if torch.is_grad_enabled():
            gradients = Backward.apply(*arguments, ctx.on_backward)
        else:
            gradients = Backward.forward(*arguments, ctx.on_backward)
        return (*(g if w else None for g, w in zip(gradients, wanted)), *rest)

    @staticmethod
    def jvp(ctx, *tangents):
        for name, tangent in zip(NAMES[3:], tangents[3:DIFFERENTIABLE]):
            if tangent is not None:
                raise ValueError(
                    f"[jvp] {name}: has a tangent; in forward mode query, key and value may move")
        if all(tangent is None for tangent in tangents[:3]):
            return None, None, None, None
        moved, lse_moved = Jvp.apply(*tangents[:3], *ctx.saved_tensors, *ctx.numbers)
        return moved, None, None, lse_moved if ctx.lse else None

    vmap = _no_vmap("forward")


class EagerAttention(Attention):
    """Attention where no transform of torch.func is active: the older form is 13 us cheaper."""

    @staticmethod
    def forward(ctx, *arguments):
        results = Attention.forward(*arguments)
        Attention.setup_context(ctx, arguments, results)
        return results

    setup_context = Function.setup_context


class Backward(Function):
    """forward(): the arguments of the operator backward; None, or statistics and who gets them."""

    @staticmethod
    def forward(*arguments):
        *arguments, on_backward = arguments
        if on_backward is None:
            return _call("backward", arguments)
        stats, after_backward = on_backward
        gradients = _torch_ops.backward(*arguments, stats=stats)
        after_backward(stats)
        return gradients

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        *_, ctx.wanted, _on_backward = inputs
        ctx.numbers = inputs[2 + TENSORS + STATE:][:NUMBERS]
        ctx.save_for_backward(*inputs[:2 + TENSORS + STATE])
        ctx.mark_non_differentiable(*(g for g, w in zip(output, ctx.wanted) if not w))

    @staticmethod
    def backward(ctx, *cotangents):
        dout, dlse, *tensors = ctx.saved_tensors
        for name, cotangent, needed in zip(NAMES[3:], cotangents[3:],
                                           ctx.needs_input_grad[5:2 + DIFFERENTIABLE]):
            if cotangent is not None or needed:
                raise ValueError(
                    f"[double_backward] {name}: takes part, and the library has second gradients "
                    "of query, key and value only")
        rest = (None,) * (TENSORS - 3 + STATE + NUMBERS + 2)
        if all(cotangent is None for cotangent in cotangents[:3]):
            return (None,) * 5 + rest
        # With a record even here: who differentiates once more is to get an error, not zeros.
        run = DoubleBackward.apply if torch.is_grad_enabled() else DoubleBackward.forward
        *inputs, to_dout, to_dlse = run(*cotangents[:3], dout, dlse, *tensors, *ctx.numbers)
        return (to_dout, None if dlse is None else to_dlse, *inputs, *rest)

    jvp = _no_derivative("backward", "forward mode")
    vmap = _no_vmap("backward")


class _Last(Function):
    """A derivative that is not differentiated further."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class Jvp(_Last):
    @staticmethod
    def forward(*arguments):
        return _call("jvp", arguments)

    backward = _no_derivative("jvp", "gradient")
    jvp = _no_derivative("jvp", "forward mode")
    vmap = _no_vmap("jvp")


class DoubleBackward(_Last):
    @staticmethod
    def forward(*arguments):
        return _call("double_backward", arguments)

    backward = _no_derivative("double_backward", "gradient")
    jvp = _no_derivative("double_backward", "forward mode")
    vmap = _no_vmap("double_backward")


def _records(arguments):
    return forward_ad._current_level >= 0 or torch.is_grad_enabled() and any(
        isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)


def _register(name, function, rides):
    operator = getattr(_ops, name).default

    def autograd(*arguments):
        if _records(arguments):
            return function.apply(*arguments, *rides)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    _torch_ops.library.impl(name, autograd, "Autograd")


_register("forward", Attention, (None,))
_register("backward", Backward, (None,))
_register("jvp", Jvp, ())
_register("double_backward", DoubleBackward, ())
