"""The example that trains, for a few steps: it runs, learns, and tells the two models apart.

In: examples/char_gpt.py. Out: its log, page and words. Must not happen here: a run long enough to
judge training by; docs/char-gpt.md has that.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "char_gpt.py"


@pytest.mark.parametrize("arguments, sentence", [
    (["--steps", "0"], "--steps: 0, expected 1 or more"),
    (["--width", "10", "--heads", "4"], "--width: 10 is no multiple of --heads 4"),
    (["--text", "none.txt"], "No such file or directory: 'none.txt'"),
    (["--text", os.devnull], "--text: 0 characters"), (["--out", os.devnull], "File exists"),
    (["--text", sys.executable], "can't decode"),
])
def test_a_bad_argument_is_named(tmp_path, arguments, sentence):
    done = subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.jsonl"))


def test_the_character_gpt_trains_and_is_watched(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--out", tmp_path, "--steps", "21", "--every", "10", "--batch",
         "4", "--context", "64", "--layers", "2", "--prose", "20"],
        capture_output=True, text=True,
        env={**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = [[float(x) for x in line.split()] for line in done.stdout.splitlines()
            if re.fullmatch(r"[\d. ]+", line) and len(line.split()) == 10]
    assert [row[0] for row in rows] == [0, 10, 20]
    first, last = rows[0], rows[-1]
    assert last[2] < first[2] - 0.3 and last[6] < first[6] - 0.3  # both losses fall
    # At the start q . k has variance head_dim = 64: raw scores make a sharp softmax.
    assert first[4] > 0.8 and first[5] == 0.0  # entropy and rows on one key, scaled
    assert first[8] < 0.4 and first[9] > 0.05  # the same, unscaled

    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert {(r["step"], r["layer"]) for r in records} == {
        (step, f"{name}.blocks.{block}.attention")
        for step in (0, 10, 20) for name in ("scaled", "unscaled") for block in (0, 1)}
    page = (tmp_path / "health.html").read_text()
    assert "unscaled.blocks.1.attention" in page
    assert "a table of pairs 2.450" in done.stdout
    assert re.search(r"^scaled writes:\nAlice ", done.stdout, re.M)
