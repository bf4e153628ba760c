"""The operators torch.ops.poise.forward, backward, jvp and double_backward.

In: tensors on the CPU and the options of a call, one operator argument each. Out: new tensors; the
fake kernels tell torch.compile their shapes and strides beforehand. Must not happen here: a record
of gradients (_torch_autograd.py), or a rule on arguments that the library has.
"""

import torch

from . import _core

# Every operator has the call's twelve tensors and its nine numbers, in this order.
_TENSORS = (
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? scale, Tensor? sinks, "
    "Tensor? alibi_slopes, Tensor? mask, Tensor? kv_lengths, Tensor? q_lengths, "
    "Tensor? diagonal, Tensor? dropout_seed")
_STATE = "Tensor out, Tensor row_max, Tensor row_sum"
_NUMBERS = (
    "str causal, SymInt causal_offset, float? scale_number, float softcap, SymInt[] window, "
    "float dropout_p, SymInt dropout_offset, int threads, bool grouped")
TENSORS, DIFFERENTIABLE, STATE, NUMBERS = 12, 7, 3, 9
NAMES = ("query", "key", "value", "bias", "scale", "sinks", "alibi_slopes")

_SCHEMAS = {
    # lse is empty unless asked for.
    "forward": f"({_TENSORS}, {_NUMBERS}, bool lse) -> (Tensor, Tensor, Tensor, Tensor)",
    # One gradient for each of NAMES, empty unless wanted.
    "backward": f"(Tensor dout, Tensor? dlse, {_TENSORS}, {_STATE}, {_NUMBERS}, bool[] wanted) -> "
                "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "jvp": "(Tensor? query_tangent, Tensor? key_tangent, Tensor? value_tangent, "
           f"{_TENSORS}, {_STATE}, {_NUMBERS}) -> (Tensor, Tensor)",
    # Of query, key, value, dout and dlse; the last is empty without dlse.
    "double_backward": "(Tensor? ddq, Tensor? ddk, Tensor? ddv, Tensor dout, Tensor? dlse, "
                       f"{_TENSORS}, {_STATE}, {_NUMBERS}) -> "
                       "(Tensor, Tensor, Tensor, Tensor, Tensor)",
}
_STATE_REQUEST = _core.AuxRequest(state=True)
_LSE_REQUEST = _core.AuxRequest(lse=True, state=True)


def _options(bias, scale, sinks, alibi_slopes, mask, kv_lengths, q_lengths, diagonal, seed, causal,
             causal_offset, scale_number, softcap, window, dropout_p, dropout_offset, threads):
    return _core.Options(
        causal_offset if causal == "offset" else causal,
        scale_number if scale is None else scale, softcap, None, mask, bias, window or None,
        diagonal, kv_lengths, q_lengths, alibi_slopes, sinks, dropout_p,
        0 if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF,  # int64 in torch, unsigned here
        dropout_offset, threads or None)


def forward(query, key, value, *rest, request=None):
    """out, row_max, row_sum, lse; and the Aux when a request asks for more than the operator."""
    out, aux = _core.forward(
        query, key, value, _options(*rest[:-2]),
        request or (_LSE_REQUEST if rest[-1] else _STATE_REQUEST), None, rest[-2])
    lse = aux.lse if rest[-1] else aux.row_max.new_empty(0)
    if request is not None:
        return (out, aux.row_max, aux.row_sum, lse), aux
    return out, aux.row_max, aux.row_sum, lse


def _strides(shape, like):
    """Strides of a new tensor whose axes lie in memory in the order of `like`'s (output.cpp)."""
    order = list(range(len(shape)))
    if like is not None and like.dim() == len(shape):
        extents, strides = like.shape, like.stride()
        for a in range(1, len(shape)):
            for b in range(a, 0, -1):
                left, right = order[b - 1], order[b]
                if (extents[left] <= 1 or extents[right] <= 1 or strides[right] == 0
                        or strides[left] >= strides[right]):
                    break
                order[b - 1], order[b] = right, left
    result, step = [1] * len(shape), 1
    for axis in reversed(order):
        result[axis] = step
        step = step * max(shape[axis], 1)
    return result


def _empty(shape, like, dtype):
    return torch.empty_strided(shape, _strides(shape, like), dtype=dtype, device=like.device)


def _heads(tensor):
    return tensor.shape[-3] if tensor.dim() > 2 else 1


class _Aligned:
    """A call whose leading axes all agree, as the gradients want them, and the way back."""

    def __init__(self, tensors, out, grouped, sums):
        self.given = tensors
        query, key, value = tensors[:3]
        self.lead = out.shape[:-3]
        self.flat = sums and out.dim() > 4  # sums over the batch want one batch axis
        heads = (_heads(query), _heads(key), _heads(value))
        if not grouped and not heads[1] == heads[2] == 1:
            heads = (out.shape[-3],) * 3 if out.dim() > 2 else heads
        elif out.dim() > 2:
            heads = (out.shape[-3], *heads[1:])
        self.shapes = [
            (*self.lead, h, *t.shape[-2:]) if out.dim() > 2 else t.shape
            for h, t in zip(heads, tensors)]
        self.same = not self.flat and all(t.shape == s for t, s in zip(tensors, self.shapes))
        self.query, self.key, self.value = self.inputs(query, key, value)

    def inputs(self, *tensors):
        """query, key and value, or what moves with them."""
        if self.same:
            return tensors
        return tuple(None if t is None else self.rows(t.expand(s))
                     for t, s in zip(tensors, self.shapes))

    def rows(self, tensor, tail=3):
        """out, or what goes with its rows, by one batch axis."""
        if tensor is None or not self.flat:
            return tensor
        return tensor.reshape(-1, *tensor.shape[tensor.dim() - tail:])

    def mask(self, tensor):
        if tensor is None or not self.flat or tensor.dim() < 4:
            return tensor
        tail = tensor.shape[-3:]
        if all(extent == 1 for extent in tensor.shape[:-3]):
            return tensor.reshape(tail)
        return tensor.expand(*self.lead, *tail).reshape(-1, *tail)

    def back(self, gradients):
        """Gradients in the shapes and strides of query, key and value."""
        if self.same:
            return gradients
        return tuple(self._returned(g, s, t)
                     for g, s, t in zip(gradients, self.shapes, self.given))

    def _returned(self, gradient, shape, like):
        if gradient is None:
            return None
        gradient = gradient.reshape(shape).sum_to_size(like.shape)
        return _empty(like.shape, like, like.dtype).copy_(gradient)

    def back_to_mask(self, gradient, like):
        if not self.flat or like.dim() < 4:
            return gradient
        if gradient.dim() == 4:
            gradient = gradient.reshape(*self.lead, *gradient.shape[1:]).sum_to_size(like.shape)
        return gradient.reshape(like.shape)


def _split(rest):
    """The nine optional tensors, out, row_max, row_sum, the options' numbers, grouped."""
    n = TENSORS - 3
    return rest[:n], rest[n:n + STATE], rest[n + STATE:n + STATE + NUMBERS - 1], \
        rest[n + STATE + NUMBERS - 1]


def backward(dout, dlse, query, key, value, *rest, stats=None):
    """Gradients of the call, by the names in NAMES; those not wanted are empty."""
    *rest, wanted = rest
    optional, (out, row_max, row_sum), numbers, grouped = _split(rest)
    bias, scale, sinks, slopes, mask, *others = optional
    call = _Aligned((query, key, value), out, grouped, any(wanted[3:]) or stats is not None)
    options = _options(call.mask(bias), scale, sinks, slopes, call.mask(mask), *others, *numbers)
    found = _core.backward(
        call.query, call.key, call.value, call.rows(out), call.rows(dout), options,
        call.rows(row_max, 2), call.rows(row_sum, 2), None, call.rows(dlse, 2), *wanted[:3],
        wanted[3] or None, wanted[5], wanted[4] or None, wanted[6], stats)
    dq, dk, dv = call.back((found.dq, found.dk, found.dv))
    results = [
        dq, dk, dv,
        call.back_to_mask(found.dbias, bias).to(bias.dtype) if wanted[3] else None,
        found.dscale.reshape(scale.shape).to(scale.dtype) if wanted[4] else None,
        found.dsinks.to(sinks.dtype) if wanted[5] else None,
        found.dslopes.to(slopes.dtype) if wanted[6] else None]
    return tuple(query.new_empty(0) if result is None else result for result in results)


def jvp(query_tangent, key_tangent, value_tangent, query, key, value, *rest):
    """The tangents of out and lse."""
    optional, (out, row_max, row_sum), numbers, grouped = _split(rest)
    call = _Aligned((query, key, value), out, grouped, False)
    moves = call.inputs(query_tangent, key_tangent, value_tangent)
    moved, lse_moved = _core.jvp(
        call.query, call.key, call.value, out, _options(*optional, *numbers), *moves, row_max,
        row_sum)
    return (moved if call.same else _empty(out.shape, query, out.dtype).copy_(moved)), lse_moved


def double_backward(ddq, ddk, ddv, dout, dlse, query, key, value, *rest):
    """Gradients with respect to query, key, value, dout and dlse."""
    optional, (out, row_max, row_sum), numbers, grouped = _split(rest)
    call = _Aligned((query, key, value), out, grouped, False)
    ddq, ddk, ddv = call.inputs(ddq, ddk, ddv)
    *inputs, to_dout, to_dlse = _core.double_backward(
        call.query, call.key, call.value, out, dout, _options(*optional, *numbers), ddq, ddk, ddv,
        row_max, row_sum, None, dlse)
    return (*call.back(inputs), to_dout, query.new_empty(0) if to_dlse is None else to_dlse)


def _numbers_of(query):
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _fake_forward(query, key, value, *rest):
    grouped, lse = rest[-2:]
    rank = max(query.dim(), key.dim(), value.dim())
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads = _heads(query)
    if not grouped:
        (heads,) = torch.broadcast_shapes((heads,), (_heads(key),), (_heads(value),))
    rows = (*((1,) * (rank - 3 - len(lead))), *lead, heads, query.shape[-2])
    rows = rows if rank > 2 else rows[-1:]
    shape = (*rows, value.shape[-1])

    def per_row(extents):
        return query.new_empty(extents, dtype=_numbers_of(query))

    return (_empty(shape, query, query.dtype), per_row(rows), per_row(rows),
            per_row(rows if lse else (0,)))


def _fake_backward(dout, dlse, *rest):
    def gradient(like, index):
        if index < 3:
            return _empty(like.shape, like, like.dtype)
        return like.new_empty(like.shape)

    tensors, wanted = rest[:DIFFERENTIABLE], rest[-1]
    return tuple(gradient(tensor, i) if wanted[i] else tensors[0].new_empty(0)
                 for i, tensor in enumerate(tensors))


def _fake_jvp(_dq, _dk, _dv, query, *rest):
    out, row_max, _ = _split(rest[2:])[1]
    return _empty(out.shape, query, out.dtype), row_max.new_empty(row_max.shape)


def _fake_double_backward(_ddq, _ddk, _ddv, dout, dlse, *rest):
    results = [_empty(t.shape, t, t.dtype) for t in (*rest[:3], dout)]
    return (*results, dout.new_empty(0) if dlse is None else _empty(dlse.shape, dlse, dlse.dtype))


library = torch.library.Library("poise", "DEF")
_KERNELS: dict = {
    "forward": (forward, _fake_forward), "backward": (backward, _fake_backward),
    "jvp": (jvp, _fake_jvp), "double_backward": (double_backward, _fake_double_backward)}
for _name, _schema in _SCHEMAS.items():
    library.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,
                                          torch.Tag.needs_exact_strides))
    library.impl(_name, _KERNELS[_name][0], "CPU")
    torch.library.register_fake(f"poise::{_name}", _KERNELS[_name][1], lib=library)
