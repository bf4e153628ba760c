"""Time that a call from Python adds to the library's own.

In: the smallest shape, (B, Hq, Hkv, Lq, Lk, D) = (1, 4, 4, 16, 16, 8) in float32, without a batch:
all that Python adds, and the library's checks; and a larger one, with and without statistics.
Out: microseconds of the thread, and a ratio. Must not happen here: a limit that depends on how
fast the library computes.
"""

import time

import poise

LIMIT_US = 15


def microseconds(function, times=2000):
    begin = time.thread_time_ns()
    for _ in range(times):
        function()
    return (time.thread_time_ns() - begin) / times / 1000


def test_a_call_adds_at_most_15_us(qkv):
    q, k, v = (x[:0] for x in qkv((1,), 4, 4, 16, 16, 8))
    best = min(microseconds(lambda: poise.scaled_dot_product_attention(q, k, v))
               for _ in range(25))
    print(f"{best:.2f} us")
    assert best < LIMIT_US


def test_a_call_that_asks_for_no_statistics_pays_for_none(qkv):
    q, k, v = qkv((1,), 8, 8, 256, 256, 32)
    core = poise.AuxRequest(stats="core")  # adds about a third to such a call
    plain = measured = float("inf")
    for _ in range(60):  # in turn, and the fastest of each: the machine may be busy
        plain = min(plain, microseconds(lambda: poise.attention(q, k, v, threads=1), 1))
        measured = min(measured, microseconds(
            lambda: poise.attention(q, k, v, return_aux=core, threads=1), 1))
    print(f"{plain:.0f} and {measured:.0f} us")
    assert measured > 1.1 * plain
