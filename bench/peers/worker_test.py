"""The C++ workers of bench/peers: right on small problems, one sentence for every bad request.

  worker_test.py WORKER...          (poise_worker, and blas_worker where it was built)
In: the programs. Out: a line per failure; exit code 0 when there is none. Answers are compared with
the plain formula in Python's double arithmetic.
Must not happen here: NumPy or a peer; only Python is needed.
"""

import array
import dataclasses
import math
import os
import pathlib
import random
import sys
import tempfile

import protocol
import tensor_file
from shapes import Shape

_SECONDS = 30
# Far above float32 rounding of these small problems, far below a wrong mask or scale.
_TOLERANCE = 1e-5
SHAPES = (
    Shape("full", 1, 4, 4, 16, 16, 8),
    Shape("grouped_causal", 2, 4, 2, 5, 9, 8, causal=True),
    Shape("window", 1, 2, 2, 12, 12, 4, causal=True, window=3),
    Shape("padded", 3, 2, 2, 6, 6, 4, padding=True),
    Shape("strided", 2, 4, 2, 7, 7, 8, causal=True, layout="blhd"),
)


def _make(shape, folder):
    """Writes random inputs; returns path, {name: values}, lengths."""
    values, tensors = {}, {}
    for name, heads, length in (("query", shape.q_heads, shape.q_len),
                                ("key", shape.kv_heads, shape.kv_len),
                                ("value", shape.kv_heads, shape.kv_len)):
        count = shape.batch * heads * length * shape.head_dim
        values[name] = array.array("f", (random.gauss(0, 1) for _ in range(count)))
        axes = (heads, length) if shape.layout == "bhld" else (length, heads)
        tensors[name] = ("F32", (shape.batch, *axes, shape.head_dim), values[name].tobytes())
    lengths = [shape.kv_len] * shape.batch
    if shape.padding:
        lengths = [random.randint(1, shape.kv_len) for _ in range(shape.batch)]
        tensors["lengths"] = ("I32", (shape.batch,), array.array("i", lengths).tobytes())
    path = os.path.join(folder, shape.name + ".safetensors")
    tensor_file.write(path, tensors)
    return path, values, lengths


def _row(shape, values, name, b, h, i):
    heads = shape.q_heads if name == "query" else shape.kv_heads
    length = shape.q_len if name == "query" else shape.kv_len
    index = (b * heads + h) * length + i if shape.layout == "bhld" else (b * length + i) * heads + h
    return values[name][index * shape.head_dim:(index + 1) * shape.head_dim]


def _expected(shape, values, lengths):
    """Attention by its definition, in the order [B, Hq, Lq, D]."""
    out = []
    for b in range(shape.batch):
        for h in range(shape.q_heads):
            kv_head = h // shape.group
            for i in range(shape.q_len):
                query, weights = _row(shape, values, "query", b, h, i), {}
                last = i + shape.kv_len - shape.q_len
                for j in range(lengths[b]):
                    hidden = shape.causal and (
                        j > last or (shape.window and j <= last - shape.window))
                    if not hidden:
                        key = _row(shape, values, "key", b, kv_head, j)
                        dot = sum(x * y for x, y in zip(query, key))
                        weights[j] = math.exp(dot / math.sqrt(shape.head_dim))
                total = sum(weights.values())
                rows = [(w / total, _row(shape, values, "value", b, kv_head, j))
                        for j, w in weights.items()]
                out += [sum(w * row[c] for w, row in rows) for c in range(shape.head_dim)]
    return out


def _load(shape, path, **changes):
    fields = dataclasses.asdict(shape) | changes
    return {"verb": "load", "shape": fields, "inputs": path, "threads": 1}


def _answers_are_right(client, folder):
    for shape in SHAPES:
        path, values, lengths = _make(shape, folder)
        answer = client.ask(_load(shape, path), _SECONDS)
        if "ran" not in answer:
            yield f"{shape.name}: {answer}"
            continue
        output = os.path.join(folder, "out.bin")
        client.ask({"verb": "check", "output": output}, _SECONDS)
        got = array.array("f", pathlib.Path(output).read_bytes())
        expected = _expected(shape, values, lengths)
        worst = max(abs(x - y) for x, y in zip(got, expected))
        if len(got) != len(expected) or not worst < _TOLERANCE:
            yield f"{shape.name}: off by {worst}, {len(got)} of {len(expected)} values"
        seconds = client.ask({"verb": "time", "repeats": 3}, _SECONDS).get("seconds")
        if not seconds or not seconds > 0:
            yield f"{shape.name}: no time, got {seconds}"


def _bad_requests_are_refused(client, folder):
    shape = SHAPES[0]
    path, _, _ = _make(shape, folder)
    not_tensors = os.path.join(folder, "not_tensors")
    pathlib.Path(not_tensors).write_text("hello", encoding="utf-8")
    cases = [  # request, a word of its refusal
        ([], "object"),
        ({"verb": "dance"}, "dance"),
        ({"shape": {}}, "verb"),
        ({"verb": "load", "shape": {}, "inputs": path, "threads": 1}, "batch"),
        (_load(shape, path, batch=0), "batch"),
        (_load(shape, path, head_dim="8"), "head_dim"),
        (_load(shape, path, causal=1), "causal"),
        (_load(shape, path, layout="dlhb"), "dlhb"),
        (_load(shape, path, kv_len=17), "key"),
        (_load(shape, path, padding=True), "lengths"),
        (_load(shape, path + "x"), "safetensorsx"),
        (_load(shape, not_tensors), "not_tensors"),
        ({"verb": "time", "repeats": 1}, "loaded"),
        ({"verb": "check", "output": os.path.join(folder, "never.bin")}, "loaded"),
    ]
    for request, word in cases:
        reason = client.ask(request, _SECONDS).get("refused", "")
        if word not in reason or "\n" in reason:
            yield f"{request}: expected a sentence with '{word}', got '{reason}'"
    client.ask(_load(shape, path), _SECONDS)
    for request, word in (({"verb": "time", "repeats": 0}, "repeats"),
                          ({"verb": "check", "output": os.path.join(folder, "no", "x")}, "output")):
        reason = client.ask(request, _SECONDS).get("refused", "")
        if word not in reason:
            yield f"{request}: expected a sentence with '{word}', got '{reason}'"


def main():
    random.seed(7)
    failures = []
    cores = os.sched_getaffinity(0)
    for worker in filter(None, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            client = protocol.Client([worker], cores, {}, os.path.join(folder, "log"))
            versions = client.ask({"verb": "hello"}, _SECONDS).get("versions")
            if not versions:
                failures.append(f"{worker}: no versions")
            for test in (_answers_are_right, _bad_requests_are_refused):
                failures += [f"{os.path.basename(worker)}: {line}" for line in test(client, folder)]
            client.close()
    if len(sys.argv) < 2:
        failures.append("no worker named")
    print("\n".join(failures) or "every answer right, every bad request refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
