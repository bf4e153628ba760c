"""The mode that sees a model's attention calls, and how each is measured.

In: calls of torch.nn.functional.scaled_dot_product_attention, of poise.hf and of poise.use, with
their Place. Out: their results, unchanged to the bit, and poise.Stats for the calls that are
wanted. Must not happen here: a result that depends on whether it was measured.
"""

import torch

from . import _core, _torch_calls, _torch_use
from ._torch_autograd import Measurement
from ._torch_use import attend
from ._watch_modules import has_no_numbers, in_backward
from ._watch_rows import PaddedRows, can_be_cut, padded_parts, without_padding

_F = torch.nn.functional


def _same(tensor):
    return tensor


def _gradient_is_wanted(stats):
    """after_backward of calls whose Stats are kept: backward has added to them in place."""


class WatchedCalls(_torch_use.use):
    """Computes or passes on every attention call, and measures those that the watch wants.

    The watch has: place() -> Place or None; wants(place) -> bool; keep(place, call, stats);
    refuse(reason); request, compute, on_unsupported and skip_padding as watch() was given them.
    """

    def __init__(self, watch):
        super().__init__(watch.on_unsupported)
        self._watch = watch
        self._padded = PaddedRows()
        self._place = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is _F.scaled_dot_product_attention:
            return self._seen(func, types, args, kwargs)
        if func is attend:
            self._place = self._watch.place()
            return self.compute(_torch_calls.Call(*args))
        return super().__torch_function__(func, types, args, kwargs)

    def _seen(self, func, types, args, kwargs):
        place = self._watch.place()
        if place is None and not in_backward():
            return func(*args, **kwargs)
        if self._watch.compute == "poise":
            self._place = place
            return super().__torch_function__(func, types, args, kwargs)
        out = func(*args, **kwargs)
        if self._wanted(place):
            self._measure_beside(_torch_calls.native(*args, **kwargs), place, out)
        return out

    def _pass_on(self, func, args, kwargs, refusal):
        if self._watch.compute == "poise":
            return super()._pass_on(func, args, kwargs, refusal)
        self._watch.refuse(str(refusal))
        return func(*args, **kwargs)

    def _wanted(self, place):
        return place is not None and not has_no_numbers() and self._watch.wants(place)

    def compute(self, call):
        place = self._place
        if not self._wanted(place):
            return _torch_calls.run(call)
        rows = self._rows(call, place)
        if rows is None:
            return self._measured(call, place)
        records = _torch_calls.is_recorded(
            *call[:3], *(v for v in call.options.values() if isinstance(v, torch.Tensor)))
        if records or not can_be_cut(call, rows):
            out = _torch_calls.run(call)
            self._measure_beside(call, place, out)
            return out
        out = self._measured(without_padding(call, rows), place, call)
        for where, part in padded_parts(call, rows):
            out[where] = _torch_calls.run(part)
        return out

    def _rows(self, call, place):
        if not self._watch.skip_padding or place.crosses:
            return None
        return self._padded.of(call)

    def _measured(self, call, place, asked=None):
        measurement = Measurement(
            _core.AuxRequest(stats=self._watch.request), _gradient_is_wanted)
        out = _torch_calls.run(call, measurement)
        stats = measurement.aux.stats
        asked = asked or call
        # Rows left out by another mask than lengths would be among those that are measured.
        if stats.level == "full" and call.query.dim() <= 4 and (
                call.options.get("attn_mask") is asked.options.get("attn_mask")):
            lengths = call.options.get("q_lengths")
            stats.measure_inputs(call.query.detach(), call.key.detach(), lengths, lengths)
        self._watch.keep(place, asked, stats)
        return out

    def _measure_beside(self, call, place, out):
        """Measures a call that was computed elsewhere; what cannot be measured is counted."""
        try:
            self._beside(call, place, out)
        except (ValueError, TypeError) as refusal:
            self._watch.refuse(f"{place.label}: {refusal}")

    def _beside(self, call, place, out):
        drops = call.options["dropout_p"] != 0.0
        options = {name: value.detach() if isinstance(value, torch.Tensor) else value
                   for name, value in call.options.items()}
        options["dropout_p"] = 0.0
        asked = call._replace(query=call.query.detach(), key=call.key.detach(),
                              value=call.value.detach(), options=options)
        rows = self._rows(asked._replace(options={**options, "attn_mask":
                                                  call.options.get("attn_mask")}), place)
        call = without_padding(asked, rows)
        if drops or not (out.requires_grad and torch.is_grad_enabled()):
            with torch.no_grad():
                self._measured(call, place, asked)
            return
        tensors = [tensor.requires_grad_() for tensor in call[:3]]
        # The hooks of whoever wraps the model's graph (checkpointing) must not see this one. Saved
        # as they are, results would keep themselves alive.
        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, _same):
            beside = self._measured(call, place, asked)

        def measure_gradient(gradient):
            torch.autograd.grad(beside, tensors, gradient.detach())

        out.register_hook(measure_gradient)
