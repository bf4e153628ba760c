"""Gradients: against differences of the float64 call, and against torch's autograd where it is.

In: seeded arrays and every gradient that backward() hands out. Out: agreement. Must not happen
here: the library's own backward as its own yardstick.
"""

import numpy as np
import pytest

import poise

STATE = poise.AuxRequest(state=True, lse=True)
H = 1e-6


def loss(arrays, dout, dlse, **options):
    out, aux = poise.attention(*arrays, return_aux=STATE, **options)
    return float((out * dout).sum() + (aux.lse * dlse).sum())


def difference(function, x, direction):
    return (function(x + H * direction) - function(x - H * direction)) / (2 * H)


def test_every_gradient_is_the_slope_of_the_call(qkv):
    rng = np.random.default_rng(3)
    q, k, v = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64)
    options = {"bias": rng.standard_normal((4, 1, 7)), "sinks": rng.standard_normal(4),
               "alibi_slopes": rng.random(4), "scale": rng.random(4), "softcap": 3.0,
               "causal": "bottom_right"}
    out, aux = poise.attention(q, k, v, return_aux=STATE, **options)
    dout, dlse = rng.standard_normal(out.shape), rng.standard_normal(aux.lse.shape)
    got = poise.backward(q, k, v, out, dout, row_max=aux.row_max, row_sum=aux.row_sum, dlse=dlse,
                         dbias=True, dsinks=True, dscale=True, dslopes=True, **options)
    arrays = {"dq": q, "dk": k, "dv": v}
    for position, (name, x) in enumerate(arrays.items()):
        direction = rng.standard_normal(x.shape)

        def moved(y, position=position):
            given = [q, k, v]
            given[position] = y
            return loss(given, dout, dlse, **options)

        slope = difference(moved, x, direction)
        assert slope == pytest.approx((getattr(got, name) * direction).sum(), rel=1e-6, abs=1e-7)
    for name, option in (("dbias", "bias"), ("dsinks", "sinks"), ("dslopes", "alibi_slopes"),
                         ("dscale", "scale")):
        x = options[option]
        direction = rng.standard_normal(x.shape)
        slope = difference(
            lambda y, option=option: loss((q, k, v), dout, dlse, **(options | {option: y})), x,
            direction)
        assert getattr(got, name).shape == x.shape
        assert slope == pytest.approx((getattr(got, name) * direction).sum(), rel=1e-6, abs=1e-7)
    by_lse = poise.backward(q, k, v, out, dout, lse=aux.lse, dlse=dlse, dq=False, **options)
    assert by_lse.dq is None and by_lse.dbias is None
    np.testing.assert_allclose(by_lse.dk, got.dk, rtol=1e-10, atol=1e-12)


def test_a_direction_moves_out_as_a_difference_does(qkv):
    q, k, v = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64)
    tq, tk, tv = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64, seed=1)
    out, aux = poise.attention(q, k, v, return_aux=STATE, causal="bottom_right")
    moved, lse_moved = poise.jvp(
        q, k, v, out, query_tangent=tq, key_tangent=tk, value_tangent=tv, row_max=aux.row_max,
        row_sum=aux.row_sum, causal="bottom_right")
    ahead, aux_ahead = poise.attention(q + H * tq, k + H * tk, v + H * tv, return_aux=STATE,
                                       causal="bottom_right")
    behind, aux_behind = poise.attention(q - H * tq, k - H * tk, v - H * tv, return_aux=STATE,
                                         causal="bottom_right")
    np.testing.assert_allclose(moved, (ahead - behind) / (2 * H), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(lse_moved, (aux_ahead.lse - aux_behind.lse) / (2 * H), rtol=1e-6,
                               atol=1e-7)


def test_second_gradients_are_the_slope_of_the_first(qkv):
    q, k, v = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64)
    ddq, ddk, ddv = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64, seed=1)
    dout = qkv((2,), 4, 2, 5, 7, 8, dtype=np.float64, seed=2)[0]

    def first(q, k, v, dout):
        out, aux = poise.attention(q, k, v, return_aux=STATE)
        g = poise.backward(q, k, v, out, dout, row_max=aux.row_max, row_sum=aux.row_sum)
        return float((g.dq * ddq).sum() + (g.dk * ddk).sum() + (g.dv * ddv).sum())

    out, aux = poise.attention(q, k, v, return_aux=STATE)
    second = poise.double_backward(q, k, v, out, dout, ddq=ddq, ddk=ddk, ddv=ddv,
                                   row_max=aux.row_max, row_sum=aux.row_sum)
    assert second[4] is None
    given = [q, k, v, dout]
    for position in range(4):
        direction = np.random.default_rng(position).standard_normal(given[position].shape)

        def moved(y, position=position):
            return first(*(y if i == position else x for i, x in enumerate(given)))

        slope = difference(moved, given[position], direction)
        assert slope == pytest.approx((second[position] * direction).sum(), rel=1e-5, abs=1e-6)


def test_leading_axes_and_layouts_give_the_same_bits(qkv):
    q, k, v = qkv((2, 3), 4, 2, 5, 7, 8)
    flat = [x.reshape(6, *x.shape[2:]) for x in (q, k, v)]
    out, aux = poise.attention(*flat, return_aux=STATE)
    dout = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
    expected = poise.backward(*flat, out, dout, row_max=aux.row_max, row_sum=aux.row_sum)

    def unfold(x):
        return x.reshape(2, 3, *x.shape[1:])

    turned = [np.asfortranarray(x) for x in (q, k, v)]
    got = poise.backward(*turned, unfold(out), unfold(dout), row_max=unfold(aux.row_max),
                         row_sum=unfold(aux.row_sum))
    for name in ("dq", "dk", "dv"):
        assert np.array_equal(getattr(got, name), unfold(getattr(expected, name)))
    with pytest.raises(ValueError, match="sums over the batch"):
        poise.backward(*turned, unfold(out), unfold(dout), lse=unfold(aux.row_max), dbias=(5, 7))
    blhd = [x.transpose(0, 2, 1, 3) for x in (*flat, out, dout)]
    again = poise.backward(*blhd, row_max=aux.row_max, row_sum=aux.row_sum, layout="blhd")
    assert np.array_equal(again.dk.transpose(0, 2, 1, 3), expected.dk)


def test_what_backward_refuses(qkv):
    q, k, v = qkv((2,), 4, 2, 5, 7, 8)
    out, aux = poise.attention(q, k, v, return_aux=STATE)
    with pytest.raises(ValueError, match=r"\[backward\] "):
        poise.backward(q, k, v, out, out)
    with pytest.raises(TypeError, match=r"\[backward\] dout: None"):
        poise.backward(q, k, v, out, None, lse=aux.lse)
    with pytest.raises(ValueError, match=r"\[backward\] lse: shape \[4, 5\], expected 3 axes"):
        poise.backward(q, k, v, out, out, lse=aux.lse[0])
    with pytest.raises(ValueError, match="dbias: True without a bias"):
        poise.backward(q, k, v, out, out, lse=aux.lse, dbias=True)
    with pytest.raises(ValueError, match="dslopes: the call has no alibi_slopes"):
        poise.backward(q, k, v, out, out, lse=aux.lse, dslopes=True)
    with pytest.raises(TypeError, match="stats: expected a poise.Stats"):
        poise.backward(q, k, v, out, out, lse=aux.lse, stats="core")
    with pytest.raises(TypeError):
        poise.jvp(*(x.astype(np.float16) for x in (q, k, v, out)), lse=aux.lse)


def test_agrees_with_torchs_autograd(torch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 9, 16, requires_grad=True) for _ in range(3))
    bias = torch.randn(4, 9, 9, requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias)
    dout = torch.randn_like(out)
    expected = torch.autograd.grad(out, (q, k, v, bias), dout)
    q, k, v, bias = (x.detach() for x in (q, k, v, bias))
    out, aux = poise.attention(q, k, v, bias=bias, return_aux=STATE)
    got = poise.backward(q, k, v, out, dout, row_max=aux.row_max, row_sum=aux.row_sum, bias=bias,
                         dbias=True)
    for mine, theirs in zip((got.dq, got.dk, got.dv, got.dbias), expected):
        assert isinstance(mine, torch.Tensor)
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5)
