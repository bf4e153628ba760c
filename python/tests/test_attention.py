"""Values: every option of the two attention functions against the float64 reference.

In: seeded arrays of all dtypes, layouts and numbers of leading axes. Out: agreement within the
rounding of the dtype. Must not happen here: a tolerance wider than the dtype's.
"""

import ml_dtypes
import numpy as np
import pytest
import reference

import poise

BF16 = ml_dtypes.bfloat16
TOLERANCE = {np.float64: 1e-13, np.float32: 2e-6, np.float16: 2e-3, BF16: 1.6e-2}


def assert_close(result, expected, dtype):
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(
        np.asarray(result, np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, BF16])
@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right", 3, -2])
def test_every_dtype_and_alignment_agrees_with_the_definition(qkv, dtype, causal):
    q, k, v = qkv((2,), 4, 2, 9, 13, 24, 16, dtype)
    out = poise.attention(q, k, v, causal=causal)
    assert out.dtype == q.dtype
    assert_close(out, reference.attention(q, k, v, causal=causal)[0], dtype)


@pytest.mark.parametrize("options", [
    {"scale": 0.3}, {"scale": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}, {"scale": [0, 1, -1, 2]},
    {"softcap": 2.0}, {"window": (3, 0)}, {"window": (2, -1), "causal": "top_left"},
    {"sinks": [0.5, -1, 2, -np.inf]}, {"kv_lengths": [5, 13]},
    {"kv_lengths": np.array([1, 0], np.int32), "causal": "bottom_right"},
    {"alibi_slopes": [0.5, 0, -0.25, 1.5]},
    {"diagonal": 2, "window": (1, 1)}, {"diagonal": [0, 4], "window": (1, 1)},
], ids=str)
def test_every_option_agrees_with_the_definition(qkv, options):
    q, k, v = qkv((2,), 4, 2, 9, 13, 16)
    expected, lse, weights = reference.attention(q, k, v, **options)
    request = poise.AuxRequest(lse=True, weights=True)
    out, aux = poise.attention(q, k, v, return_aux=request, **options)
    assert_close(out, expected, np.float32)
    assert_close(aux.lse, lse, np.float32)
    assert_close(aux.weights, weights, np.float32)
    same = poise.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    assert same.tobytes() == out.tobytes()


@pytest.mark.parametrize("shape", [(9, 13), (4, 1, 13), (2, 1, 9, 13), (2, 4, 9, 13), (1,), (13,)])
def test_masks_and_biases_broadcast_from_the_right(qkv, shape):
    rng = np.random.default_rng(1)
    q, k, v = qkv((2,), 4, 4, 9, 13, 16)
    mask = rng.random(shape) < 0.7
    bias = rng.standard_normal(shape).astype(np.float32)
    assert_close(poise.scaled_dot_product_attention(q, k, v, mask),
                 reference.attention(q, k, v, mask=mask)[0], np.float32)
    assert_close(poise.scaled_dot_product_attention(q, k, v, bias),
                 reference.attention(q, k, v, bias=bias)[0], np.float32)
    assert_close(poise.scaled_dot_product_attention(q, k, v, mask, bias=bias),
                 reference.attention(q, k, v, mask=mask, bias=bias)[0], np.float32)


def test_a_mask_and_is_causal_intersect(qkv):
    q, k, v = qkv((2,), 4, 4, 12, 12, 16)
    mask = np.random.default_rng(2).random((12, 12)) < 0.7
    both = poise.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
    assert_close(both, reference.attention(q, k, v, mask=mask & np.tri(12, dtype=bool))[0],
                 np.float32)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (2, 0, 3), (1, 1, 1, 2)])
def test_any_number_of_leading_axes(qkv, lead):
    q, k, v = qkv(lead, 4, 4, 5, 7, 8)
    out, aux = poise.scaled_dot_product_attention(
        q, k, v, return_aux=poise.AuxRequest(lse=True, weights=True))
    expected, lse, weights = reference.attention(q, k, v)
    assert out.shape == expected.shape and aux.lse.shape == lse.shape
    assert_close(out, expected, np.float32)
    assert_close(aux.lse, lse, np.float32)
    assert_close(aux.weights, weights, np.float32)


def test_two_axes_are_one_head(qkv):
    q, k, v = (x[0] for x in qkv((), 1, 1, 5, 7, 8))
    out, aux = poise.scaled_dot_product_attention(q, k, v, return_aux=poise.AuxRequest(lse=True))
    assert out.shape == (5, 8) and aux.lse.shape == (5,)
    assert_close(out, reference.attention(q[None], k[None], v[None])[0][0], np.float32)


def test_leading_axes_that_no_stride_joins_are_walked(qkv):
    q, k, v = qkv((4, 6), 2, 2, 5, 7, 8)
    q, k = q[::2, 1:4], k.transpose(1, 0, 2, 3, 4)[:2, :3]
    v = v[:2, ::2]
    mask = np.random.default_rng(3).random((2, 1, 1, 5, 7)) < 0.7
    lengths = np.array([7, 3, 0, 5, 1, 2])
    out, aux = poise.scaled_dot_product_attention(
        q, k, v, mask, kv_lengths=lengths, return_aux=poise.AuxRequest(lse=True, stats="full"))
    expected, lse, _ = reference.attention(q, k, v, mask=mask, kv_lengths=lengths)
    assert_close(out, expected, np.float32)
    assert_close(aux.lse, lse, np.float32)
    flat = [np.ascontiguousarray(x).reshape(6, *x.shape[2:]) for x in (q, k, v)]
    once, whole = poise.attention(
        *flat, mask=np.broadcast_to(mask, (2, 3, 2, 5, 7)).reshape(6, 2, 5, 7), kv_lengths=lengths,
        return_aux=poise.AuxRequest(stats="full"))
    assert once.tobytes() == out.tobytes()
    assert list(whole.stats.rows) == list(aux.stats.rows)
    np.testing.assert_allclose(whole.stats.entropy, aux.stats.entropy, rtol=1e-12)


def test_leading_axes_and_heads_broadcast(qkv):
    q, _, _ = qkv((2, 1), 4, 4, 5, 7, 8)
    _, k, _ = qkv((1, 3), 4, 1, 5, 7, 8, seed=1)
    _, _, v = qkv((3,), 4, 1, 5, 7, 8, seed=2)
    out = poise.scaled_dot_product_attention(q, k, v)
    assert out.shape == (2, 3, 4, 5, 8)
    assert_close(out, reference.attention(q, k, v)[0], np.float32)
    one_query = poise.scaled_dot_product_attention(q[:, :, :1], np.repeat(k, 4, 2), v)
    assert_close(one_query, reference.attention(np.repeat(q[:, :, :1], 4, 2), k, v)[0], np.float32)


def test_first_nonfinite_row_counts_over_all_batches(qkv):
    q, k, v = qkv((4, 4), 1, 1, 5, 7, 8)
    q, k, v = q[:, ::2], k[:, ::2], v[:, ::2]
    q[1, 1, 0, 2, 0] = np.nan
    _, aux = poise.scaled_dot_product_attention(q, k, v, return_aux=poise.AuxRequest(stats=True))
    assert aux.stats.first_nonfinite_row[0] == (1 * 2 + 1) * 5 + 2


def test_blhd_is_bhld_with_two_axes_exchanged(qkv):
    q, k, v = qkv((2,), 4, 2, 5, 7, 8)
    expected = poise.attention(q, k, v, causal="bottom_right")
    turned = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    out, aux = poise.attention(*turned, causal="bottom_right", layout="blhd",
                               return_aux=poise.AuxRequest(lse=True))
    assert out.flags.c_contiguous and aux.lse.shape == (2, 4, 5)
    assert out.transpose(0, 2, 1, 3).tobytes() == expected.tobytes()
    # A view of such memory gives a result with the query's order in memory.
    seen = poise.attention(*(x.transpose(0, 2, 1, 3) for x in turned), causal="bottom_right")
    assert seen.tobytes() == expected.tobytes() and seen.transpose(0, 2, 1, 3).flags.c_contiguous


def test_dropout_takes_its_seed_from_numpy_and_repeats_with_it(qkv):
    q, k, v = qkv((2,), 4, 4, 32, 32, 8)
    np.random.seed(5)
    first = poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    second = poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    np.random.seed(5)
    again = poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert first.tobytes() == again.tobytes() and first.tobytes() != second.tobytes()
    given = poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5, dropout_seed=9)
    named = poise.attention(q, k, v, dropout_p=0.5, dropout_seed=9)
    assert given.tobytes() == named.tobytes()
    _, aux = poise.attention(q, k, v, dropout_p=0.25, dropout_seed=9,
                             return_aux=poise.AuxRequest(weights=True))
    assert abs((aux.weights == 0).mean() - 0.25) < 0.02


def test_is_causal_warns_once_when_lengths_differ(qkv):
    q, k, v = qkv((1,), 1, 1, 3, 5, 4)
    poise.functional._warned_of_alignment = False
    with pytest.warns(UserWarning, match='causal="bottom_right"') as caught:
        poise.scaled_dot_product_attention(q, k, v, is_causal=True)
        poise.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert len(caught) == 1 and caught[0].filename == __file__
