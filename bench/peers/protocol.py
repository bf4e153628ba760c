"""How the driver and a contestant talk: one JSON object per line, through pipes.

  {"verb": "hello"}                                     -> {"versions": {...}}
  {"verb": "load", "shape": {...}, "inputs": path, "threads": n, "reads": [[name, like], ...],
   "results": [[name, like], ...]}                      -> {"ran": what will run} | {"refused": why}
  {"verb": "check", "output": path}                     -> {"seconds": of one call}; its results
                                                           are written to path one after the other
                                                           as plain float32 [B, H, L, D]
  {"verb": "time", "repeats": n}                        -> {"seconds": mean of n calls in a row}
Of load: `reads` are the tensors of the file beside query, key and value, `results` what is handed
out, in order; `like` is query, key or value, whose extents it has (shapes.py, Shape.request).
A request that cannot be carried out is answered {"refused": one sentence}; end of input ends the
contestant. The clock stands in the contestant, around the calls and nothing else.

`Client` is the driver's end, `serve` that of a contestant written in Python; worker.h is the end of
those in C++. Must not happen here: NumPy, any peer, a thread.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time


class CannotExpress(Exception):
    """A contestant has no way to state this problem; the text says why in one sentence."""


class Died(Exception):
    """A contestant ended or stayed silent; the text says which."""


# linux/prctl.h: the signal a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


class Client:
    """A contestant's process, pinned to `cores`, stopped while it is not asked anything.

    Stopping (SIGSTOP) lets every thread pool keep its own way of waiting: a pool that spins does so
    in its own turn and cannot take a core from the next contestant.
    """

    def __init__(self, command, cores, environment, log):
        libc = ctypes.CDLL(None)

        def in_child():
            os.sched_setaffinity(0, cores)
            # A stopped process would outlive a driver that was killed.
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        with open(log, "ab") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream,
                preexec_fn=in_child, env={**os.environ, **environment})
        self._pending = b""

    def ask(self, request, timeout_seconds):
        """Sends one request and returns the answer. Raises Died."""
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(time.monotonic() + timeout_seconds)
        except BrokenPipeError:
            line = b""
        if not line:
            raise Died(f"the process ended with status {self._process.wait()}")
        self._process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def _line(self, deadline):
        """One line, b"" at the end of the stream."""
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([pipe], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise Died("no answer in time")
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return b""
            self._pending += piece
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def reset_peak(self):
        """Makes what the process holds now its peak; returns that. Raises OSError without /proc."""
        with open(f"/proc/{self._process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # proc(5): reset the high water mark of resident memory
        return self._status_bytes("VmRSS")

    def peak_bytes(self):
        """The largest resident memory since reset_peak()."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, field):
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name == field:
                    return int(value.split()[0]) << 10
        raise OSError(f"/proc has no {field} of the process")

    def close(self):
        """Ends the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass  # unsent bytes of a request that the process did not live to read


class Prepared:
    """One problem, ready to be run: what a contestant's load() returns."""

    def __init__(self, call, output, ran):
        self.call = call  # does what is asked once, to its end
        # Returns the result of the last call as a float32 array [B, H, L, D], several flat and one
        # after the other.
        self.output = output
        self.ran = ran  # the operator and backend that run, in a few words


def one_sentence(error):
    """An exception in one line: the first that says something, cut to a readable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    if not isinstance(error, CannotExpress):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 240 else text[:237] + "..."


def _time(call, repeats):
    start = time.perf_counter_ns()
    for _ in range(repeats):
        call()
    return (time.perf_counter_ns() - start) * 1e-9 / repeats


def serve(versions, load):
    """Answers requests until the input ends. load(shape, path, threads) returns a Prepared."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    prepared = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            verb = request["verb"]
            if verb == "hello":
                answer = {"versions": versions}
            elif verb == "load":
                prepared = None  # releases the memory of the problem before
                prepared = load(request["shape"], request["inputs"], request["threads"])
                answer = {"ran": prepared.ran}
            elif verb == "check":
                answer = {"seconds": _time(prepared.call, 1)}
                prepared.output().tofile(request["output"])
            elif verb == "time":
                answer = {"seconds": _time(prepared.call, request["repeats"])}
            else:
                raise ValueError(f"unknown verb '{verb}'")
        except Exception as error:  # whatever a library throws is its reason for not taking part
            answer = {"refused": one_sentence(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
