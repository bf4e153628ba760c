"""Everything bad raises ValueError or TypeError with one sentence, and writes nothing.

In: calls that are wrong in one way each. Out: the sentence, which names the argument. Must not
happen here: a crash, another exception, a warning in an exception's place.
"""

import numpy as np
import pytest

import poise

Q = np.ones((1, 4, 5, 8), np.float32)
K = np.ones((1, 2, 7, 8), np.float32)
MASK = np.ones((5, 7), bool)


@pytest.mark.parametrize("key, value, options, error, sentence", [
    (K[..., :7], K, {}, ValueError, r"^\[forward\] key: head_dim 7 differs from query head_dim 8"),
    (K.astype(np.float64), K, {}, TypeError, r"^\[forward\] key: "),
    (K[:, :, :6], K, {}, ValueError, r"^\[forward\] value: "),
    (K[:, [0, 1, 1]], K[:, [0, 1, 1]], {}, ValueError, r"3"),
    (K, K, {"mask": MASK.astype(np.int32)}, TypeError, r"mask"),
    (K, K, {"mask": np.ones((5, 6), bool)}, ValueError, r"mask.*\[5, 6\]"),
    (K, K, {"mask": np.ones((3, 1, 1, 5, 7), bool)}, ValueError, r"mask: shape \[3, 1, 1, 5, 7\]"),
    (K, K, {"bias": MASK}, TypeError, r"bias"),
    (K, K, {"scale": float("nan")}, ValueError, r"scale"),
    (K, K, {"scale": "big"}, TypeError, r"\[options\] scale: expected a number, got str"),
    (K, K, {"scale": [1.0, 2.0]}, ValueError, r"scale"),
    (K, K, {"softcap": -1}, ValueError, r"softcap"),
    (K, K, {"window": 4}, TypeError, r"window: expected a pair"),
    (K, K, {"window": (-2, 0)}, ValueError, r"window"),
    (K, K, {"window": (1.5, 0)}, TypeError, r"window: expected an integer, got float"),
    (K, K, {"causal": True}, ValueError, r"causal: True names no alignment"),
    (K, K, {"causal": "left"}, ValueError, r"causal: 'left', expected"),
    (K, K, {"causal": 2**70}, ValueError, r"causal: beyond 64 bits"),
    (K, K, {"kv_lengths": [8]}, ValueError, r"kv_lengths"),
    (K, K, {"kv_lengths": [1, 2]}, ValueError, r"kv_lengths"),
    (K, K, {"kv_lengths": np.array([1.0])}, TypeError, r"kv_lengths"),
    (K, K, {"kv_lengths": ["one"]}, TypeError, r"kv_lengths: expected an array or a list"),
    (K, K, {"kv_lengths": [1.9]}, TypeError, r"kv_lengths: .* a list of integers"),
    (K, K, {"q_lengths": [True]}, TypeError, r"q_lengths: .* a list of integers"),
    (K, K, {"q_lengths": [2**70]}, TypeError, r"q_lengths: .* a list of integers"),
    (K, K, {"diagonal": [0.5]}, TypeError, r"diagonal: .* a list of integers"),
    (K, K, {"sinks": [1.0]}, ValueError, r"sinks"),
    (K, K, {"sinks": np.zeros((1, 1, 1, 1, 4), np.float32)}, ValueError, r"5 axes"),
    (K, K, {"alibi_slopes": [float("inf")] * 4}, ValueError, r"alibi_slopes"),
    (K, K, {"dropout_p": 1.0}, ValueError, r"dropout"),
    (K, K, {"dropout_p": "half"}, TypeError, r"dropout_p: expected a number, got str"),
    (K, K, {"dropout_p": None}, TypeError, r"dropout_p: expected a number, got NoneType"),
    (K, K, {"dropout_seed": None}, TypeError, r"dropout_seed: expected an integer, got None"),
    (K, K, {"dropout_offset": None}, TypeError, r"dropout_offset: expected an integer, got None"),
    (K, K, {"dropout_seed": -1}, ValueError, r"dropout_seed: expected 0"),
    (K, K, {"dropout_seed": 1.5}, TypeError, r"dropout_seed: expected an integer, got float"),
    (K, K, {"threads": 0}, ValueError, r"threads: 0, expected 1 ... 4096"),
    (K, K, {"layout": "bldh"}, ValueError, r"layout: 'bldh'"),
    (K, K, {"out": np.empty((1, 4, 5, 7), np.float32)}, ValueError, r"out"),
    (K, K, {"out": np.empty((4, 5, 8), np.float32)}, ValueError, r"out: shape \[4, 5, 8\], exp"),
    (K, K, {"out": np.empty((1, 4, 5, 8))}, TypeError, r"out"),
    (K, K, {"out": Q}, ValueError, r"out"),
    (K, K, {"return_aux": True}, TypeError, r"return_aux: expected an AuxRequest, got bool"),
    (K[0, 0, 0], K, {}, ValueError, r"key: shape \[8\], expected at least two axes"),
])
def test_a_bad_argument_is_named(key, value, options, error, sentence):
    before = Q.copy()
    with pytest.raises(error, match=sentence):
        poise.attention(Q, key, value, **options)
    assert np.array_equal(Q, before)


def test_heads_share_keys_only_when_asked():
    with pytest.raises(ValueError, match=r"key: 2 heads do not broadcast with 4; enable_gqa=True"):
        poise.scaled_dot_product_attention(Q, K, K)


def test_two_ways_to_say_one_thing_are_refused():
    bias = np.zeros((5, 7), np.float32)
    with pytest.raises(ValueError, match="causal: given beside is_causal"):
        poise.scaled_dot_product_attention(Q, Q, Q, is_causal=True, causal="top_left")
    with pytest.raises(ValueError, match="attn_mask: floats add to the scores, and so does bias"):
        poise.scaled_dot_product_attention(Q, K, K, bias, enable_gqa=True, bias=bias)


def test_leading_axes_that_do_not_broadcast_are_refused():
    q = np.ones((2, 3, 4, 5, 8), np.float32)
    with pytest.raises(ValueError, match=r"key: leading extent 4 on axis 1 differs from 3"):
        poise.scaled_dot_product_attention(q, np.ones((2, 4, 4, 5, 8), np.float32), q)
    with pytest.raises(ValueError, match=r"out: leading extent 2 on axis 1, expected 3"):
        poise.attention(q, q, q, out=np.empty((2, 2, 4, 5, 8), np.float32))


def test_bad_statistics_requests_are_refused():
    with pytest.raises(ValueError, match="level 'most', expected 'off', 'max', 'core' or 'full'"):
        poise.AuxRequest(stats="most")
    with pytest.raises(TypeError, match="expected a bool, a level's name or a StatsRequest"):
        poise.AuxRequest(stats=3.5)
    with pytest.raises(ValueError, match="every"):
        poise.attention(Q, K, K, return_aux=poise.AuxRequest(stats=poise.StatsRequest(every=0)))
    with pytest.raises(ValueError):
        poise.Stats.from_json('{"schema": 99}')


def test_machine_functions_refuse_what_they_do_not_know():
    for bad in (0, -1, 5000):
        with pytest.raises(ValueError, match=f"threads: {bad}, expected 1 ... 4096"):
            poise.set_num_threads(bad)
    with pytest.raises(ValueError, match="mmx"):
        poise.set_isa("mmx")
    with pytest.raises(ValueError, match=r"\[explain\] shape: 2 numbers"):
        poise.explain((1, 2))
    for shape in ((1, 1, 1, 1, 1, 1.5), "123456", None):
        with pytest.raises(TypeError, match=r"\[explain\] shape: .*, expected six or seven int"):
            poise.explain(shape)
    with pytest.raises(TypeError, match=r"\[explain\] caussal: no such option; known are ali"):
        poise.explain((1, 1, 1, 1, 1, 1), caussal=True)
    with pytest.raises(TypeError, match=r"\[backward\] is_causal: no such option"):
        poise.backward(Q, Q, Q, Q, Q, is_causal=True)
    with pytest.raises(TypeError, match=r"\[report\] stats: NoneType, expected Stats"):
        poise.to_text(None)
    with pytest.raises(TypeError, match="dtype: 'int8'"):
        poise.explain((1, 1, 1, 1, 1, 1), dtype="int8")
