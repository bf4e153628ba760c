"""Where a watch's measurements go: report, run log, recording, dashboards.

In: a small watched model. Out: files that poise's command reads, and what dashboards were told.
Must not happen here: a dashboard that is asked over a network.
"""

import doctest
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest
from test_watch import Attention, Stack, inputs, padding, stack

import poise

torch = pytest.importorskip("torch")


def watched(steps=2, **options):
    with poise.watch(stack(), **options) as w:
        for seed in range(steps):
            w.model(inputs(seed=seed), padding(12, 5, 9))
    return w


def test_the_report_has_three_faces(tmp_path):
    w = watched(stats="full")
    page = w.report(tmp_path / "health.html", title="A title").read_text()
    assert page.startswith("<!DOCTYPE html>") and "layers.1" in page and "A title" in page
    heads = json.loads(w.report(tmp_path / "health.json").read_text())["heads"]
    assert [head["rows"] for head in heads] == [26] * 8
    everything = json.loads(w.report(tmp_path / "all.json", steps="all").read_text())["heads"]
    assert [head["rows"] for head in everything] == [52] * 8
    assert w.report(tmp_path / "health.txt").read_text() == w.report() != ""
    with pytest.raises(ValueError, match="steps: 'first', expected 'last', 'all' or 'run'"):
        w.report(steps="first")


def test_the_report_of_a_run_has_the_way_there(tmp_path):
    with pytest.raises(ValueError, match="steps: 'run' is read from a log, and there is none"):
        watched().report(steps="run")
    log = tmp_path / "run.jsonl"
    w = watched(5, log=log)
    path = w.report(tmp_path / "run.json", steps="run", title="A run")
    document = json.loads(path.read_text())
    assert document["measured"]["title"] == "A run"
    assert document["series"]["steps"] == 5 and len(document["heads"]) == 8
    page = w.report(tmp_path / "r.html", steps="run").read_text()
    assert 'id="time"' in page and 'id="time"' not in w.report(tmp_path / "r.html").read_text()
    assert poise.to_json(log) == poise.report(str(log)).to_json() != path.read_text()
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    with pytest.warns(UserWarning, match="run.jsonl: line 10 is cut off and was left out"):
        assert len(json.loads(poise.to_json(log))["heads"]) == 8
    log.write_bytes(b"{}\n")
    with pytest.raises(ValueError, match=r"run.jsonl: line 1"):
        poise.report(log)
    log.write_bytes(b"")
    with pytest.raises(ValueError, match="log: it holds no record"):
        poise.report(log)
    with pytest.raises(ValueError, match="labels: given beside a run log"):
        poise.report(log, labels=["a"])
    with pytest.raises(FileNotFoundError):
        poise.report(tmp_path / "none")


def test_the_moments_of_query_and_key_are_measured_at_level_full(tmp_path):
    variance = {}
    for stats in ("core", "full"):
        report = watched(stats=stats).report(tmp_path / "r.json")
        variance[stats] = json.loads(report.read_text())["heads"][0]["variance"]
    assert variance["full"]["moments_known"] and not variance["core"]["moments_known"]
    assert np.isfinite(variance["full"]["full"])


def expanded(value):
    """The short forms of docs/run-log.md written out."""
    if isinstance(value, list) and all(isinstance(entry, int) for entry in value):
        return [x for entry in value for x in ([0] * -entry if entry < 0 else [entry])]
    return value


def test_the_log_has_a_line_for_each_step_and_layer(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"half a')
    w = watched(steps=3, log=path, process="rank 0", stats="full")
    first, *lines = path.read_bytes().decode("ascii").splitlines()
    assert first == '{"half a'
    records = [json.loads(line) for line in lines]
    assert [(r["step"], r["layer"]) for r in records] == [
        (step, f"layers.{layer}") for step in range(3) for layer in (0, 1)]
    assert all((r["schema"], r["version"], r["process"]) == ("poise.log", 1, "rank 0")
               for r in records)
    stats = json.loads(w.stats["layers.1"].to_json())
    head, written = stats["heads"][0], records[-1]["stats"]["heads"][0]
    zeros, first_bin, *bins = written["top1"]
    assert head["top1"] == {"zeros": zeros, "first_bin": first_bin, "bins": expanded(bins)}
    assert expanded(written["histogram"]["counts"]) == head["histogram"]["counts"]
    assert written["rows"] == head["rows"] and written["sum_entropy"] == head["sum_entropy"]


def command():
    """The command poise of the build tree, or of PATH."""
    import shutil

    beside = pathlib.Path(poise._core.__file__).parents[2] / "cli" / "poise"
    found = str(beside) if beside.exists() else shutil.which("poise")
    return found or pytest.skip("the command poise is not built")


def test_the_command_reads_the_log(tmp_path):
    path = tmp_path / "run.jsonl"
    watched(steps=3, log=path)
    told = subprocess.run([command(), "report", path, "--json", tmp_path / "r.json"],
                          capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    heads = json.loads((tmp_path / "r.json").read_text())["heads"]
    assert [head["rows"] for head in heads] == [26] * 8


@pytest.mark.parametrize("compute", ["torch", "poise"])
def test_the_command_reads_the_recording(tmp_path, compute):
    model, path = stack(kv_heads=2, is_causal=True), tmp_path / "recorded.safetensors"
    with poise.watch(model, every=10, compute=compute) as w:
        model(inputs(seed=0))
        w.record(path)
        model(inputs(seed=1))
        assert path.exists()
    with poise.watch(model) as w:
        model(inputs(seed=1))
    told = subprocess.run([command(), "report", path, "--json", tmp_path / "r.json"],
                          capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    heads = json.loads((tmp_path / "r.json").read_text())["heads"]
    assert [head["name"] for head in heads][::4] == ["layers.0 H0", "layers.1 H0"]
    largest = np.concatenate([w.stats[label].max_score for label in w.stats])
    np.testing.assert_allclose([head["readout"]["max_score"] for head in heads], largest,
                               rtol=1e-5)


def test_a_recording_holds_what_attention_got(tmp_path):
    model, x, path = stack(), inputs(), tmp_path / "recorded.safetensors"
    with poise.watch(model) as w:
        w.record(path)
        model(x, padding(12, 5, 9).expand(3, 1, 12, 12))  # one row in memory
    blob = path.read_bytes()
    end = 8 + int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:end])
    about = header.pop("__metadata__")
    assert about["poise.recording"] == "1" and about["layers.0.causal"] == "none"
    assert float(about["layers.0.scale"]) == 8**-0.5 and end % 8 == 0
    begin, stop = header["layers.0.query"]["data_offsets"]
    stored = np.frombuffer(blob[end + begin:end + stop], np.float32).reshape(3, 4, 12, 8)
    assert np.array_equal(stored, model.layers[0].split(x)[0].detach().numpy())
    assert header["layers.1.mask"]["shape"] == [3, 1, 1, 12]
    assert header["layers.1.mask"]["dtype"] == "BOOL"


def test_a_recording_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder .*none does not exist"):
        poise.watch(stack()).record(tmp_path / "none" / "r.safetensors")
    path = tmp_path / "r.safetensors"
    with poise.watch(stack(), layers=[]) as w:
        w.record(path)
        with pytest.raises(ValueError, match="no attention call was seen"):
            w.model(inputs())
    assert not path.exists() and not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")
    for no_file in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="path: .* is no file"):
            poise.watch(stack()).record(no_file)


def test_a_recording_goes_where_a_link_leads(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    with poise.watch(stack()) as w:
        w.record(link)
        w.model(inputs())
    assert link.is_symlink() and (tmp_path / "file").stat().st_size > 0


def test_a_log_that_is_named_late_begins_with_the_last_step(tmp_path):
    w = watched(3)
    w.log(tmp_path / "l")
    records = [json.loads(line) for line in (tmp_path / "l").read_text().splitlines()]
    assert [(r["step"], r["layer"]) for r in records] == [(2, "layers.0"), (2, "layers.1")]
    assert "layers.1" in w.report(steps="run")
    with pytest.raises(ValueError, match="is a log of this watch already"):
        w.log(tmp_path / "." / "l")


def test_a_full_disk_is_told(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        watched(log="/dev/full")
    # A file that may not grow takes a part of the line, and says so when it is given the rest.
    code = f"""
import resource, torch, poise
w = poise.watch(torch.nn.TransformerEncoderLayer(8, 1, 8), log={str(tmp_path / "l")!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with w:
    w.model(torch.ones(2, 1, 8))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (tmp_path / "l").stat().st_size == 100 and "File too large" in told.stderr


def test_a_process_has_a_name_in_utf8(tmp_path):
    with pytest.raises(ValueError, match="process: .*expected text of 1 to 200 bytes"):
        poise.watch(stack(), log=tmp_path / "l", process="\ud800")


class Writer:
    """What SummaryWriter has, and what it was told."""

    def __init__(self):
        self.scalars, self.histograms = [], []

    def add_scalar(self, tag, value, step):
        self.scalars.append((tag, value, step))

    def add_histogram_raw(self, tag, **what):
        self.histograms.append((tag, what))


def test_tensorboard_gets_past_and_coming_steps():
    writer, late = Writer(), Writer()
    with poise.watch(stack(), stats="full") as w:
        w.model(inputs())
        w.to_tensorboard(writer)
        w.model(inputs(seed=2))
    w.to_tensorboard(late, heads=True)
    found = [s for s in writer.scalars if s[0] == "poise/max_score/layers.0"]
    assert [step for *_, step in found] == [0, 1]
    assert found[1][1] == pytest.approx(w.stats["layers.0"].max_score.max())
    entropy = [s for s in writer.scalars if s[0] == "poise/entropy_ratio/layers.0"]
    assert entropy[1][1] == pytest.approx(w.stats["layers.0"].entropy_ratio.mean())
    heads = {tag: value for tag, value, step in late.scalars if step == 1}
    assert heads["poise/top1/layers.1/h3"] == pytest.approx(w.stats["layers.1"].top1[3])
    tag, what = writer.histograms[-1]
    counts, edges = w.stats["layers.1"].histogram()
    assert tag == "poise/scores/layers.1" and what["global_step"] == 1
    assert what["bucket_counts"] == counts.sum(0).tolist() and what["num"] == counts.sum()
    assert what["bucket_limits"] == edges[1:].tolist()
    assert what["min"] <= what["sum"] / what["num"] <= what["max"]


def test_tensorboard_itself_reads_what_it_was_told(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    w = watched(stats="full")
    with SummaryWriter(tmp_path) as writer:
        w.to_tensorboard(writer)
    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0})
    events.Reload()
    scalars = events.Scalars("poise/max_score/layers.0")
    assert [event.step for event in scalars] == [0, 1]
    assert scalars[1].value == pytest.approx(w.stats["layers.0"].max_score.max(), rel=1e-6)
    histogram = events.Histograms("poise/scores/layers.0")[1].histogram_value
    counts, _ = w.stats["layers.0"].histogram()
    assert sum(histogram.bucket) == counts.sum() == histogram.num


def test_wandb_gets_a_step_of_its_own(monkeypatch):
    class Run:
        def __init__(self):
            self.metrics, self.logged = [], []

        def define_metric(self, name, step_metric=None):
            self.metrics.append((name, step_metric))

        def log(self, entry):
            self.logged.append(entry)

    module = types.ModuleType("wandb")
    module.Histogram = lambda np_histogram: ("histogram", np_histogram)
    monkeypatch.setitem(sys.modules, "wandb", module)
    run, w = Run(), watched(stats="full")
    w.to_wandb(run)
    assert run.metrics == [("poise/step", None), ("poise/*", "poise/step")]
    assert [entry["poise/step"] for entry in run.logged] == [0, 0, 1, 1]
    assert run.logged[-1]["poise/max_score/layers.1"] == pytest.approx(
        w.stats["layers.1"].max_score.max())
    kind, (counts, edges) = run.logged[-1]["poise/scores/layers.1"]
    assert kind == "histogram" and len(edges) == len(counts) + 1


def test_mlflow_gets_names_it_takes(monkeypatch):
    logged = []
    module = types.ModuleType("mlflow")
    module.log_metrics = lambda metrics, step: logged.append((metrics, step))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    shared = Attention()
    with poise.watch(Stack(shared, shared)) as w:
        w.at_step(3)
        w.model(inputs())
        w.to_mlflow()
    assert [step for _, step in logged] == [3, 3]
    assert {name for metrics, _ in logged for name in metrics if "max_score" in name} == {
        "poise/max_score/layers.0", "poise/max_score/layers.0_2"}
    assert all(np.isfinite(value) for metrics, _ in logged for value in metrics.values())


def test_what_is_no_dashboard_is_refused():
    w = watched()
    for attach, sentence in ((w.to_tensorboard, "writer: object has no add_scalar"),
                             (w.to_wandb, "run: object has no log"),
                             (w.to_mlflow, "client: object has no log_metrics")):
        with pytest.raises(TypeError, match=sentence):
            attach(object())


def test_dashboards_are_not_imported():
    code = ("import sys, torch, poise; poise.watch(torch.nn.Linear(2, 2)); "
            "print([m for m in ('tensorboard', 'wandb', 'mlflow', 'transformers') "
            "if m in sys.modules])")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "[]", told.stderr


@pytest.mark.parametrize("name", ["poise._watch", "poise._clip"])
def test_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0
