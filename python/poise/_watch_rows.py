"""Padded query rows: found in the masks of self-attention, and kept out of statistics.

In: a call of _torch_calls. Out: the rows that are no padding, and calls that leave the others out.
Must not happen here: a guess; a row is padding only where the mask hides its own key from every
query.
"""

from typing import NamedTuple

import torch

from . import _core

_STANDS_FOR_MASKED = _core.StatsRequest().stand_in_bias
# Options that a part of a call's rows can be cut for.
_CUTTABLE = {"attn_mask", "scale", "dropout_p", "softcap", "sinks", "bias"}


class Rows(NamedTuple):
    """Rows of self-attention that are no padding.

    lengths: [B] where the padding is at the end of every sequence, else None; real: bool [B, L].
    """

    lengths: torch.Tensor | None
    real: torch.Tensor


def without_repeats(mask):
    """Axes along which every entry is the same, made 1 long."""
    for axis in range(mask.dim()):
        if mask.stride(axis) == 0 and mask.shape[axis] > 1:
            mask = mask.narrow(axis, 0, 1)
    return mask


def _seen_keys(mask):
    """bool [..., Lk] over the leading axes: keys that some query of some head may attend to."""
    mask = without_repeats(mask.detach())
    visible = mask if mask.dtype == torch.bool else mask > _STANDS_FOR_MASKED
    while visible.dim() < 3:
        visible = visible.unsqueeze(0)
    return visible.flatten(-3, -2).any(-2)


class PaddedRows:
    """Finds Rows; a mask that comes again with the next layer is looked at once."""

    def __init__(self):
        self._mask = self._version = self._lead = self._rows = None

    def of(self, call):
        """Rows of the call, or None where it has no padding that its mask tells of."""
        mask, query, key = call.options.get("attn_mask"), call.query, call.key
        if (not isinstance(mask, torch.Tensor) or mask.dim() < 2
                or query.shape[-2] != key.shape[-2] or mask.shape[-1] != key.shape[-2]
                or call.options.get("q_lengths") is not None):
            return None
        lead = query.shape[:-3]
        # Masks made in inference mode do not count their changes, so they are looked at every time.
        version = None if mask.is_inference() else mask._version
        if (version is None or self._mask is not mask or self._version != version
                or self._lead != lead):
            self._rows = _rows(mask, lead)
            self._mask, self._version, self._lead = mask, version, lead
        return self._rows


def _rows(mask, lead):
    seen = _seen_keys(mask)
    if seen.all():
        return None
    if seen.dim() - 1 > len(lead):
        return None
    seen = seen.expand(*lead, seen.shape[-1]).reshape(-1, seen.shape[-1])
    lengths = seen.sum(-1)
    at_the_end = seen.equal(torch.arange(seen.shape[-1]) < lengths[:, None])
    return Rows(lengths if at_the_end else None, seen)


def without_padding(call, rows):
    """The call with its padded rows left out: they become 0 and no statistic counts them."""
    if rows is None:
        return call
    if rows.lengths is not None:
        return call._replace(options={**call.options, "q_lengths": rows.lengths})
    mask = call.options["attn_mask"]
    lead = call.query.shape[:-3]
    real = rows.real.reshape(*lead, 1, -1, 1)
    if mask.dtype == torch.bool:
        mask = mask & real
    else:
        mask = mask.detach().masked_fill(~real, float("-inf"))
    return call._replace(options={**call.options, "attn_mask": mask})


def can_be_cut(call, rows):
    """Whether padded_parts() can say what without_padding() left out."""
    given = {name for name, value in call.options.items() if value is not None}
    return (rows.lengths is not None and given <= _CUTTABLE and call.query.dim() == 4
            and call.options["dropout_p"] == 0.0)


def _cut(tensor, batch, start):
    """The part of a mask that one sequence's rows from `start` on see."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() < 2:
        return tensor
    if tensor.dim() == 4:
        tensor = tensor[min(batch, tensor.shape[0] - 1)][None]
    return tensor if tensor.shape[-2] == 1 else tensor[..., start:, :]


def padded_parts(call, rows):
    """(where in the result, call) for the padded rows of each sequence."""
    query, key, value = call[:3]
    length = query.shape[-2]
    for batch, start in enumerate(rows.lengths.tolist()):
        if start == length:
            continue
        options = {**call.options, "attn_mask": _cut(call.options["attn_mask"], batch, start),
                   "bias": _cut(call.options.get("bias"), batch, start)}
        one = slice(batch, batch + 1)
        yield (one, slice(None), slice(start, None)), call._replace(
            query=query[one, :, start:], key=key[one if key.shape[0] > 1 else slice(None)],
            value=value[one if value.shape[0] > 1 else slice(None)], options=options)
