"""What a process sees: threads, the interpreter's lock, forks, signals, memory, imports, time.

In: calls, some in processes of their own. Out: how they behave beside each other. Must not happen
here: a limit on time that a busy machine would miss.
"""

import doctest
import importlib
import pkgutil
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import poise


@pytest.fixture(scope="module")
def long_call():
    """Arrays whose attention takes some hundred milliseconds."""
    x = np.random.default_rng(0).standard_normal((1, 4, 2048, 64), dtype=np.float32)
    return x, x, x


def run(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=300)


def test_threads_change_no_bit(long_call):
    assert (poise.attention(*long_call, threads=1).tobytes()
            == poise.attention(*long_call, threads=3).tobytes())


def test_the_number_of_threads():
    program = """
import poise, sys
assert "torch" not in sys.modules and "jax" not in sys.modules
{first}
print(poise.get_num_threads())
poise.set_num_threads(5)
print(poise.get_num_threads())
"""
    assert run(program.format(first=""), POISE_THREADS="3").stdout.split() == ["3", "5"]
    fake = 'import types; sys.modules["torch"] = t = types.ModuleType("torch")\n'
    fake += "t.get_num_threads = lambda: 7"
    without = {k: v for k, v in os.environ.items() if k != "POISE_THREADS"}
    done = subprocess.run([sys.executable, "-c", program.format(first=fake)], capture_output=True,
                          text=True, env=without, timeout=300)
    assert done.stdout.split() == ["7", "5"], done.stderr
    half = done.args[:2] + [program.format(first='sys.modules["torch"] = sys')]
    done = subprocess.run(half, capture_output=True, text=True, env=without, timeout=300)
    assert int(done.stdout.split()[0]) >= 1, done.stderr


def test_the_lock_is_released_while_computing(long_call):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    worker = threading.Thread(target=tick)
    worker.start()
    begin = time.perf_counter()
    for _ in range(3):  # no tick falls into the middle of a call that holds the lock
        poise.attention(*long_call, threads=1)
    end = time.perf_counter()
    stop.set()
    worker.join()
    third = (end - begin) / 3
    for call in range(3):
        first = begin + third * (call + 0.3)
        assert any(first < t < first + 0.4 * third for t in ticks)


def test_calls_from_several_threads_agree(long_call):
    expected, results = poise.attention(*long_call), []
    workers = [threading.Thread(target=lambda: results.append(poise.attention(*long_call)))
               for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 4 and all(r.tobytes() == expected.tobytes() for r in results)


def test_a_forked_child_computes():
    program = """
import numpy as np, os, poise
x = np.random.default_rng(0).standard_normal((1, 4, 1024, 64), dtype=np.float32)
expected = poise.attention(x, x, x, threads=2)
child = os.fork()
same = poise.attention(x, x, x, threads=2).tobytes() == expected.tobytes()
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(program)
    assert done.stdout.split() == ["True", "0"], done.stderr


def test_ctrl_c_is_honoured_after_the_call():
    # A shell's background jobs, and their children, are started with SIGINT ignored.
    program = """
import numpy as np, poise, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.ones((1, 8, 4096, 64), np.float32)
print("ready", flush=True)
while True:
    poise.attention(x, x, x, threads=1)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
        assert "KeyboardInterrupt" in errors and child.returncode != 0
    finally:
        child.kill()
        child.wait()


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_hundred_thousand_calls_leak_nothing(qkv):
    q, k, v = qkv((1,), 4, 4, 16, 16, 8)
    mask = np.ones((16, 16), bool)
    request = poise.AuxRequest(lse=True, stats=True)

    def calls(times):
        for _ in range(times):
            poise.scaled_dot_product_attention(q, k, v, mask, return_aux=request, kv_lengths=[16])
            try:
                poise.scaled_dot_product_attention(q, k, v, mask, scale="wrong")
            except TypeError:
                pass

    calls(5000)
    before = resident_bytes()
    calls(50_000)
    assert resident_bytes() - before < 4 << 20  # 80 bytes a call would be seen


def test_importing_brings_no_framework():
    program = "import poise, sys; print([m for m in ('torch', 'jax', 'transformers', " \
              "'tensorboard', 'onnx') if m in sys.modules])"
    assert run(program).stdout.strip() == "[]"


def test_the_machine_and_the_plan_are_told():
    assert poise.active_isa() in poise.available_isas()
    assert poise.available_isas()[-1] == "scalar"
    here = poise.active_isa()
    poise.set_isa("scalar")
    try:
        assert poise.active_isa() == "scalar"
    finally:
        poise.set_isa("")
    assert poise.active_isa() == here
    text = poise.explain((1, 8, 2, 64, 64, 32, 16), dtype="bfloat16", causal="top_left")
    assert "flops" in text


# Modules that import a framework have their examples run by the tests of that framework.
def modules():
    names = [f"poise.{m.name}" for m in pkgutil.iter_modules(poise.__path__)
             if m.name not in ("torch", "hf", "onnx") and not m.name.startswith("_")]
    return ["poise", *names]


@pytest.mark.parametrize("name", modules())
def test_the_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0 and result.attempted > 0


def test_every_public_name_is_documented():
    for name in poise.__all__:
        thing = getattr(poise, name)
        assert name.startswith("__") or thing.__doc__, name
