"""What a call holds at its peak beyond what was there before it.

In: a contestant's command, a shape and its inputs. Out: bytes of resident memory: results, what is
saved between forward and backward where both are part of the call, and workspace; not the inputs,
and not what a forward before the clock has left. Each figure is taken in a fresh process that has
solved a small problem of the same kind before, so that code, thread pools and their stacks are in
memory already. Must not happen here: a time; the allocator is told to give everything back at once.
"""

import dataclasses

import problem
import protocol

_SECONDS = 240
_WARM_LENGTH = 16
# mallopt(3): blocks of 64 KiB and more come from the system and go back to it when freed. By
# default a call may reuse pages that loading has left, and they would not be seen.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def warm_shape(shape):
    """A small problem that takes the same way through the code."""
    return dataclasses.replace(shape, name="warm_" + shape.name, q_len=_WARM_LENGTH,
                               kv_len=_WARM_LENGTH)


def added_bytes(command, shape, inputs, threads, cores, environment, folder):
    """The figure, or None where the contestant or /proc does not tell."""
    warm = warm_shape(shape)
    client = protocol.Client(command, cores, environment | _ENVIRONMENT, folder / "memory.log")
    try:
        client.ask(warm.request(problem.make(warm, folder), threads), _SECONDS)
        client.ask({"verb": "time", "repeats": 2}, _SECONDS)
        client.ask(shape.request(inputs, threads), _SECONDS)
        before = client.reset_peak()
        if "seconds" not in client.ask({"verb": "time", "repeats": 1}, _SECONDS):
            return None
        return client.peak_bytes() - before
    except (protocol.Died, OSError):
        return None
    finally:
        client.close()
