"""The C++ workers of bench/peers: right on small problems, one sentence for every bad request.

  worker_test.py WORKER...          (poise_worker, and blas_worker where it was built)
In: the programs. Out: a line per failure; exit code 0 when there is none. Answers are compared with
the plain formula in Python's double arithmetic, derivatives with its differences.
Must not happen here: NumPy or a peer; only Python is needed.
"""

import array
import dataclasses
import math
import operator
import os
import pathlib
import random
import sys
import tempfile

import protocol
import tensor_file
from shapes import RESULTS, Shape

_SECONDS = 30
# Far above float32 rounding of these small problems, far below a wrong mask or scale.
_TOLERANCE = 1e-5
# Relative to 1 and the value: differences with this step are off by its square times the higher
# derivatives.
_STEP = 1e-3
_DERIVATIVE_TOLERANCE = 2e-4
_GRADIENT_OF = {"query": "dq", "key": "dk", "value": "dv"}
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
    for name, like in shape.inputs().items():
        extents = shape.extents(like)
        values[name] = array.array("f", (random.gauss(0, 1) for _ in range(math.prod(extents))))
        tensors[name] = ("F32", extents, values[name].tobytes())
    lengths = [shape.kv_len] * shape.batch
    if shape.padding:
        lengths = [random.randint(1, shape.kv_len) for _ in range(shape.batch)]
        tensors["lengths"] = ("I32", (shape.batch,), array.array("i", lengths).tobytes())
    path = os.path.join(folder, shape.name + ".safetensors")
    tensor_file.write(path, tensors)
    return path, values, lengths


def _row(shape, values, name, b, h, i):
    _, heads, length, _ = _bhld(shape, name)
    index = (b * heads + h) * length + i if shape.layout == "bhld" else (b * length + i) * heads + h
    return values[name][index * shape.head_dim:(index + 1) * shape.head_dim]


def _bhld(shape, name):
    like = (shape.inputs() | RESULTS[shape.work])[name]
    return dataclasses.replace(shape, layout="bhld").extents(like)


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
    request = shape.request(path, threads=1)
    return request | {"shape": request["shape"] | changes}


def _check(client, shape, path, folder):
    """Loads a problem and has it solved once; returns the answer's values, or a failure's text."""
    answer = client.ask(_load(shape, path), _SECONDS)
    if "ran" not in answer:
        return f"{shape.name}: {answer}"
    output = os.path.join(folder, "out.bin")
    answer = client.ask({"verb": "check", "output": output}, _SECONDS)
    if "seconds" not in answer:
        return f"{shape.name}: {answer}"
    return array.array("f", pathlib.Path(output).read_bytes())


def _answers_are_right(client, folder):
    for shape in SHAPES:
        path, values, lengths = _make(shape, folder)
        got = _check(client, shape, path, folder)
        if isinstance(got, str):
            yield got
            continue
        expected = _expected(shape, values, lengths)
        worst = max(abs(x - y) for x, y in zip(got, expected))
        if len(got) != len(expected) or not worst < _TOLERANCE:
            yield f"{shape.name}: off by {worst}, {len(got)} of {len(expected)} values"
        seconds = client.ask({"verb": "time", "repeats": 3}, _SECONDS).get("seconds")
        if not seconds or not seconds > 0:
            yield f"{shape.name}: no time, got {seconds}"


def _in_order(shape, values, name):
    """A tensor of the file in the order [B, H, L, D]."""
    batch, heads, length, _ = _bhld(shape, name)
    return [x for b in range(batch) for h in range(heads) for i in range(length)
            for x in _row(shape, values, name, b, h, i)]


def _dot(x, y):
    return sum(map(operator.mul, x, y))


def _moved(shape, values, lengths, *moves):
    """Attention with query, key and value moved by the sum of (step, {name: direction})."""
    at = dict(values)
    for step, direction in moves:
        for name, along in direction.items():
            at[name] = [x + step * u for x, u in zip(at[name], along)]
    return _expected(shape, at, lengths)


def _slope(of):
    """d/dt of(t) at 0, by central differences."""
    return (of(_STEP) - of(-_STEP)) / (2 * _STEP)


def _derivatives_of(shape, values, lengths, got):
    """Yields (what, value of the worker, value expected) for a work that is not forward.

    The oracle is forward alone: gradients are compared along a direction u, first derivatives as
    slopes of L = <dout, out>, second ones as mixed slopes of L along u and the problem's direction.
    """
    names = ("query", "key", "value")
    if "out" in got:
        yield from (("out", *pair) for pair in zip(got["out"], _expected(shape, values, lengths)))
    direction = {name: values[f"direction_{name}"] for name in names
                 if f"direction_{name}" in values}
    if direction:
        plus, minus = (_moved(shape, values, lengths, (step, direction))
                       for step in (_STEP, -_STEP))
        tangent = [(x - y) / (2 * _STEP) for x, y in zip(plus, minus)]
        for name in (name for name in ("tangent_out", "second_dout") if name in got):
            yield from ((name, *pair) for pair in zip(got[name], tangent))
    if "dout" not in values:
        return
    dout = _in_order(shape, values, "dout")
    for name in names:
        u = {name: [random.gauss(0, 1) for _ in values[name]]}
        in_order = _in_order(shape, u, name)
        for result, moves in ((_GRADIENT_OF[name], ()), (f"second_{name}", (direction,))):
            if result in got:
                def along_u(step, *more):
                    return _dot(dout, _moved(shape, values, lengths, (step, u), *more))

                slope = _slope(along_u) if not moves else _slope(
                    lambda t: _slope(lambda s, t=t: along_u(s, (t, direction))))
                yield result, _dot(got[result], in_order), slope


def _derivatives_are_right(client, folder):
    for work in (work for work in RESULTS if work != "forward"):
        for plain in SHAPES:
            shape = dataclasses.replace(plain, name=f"{work}_{plain.name}", work=work)
            path, values, lengths = _make(shape, folder)
            answer = _check(client, shape, path, folder)
            if isinstance(answer, str):
                yield answer
                continue
            got, begin = {}, 0
            for name in RESULTS[work]:
                end = begin + math.prod(_bhld(shape, name))
                got[name], begin = answer[begin:end], end
            if begin != len(answer):
                yield f"{shape.name}: {len(answer)} values, {begin} expected"
            bad = [f"{name} is {x}, expected {y}"
                   for name, x, y in _derivatives_of(shape, values, lengths, got)
                   if not abs(x - y) < _DERIVATIVE_TOLERANCE * (1 + abs(y))]
            if bad:
                yield f"{shape.name}: {bad[0]}"


def _derivatives_are_refused(client, folder):
    shape = dataclasses.replace(SHAPES[0], name="backward", work="backward")
    path, _, _ = _make(shape, folder)
    reason = client.ask(_load(shape, path), _SECONDS).get("refused", "")
    if "forward only" not in reason:
        yield f"backward: expected 'forward only', got '{reason}'"


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
        (_load(shape, path) | {"reads": [["dout", "query"]]}, "dout"),
        (_load(shape, path) | {"results": [["out", "lse"]]}, "lse"),
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
            has_derivatives = os.path.basename(worker).startswith("poise")
            for test in (_answers_are_right, _bad_requests_are_refused,
                         _derivatives_are_right if has_derivatives else _derivatives_are_refused):
                failures += [f"{os.path.basename(worker)}: {line}" for line in test(client, folder)]
            client.close()
    if len(sys.argv) < 2:
        failures.append("no worker named")
    print("\n".join(failures) or "every answer right, every bad request refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
