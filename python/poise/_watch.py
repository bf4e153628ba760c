"""poise.watch: the health of a torch model's attention while it runs.

In: a model, and what to measure of which layers how often. Out: statistics by layer and step, the
report, and what goes to logs and dashboards. Must not happen here: a change to the model or to its
results, or how calls are found and measured (_watch_modules.py, _watch_calls.py).
"""

import os
import pathlib
import warnings

import torch

from . import _core, _recording, _run_log, _watch_sinks, health
from ._watch_calls import WatchedCalls
from ._watch_modules import Selection, Trail
from ._watch_summary import Measured, summary

__all__ = ["watch"]


class watch:
    """Records per-layer, per-head statistics of the attention calls of a torch model.

    A context manager, or an object with start() and stop(). Seen are calls of
    torch.nn.functional.scaled_dot_product_attention and of poise.hf inside modules of the model, in
    the thread that started it. The model is not changed, and neither is any bit of its results or
    gradients. nn.MultiheadAttention's fused inference path, which bypasses that function, is off
    meanwhile (its results differ from the other path's by rounding). Attention modules that were
    never seen are listed in `unseen`, and a warning names them at the end.

    A step is one call of the outermost module, until at_step() says otherwise. In backward the
    gradient's statistics join those of the step, where dropout is off.

    Args:
        model: a torch.nn.Module, not compiled; compiled parts are not seen.
        every: measure steps 0, every, 2 every, ...
        layers: None = all; or names and shell patterns ("encoder.layer.0", "*.attention"), which
            mean the modules they match and all inside, or numbers of calls within a step.
        stats: level "max", "core" or "full", or a StatsRequest, which can sample rows.
        compute: "torch": torch computes as ever, and measured steps are computed a second time to
            be measured. "poise": poise computes every call and measures in the same pass.
        log: a file to which every measured step is appended as JSON lines (docs/run-log.md).
        process: who measures, for logs of several processes; text or None.
        skip_padding: leave query rows out that are padding: rows of self-attention whose own key
            the mask hides from every query. Modules with "cross" in a name are not looked at.
        on_unsupported: with compute="poise", what happens to calls that poise refuses: "raise", or
            "fallback": torch computes them, and `refused` counts them.

    Attributes:
        step: number of the current step. stats: {label: Stats} of the last measured step.
        total: {label: Stats} of all measured steps; without layers whose scale changed.
        history: a list of Measured, one for each measured step and layer.
        unseen: names of attention modules in which no call was seen.
        refused: {sentence: how often} of calls that could not be measured or computed.

    Raises:
        ValueError, TypeError: arguments that do not fit. Errors of the model pass through.

    Cost: with compute="poise" at level "core" some percent of the model's time (docs/watch.md);
    with compute="torch" one more attention in measured steps. Memory: the statistics, some kB for
    each head, and a line of `history` for each measured step and layer.

    Example:
        >>> import torch, poise
        >>> model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> with poise.watch(model, compute="poise") as w:
        ...     out = model(torch.randn(2, 10, 32))
        >>> list(w.stats), w.stats["self_attn"].heads, w.unseen
        (['self_attn'], 4, [])
        >>> "self_attn" in w.report()
        True
    """

    def __init__(self, model, every=1, layers=None, *, stats="core", compute="torch", log=None,
                 process=None, skip_padding=True, on_unsupported="raise"):
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"[watch] model: {type(model).__name__}, expected a torch.nn.Module")
        if isinstance(model, getattr(torch._dynamo, "OptimizedModule", ())):
            raise ValueError("[watch] model: compiled, and graphs cannot be watched; watch and "
                             "call the model that was given to torch.compile")
        if model._compiled_call_impl is not None:
            raise ValueError("[watch] model: compiled in place, and graphs cannot be watched; "
                             "watch it before its compile()")
        if isinstance(model, torch.jit.ScriptModule):
            raise ValueError("[watch] model: TorchScript, and graphs cannot be watched; watch the "
                             "module it was made of")
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise ValueError(f"[watch] every: {every!r}, expected an integer from 1 on")
        if compute not in ("torch", "poise"):
            raise ValueError(f"[watch] compute: {compute!r}, expected 'torch' or 'poise'")
        self.request = _core.AuxRequest(stats=stats).stats
        if self.request.level == "off":
            raise ValueError("[watch] stats: nothing is measured; expected 'max', 'core' or 'full'")
        self.every, self.compute, self.on_unsupported = every, compute, on_unsupported
        self.skip_padding = skip_padding
        self.model = model
        self._trail = Trail(model)
        self._trail.on_begin, self._trail.on_end = self._begin, self._end
        self._selection = Selection(layers, self._trail.names)
        self._calls = WatchedCalls(self)
        self._counts_itself = True
        self._is_running = False
        self.step = -1
        self._open = {}  # label: Stats of the calls of the current step
        self.history, self._sinks = [], []
        self._last, self._total, self._refused = {}, {}, {}
        self._shares_weights = False
        self._recording = None
        self._dtypes = set()
        self._process, self._log_path = process, None
        if log is not None:
            self.log(log)

    # What the user does.

    def start(self):
        """Begins to watch. Returns self."""
        if self._is_running:
            raise ValueError("[watch] start: it is running already")
        self._trail.attach()
        self._fastpath = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        self._calls.__enter__()
        self._is_running = True
        return self

    def stop(self):
        """Ends watching; what was measured stays. Warns of attention that was never seen."""
        if not self._is_running:
            return
        self._is_running = False
        self._calls.__exit__(None, None, None)
        torch.backends.mha.set_fastpath_enabled(self._fastpath)
        self._trail.detach()
        self._close()
        if unseen := self.unseen:
            what = (f"{len(unseen)} attention modules made no call that could be watched, among "
                    f"them {unseen[0]}")
        elif self._trail.saw_nothing:
            what = f"{type(self.model).__name__} made no attention call that could be watched"
        else:
            return
        warnings.warn(f"{what}: attention by other means, in a compiled graph or under torch.func",
                      stacklevel=2)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        if kind is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.stop()
        else:
            self.stop()

    def at_step(self, step):
        """From here on calls belong to step `step` (an integer from 0 on), until it is named anew.

        For gradient accumulation, resumed runs, and models that are not called as a whole.
        """
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"[watch] step: {step!r}, expected an integer from 0 on")
        self._counts_itself = False
        if step != self.step:
            self._close()
            self.step = step

    @property
    def stats(self):
        if not self._trail.running:
            self._close()
        return dict(self._last)

    @property
    def total(self):
        if not self._trail.running:
            self._close()
        return {label: stats for label, stats in self._total.items() if stats is not None}

    @property
    def unseen(self):
        return self._trail.unseen()

    @property
    def refused(self):
        both = dict(self._refused)
        for reason, count in self._calls.reasons.items():
            both[reason] = both.get(reason, 0) + count
        return both

    def report(self, path=None, *, steps="last", **words):
        """The health report: a page for "….html", JSON for "….json", else text; without path, text.

        steps: "last" measured step, "all" of them as one, or "run": the last and the way there, as
        the log has it (watch(log=...) or w.log). words: of poise.report(), as title. Raises
        ValueError when nothing was measured.
        """
        if steps not in ("last", "all", "run"):
            raise ValueError(f"[watch] steps: {steps!r}, expected 'last', 'all' or 'run'")
        if steps == "run" and self._log_path is None:
            raise ValueError("[watch] steps: 'run' is read from a log, and there is none; name a "
                             "file by watch(log=...)")
        layers = self.total if steps == "all" else self.stats
        if not layers:
            raise ValueError(
                "[watch] report: nothing was measured" + (
                    f"; attention modules that were not seen: {', '.join(self.unseen)}"
                    if self.unseen else ""))
        about = {"model": type(self.model).__name__, "precision": ", ".join(sorted(self._dtypes)),
                 "layers_share_weights": self._shares_weights, **words}
        composed = health.report(self._log_path if steps == "run" else layers, **about)
        if path is None:
            return composed.to_text()
        path = pathlib.Path(os.fspath(path))
        faces = {".html": composed.to_html, ".htm": composed.to_html, ".json": composed.to_json}
        path.write_text(faces.get(path.suffix.lower(), composed.to_text)(), encoding="utf-8")
        return path

    def log(self, path):
        """Appends the last measured step and every one to come to `path`, as lines of poise.log."""
        log = _run_log.Log(path, self._process)
        if any(log.is_of(sink) for sink in self._sinks):
            raise ValueError(f"[watch] path: {path!r} is a log of this watch already")
        for measured in self.history[-len(self._last):] if self._last else ():
            log.take(measured, self._last[measured.layer])
        self._sinks.append(log)
        self._log_path = os.fspath(path)

    def record(self, path):
        """Writes query, key and value of the next step's calls to `path`, for `poise report`.

        A safetensors file; it is written when the outermost module returns. What a recording has no
        place for (softcap, sinks, more than 4 axes) raises ValueError then.
        """
        self._recording = _recording.Recording(path)

    def to_tensorboard(self, writer, *, heads=False):
        """Writes every measured step, past and to come, to a SummaryWriter.

        Scalars poise/<name>/<layer>; heads=True adds those of each head. At level "full" the
        scores' histogram (add_histogram_raw).
        """
        self._attach(_watch_sinks.TensorBoard(writer, heads))

    def to_wandb(self, run, *, heads=False):
        """Logs every measured step, past and to come, to a Weights & Biases run."""
        self._attach(_watch_sinks.WeightsAndBiases(run, heads))

    def to_mlflow(self, client=None, *, heads=False):
        """Logs every measured step, past and to come, to MLflow: the active run, or `client`,
        anything with log_metrics(dict, step=)."""
        self._attach(_watch_sinks.MLflow(client, heads))

    # What the calls ask for and bring.

    def place(self):
        return self._trail.place()

    def wants(self, place):
        return ((self.step % self.every == 0 or self._recording is not None)
                and self._selection.takes(place))

    def keep(self, place, call, stats):
        self._shares_weights |= place.repeated
        self._dtypes.add(str(call.query.dtype).removeprefix("torch."))
        self._open.setdefault(place.label, []).append(stats)
        if self._recording is not None:
            self._recording.add(place.label, call)

    def refuse(self, reason):
        if reason not in self._refused:
            warnings.warn(f"an attention call was not measured: {reason}", stacklevel=2)
        self._refused[reason] = self._refused.get(reason, 0) + 1

    # Steps.

    def _begin(self):
        if self._counts_itself:
            self._close()
            self.step += 1
        self._trail.begin_step()

    def _end(self):
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.write(model=type(self.model).__name__,
                            layers_share_weights=self._shares_weights)

    def _attach(self, sink):
        for measured in self.history:
            sink.take(measured)
        self._sinks.append(sink)

    def _close(self):
        """Merges what the step's calls measured, and hands it on."""
        opened, self._open = self._open, {}
        if not opened:
            return
        last = {}
        for label, parts in opened.items():
            stats = parts[0]
            for part in parts[1:]:
                try:
                    stats.merge(part)
                except ValueError as refusal:
                    self.refuse(f"{label}: {refusal}")
            last[label] = stats
            self._add_to_total(label, stats)
            self.history.append(Measured(self.step, label, *summary(stats)))
            for sink in self._sinks:
                sink.take(self.history[-1], stats)
        self._last = last

    def _add_to_total(self, label, stats):
        if label not in self._total:
            self._total[label] = _core.Stats()
        if self._total[label] is None:
            return
        try:
            self._total[label].merge(stats)
        except ValueError:
            self._total[label] = None  # its scale is learned: the steps are not one population
