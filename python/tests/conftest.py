"""Fixtures of the Python tests.

In: nothing. Out: random arrays by shape, and the frameworks that are there. Must not happen here: a
test that passes because what it needs is missing; it is skipped, and says so.
"""

import numpy as np
import pytest


@pytest.fixture
def qkv():
    """qkv(lead, Hq, Hkv, Lq, Lk, D, Dv=None, dtype=float32): three normal arrays, seeded."""

    def make(lead, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim=None, dtype=np.float32,
             seed=0):
        rng = np.random.default_rng(seed)
        shapes = ((q_heads, q_len, head_dim), (kv_heads, kv_len, head_dim),
                  (kv_heads, kv_len, value_dim or head_dim))
        return tuple(rng.standard_normal((*lead, *shape)).astype(dtype) for shape in shapes)

    return make


@pytest.fixture
def torch():
    return pytest.importorskip("torch")
