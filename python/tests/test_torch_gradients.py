"""Gradients of every tensor of a call, second gradients, forward mode, and what they refuse.

In: float64 tensors that require grad. Out: agreement with finite differences, by torch's own
gradcheck. Must not happen here: a comparison of poise with itself where differences can be had.
"""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import poise

torch = pytest.importorskip("torch")
ours = pytest.importorskip("poise.torch")
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402

F64 = torch.float64


def randn(*shape, grad=True, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_(grad)


def qkv(lead=(2,), heads=(4, 2), lengths=(5, 6), dim=8, value_dim=3, dtype=F64):
    return (randn(*lead, heads[0], lengths[0], dim, dtype=dtype),
            randn(*lead, heads[1], lengths[1], dim, seed=1, dtype=dtype),
            randn(*lead, heads[1], lengths[1], value_dim, seed=2, dtype=dtype))


MASK = torch.rand(5, 6, generator=torch.Generator().manual_seed(4)) < 0.6
MASK[2] = False  # a row without keys
OPTIONS = [
    {}, {"causal": "bottom_right"}, {"causal": 2, "window": (2, 0)}, {"softcap": 0.8},
    {"mask": MASK}, {"kv_lengths": [4, 6], "q_lengths": [5, 3]}, {"scale": 0.3},
    {"dropout_p": 0.3, "dropout_seed": 2**63 + 5}, {"threads": 2, "diagonal": 1, "window": (1, 1)},
]
MOVING = {
    "bias": lambda: randn(4, 5, 6), "bias_row": lambda: randn(2, 1, 1, 6),
    "scale": lambda: randn(4), "scale_0d": lambda: randn().detach().abs().requires_grad_(),
    "sinks": lambda: randn(4), "alibi_slopes": lambda: randn(4),
}


def both(*tensors, **options):
    """out and lse, with 0 for the -inf of rows without keys, which have no differences."""
    out, lse = ours.attention(*tensors, return_lse=True, **options)
    return out, torch.where(lse.isinf(), 0.0, lse)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
def test_first_gradients_and_forward_mode(options):
    """Also of lse, which goes out beside out."""
    assert gradcheck(lambda *t: both(*t, **options), qkv(), check_forward_ad=True)


@pytest.mark.parametrize("name", MOVING)
def test_gradients_of_bias_scale_sinks_slopes(name):
    option = name.split("_row")[0].split("_0d")[0]

    def call(q, k, v, moving):
        return ours.attention(q, k, v, softcap=1.5, causal="bottom_right", return_lse=True,
                              **{option: moving})

    assert gradcheck(call, (*qkv(), MOVING[name]()))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
def test_second_gradients(options):
    assert gradgradcheck(lambda *t: both(*t, **options), qkv())


@pytest.mark.parametrize("shapes", [
    ((5, 8), (6, 8), (6, 3)), ((4, 5, 8), (1, 6, 8), (4, 6, 3)), ((5, 8), (4, 6, 8), (4, 6, 3)),
    ((2, 1, 4, 5, 8), (3, 4, 6, 8), (1, 3, 1, 6, 3)), ((1, 1, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)),
    ((2, 4, 5, 8), (1, 1, 6, 8), (2, 1, 6, 3)),
], ids=str)
def test_gradients_of_axes_that_broadcast(shapes):
    tensors = [randn(*shape, seed=i) for i, shape in enumerate(shapes)]
    sdpa = poise.scaled_dot_product_attention
    assert gradcheck(sdpa, tensors, check_forward_ad=True)
    assert gradgradcheck(sdpa, tensors)


@pytest.mark.parametrize("bias", [(5, 6), (4, 1, 6), (3, 1, 5, 6), (2, 1, 4, 5, 1)], ids=str)
def test_gradients_of_a_bias_under_two_leading_axes(bias):
    q, k, v = qkv((2, 3))
    q = q.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()  # no stride joins
    call = poise.scaled_dot_product_attention
    assert gradcheck(lambda q, k, v, b: call(q, k, v, b, enable_gqa=True), (q, k, v, randn(*bias)))


def test_strided_layouts_have_gradients_in_their_layout():
    q, k, v = (t.detach().transpose(1, 2).contiguous().requires_grad_() for t in qkv())
    assert gradcheck(lambda *t: poise.attention(*t, layout="blhd"), (q, k, v))
    out = poise.attention(q, k, v, layout="blhd")
    assert out.shape == (2, 5, 4, 3) and out.is_contiguous()
    view = [t.transpose(1, 2) for t in (q, k, v)]
    assert torch.equal(out, poise.attention(*view).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_tensor_has_its_gradient_in_its_own_dtype(dtype):
    q, k, v = qkv(dtype=dtype)
    moving = {"bias": randn(4, 5, 6, dtype=dtype), "sinks": randn(4, dtype=dtype),
              "scale": randn(4, dtype=dtype), "alibi_slopes": randn(4, dtype=dtype)}
    ours.attention(q, k, v, **moving).sum().backward()
    exact = [t.detach().to(F64).requires_grad_() for t in (q, k, v, *moving.values())]
    ours.attention(*exact[:3], **dict(zip(moving, exact[3:]))).sum().backward()
    bound = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-5}[dtype]
    for tensor, reference in zip((q, k, v, *moving.values()), exact):
        assert tensor.grad.dtype == dtype and tensor.grad.shape == tensor.shape
        torch.testing.assert_close(tensor.grad.double(), reference.grad, rtol=bound, atol=bound)


def test_a_recorded_call_has_the_bits_of_one_that_is_not():
    q, k, v = qkv(dtype=torch.float32)
    recorded = poise.attention(q, k, v)
    assert recorded.requires_grad
    with torch.no_grad():
        plain = poise.attention(q, k, v)
    assert not plain.requires_grad and torch.equal(recorded, plain)


def test_dropout_draws_the_same_seed_recorded_or_not():
    q, k, v = qkv(heads=(4, 4))
    for record in (True, False):
        torch.manual_seed(3)
        with torch.set_grad_enabled(record):
            out = poise.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
        torch.manual_seed(3)
        seed = int(torch.randint(0, 2**63 - 1, ()))
        expected = poise.attention(q.detach(), k.detach(), v.detach(), dropout_p=0.4,
                                   dropout_seed=seed)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("seed", [0, 5, 2**63 + 5, 2**64 - 1])
def test_a_given_seed_means_the_same_recorded_or_not(seed):
    q, k, v = qkv()
    out = poise.attention(q, k, v, dropout_p=0.4, dropout_seed=seed)
    plain = (t.detach() for t in (q, k, v))
    assert torch.equal(out, poise.attention(*plain, dropout_p=0.4, dropout_seed=seed))


def test_aux_of_a_recorded_call():
    q, k, v = qkv()
    request = poise.AuxRequest(lse=True, max_scores=True, stats="full", weights=True)
    out, aux = poise.attention(q, k, v, return_aux=request)
    assert aux.lse.requires_grad and not aux.weights.requires_grad and aux.stats.heads == 4
    assert aux.row_max is None and aux.scores is None and "max_scores" in repr(aux)
    assert torch.allclose(aux.weights @ v.repeat_interleave(2, 1), out)
    assert gradcheck(lambda q, k, v: poise.attention(q, k, v, return_aux=request)[1].lse, (q, k, v))
    with pytest.raises(TypeError, match="return_aux: expected an AuxRequest, got bool"):
        poise.attention(q, k, v, return_aux=True)


def test_a_measurement_gets_the_gradient_statistics():
    from poise import _torch_calls

    q, k, v = qkv(heads=(4, 4))
    seen = []
    measurement = _torch_calls.Measurement(poise.AuxRequest(stats="full"), seen.append)
    out = _torch_calls.run(_torch_calls.native(q, k, v, is_causal=True), measurement)
    assert not seen and measurement.aux.stats.heads == 4
    out.sum().backward()
    assert seen == [measurement.aux.stats]
    norms = q.grad.square().sum((0, 2, 3)).sqrt().numpy()
    assert abs(seen[0].dq_norm - norms).max() < 1e-9


def test_recorded_calls_are_freed():
    """With their last result, not only when Python's collector looks for circles."""
    from poise import _torch_calls

    gc.disable()
    for request in (None, poise.AuxRequest(lse=True, stats=True)):
        q, k, v = qkv()
        result = poise.attention(q, k, v, return_aux=request)
        if request is not None:
            measurement = _torch_calls.Measurement(request, lambda stats: None)
            call = _torch_calls.Call(q, k, v, {"dropout_p": 0.0, "attn_mask": None, "scale": None},
                                     True)
            result = (result, _torch_calls.run(call, measurement), measurement)
            del call, measurement
        kept = weakref.ref(q)
        del q, k, v, result
        freed = kept() is None
        if not freed:
            break
    gc.enable()
    assert freed


def test_checkpointing_drops_the_same_weights():
    q, k, v = qkv(heads=(4, 4))

    def call(q, k, v):
        return poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    torch.manual_seed(9)
    expected = torch.autograd.grad(call(q, k, v).square().sum(), (q, k, v))
    torch.manual_seed(9)
    out = torch.utils.checkpoint.checkpoint(call, q, k, v, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), expected):
        assert torch.equal(a, b)


def test_gradients_of_tensors_without_are_not_computed(monkeypatch):
    from poise import _torch_ops

    wanted, kernel = [], _torch_ops.backward
    monkeypatch.setattr(_torch_ops, "backward",
                        lambda *arguments: wanted.append(arguments[-1]) or kernel(*arguments))
    q, k, v = qkv()
    out = poise.attention(q, k.detach(), v, bias=randn(5, 6, grad=False), sinks=randn(4))
    out.sum().backward()
    assert wanted == [[True, False, True, False, False, True, False]]


def test_inputs_changed_in_place_are_noticed():
    q, k, v = qkv()
    mask = MASK.clone()
    out = poise.attention(q, k, v, mask=mask)
    mask[0] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("options", [
    {"mask": np.broadcast_to(np.tri(5, 6, dtype=bool), (2, 4, 5, 6))},
    {"mask": np.tri(5, 6, dtype=bool)[::-1]}, {"bias": np.ones((5, 6), ml_dtypes.bfloat16)},
    {"sinks": np.arange(4, dtype=ml_dtypes.bfloat16)}, {"kv_lengths": np.array([6, 1, 3])[::2]},
    {"kv_lengths": np.array([3, 5], np.int32)}, {"scale": np.array(0.25)},
], ids=lambda options: next(iter(options)))
def test_arrays_of_numpy_mean_the_same_recorded_or_not(options):
    q, k, v = qkv()
    expected = poise.attention(*(t.detach() for t in (q, k, v)), **options)
    assert torch.equal(poise.attention(q, k, v, **options), expected)


def test_many_gradients_at_once_are_refused():
    q, k, v = qkv()
    out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(lse=True))
    for result in (out, aux.lse):
        with pytest.raises(ValueError, match=r"^\[backward\] vmap: leading axes are batches"):
            torch.autograd.grad(result, q, torch.ones(3, *result.shape), is_grads_batched=True,
                                retain_graph=True)
    with pytest.raises(ValueError, match=r"^\[backward\] vmap: leading axes are batches"):
        torch.autograd.functional.jacobian(
            lambda q: poise.attention(q, k, v), q, vectorize=True)


def test_a_result_that_is_written_is_noticed():
    q, k, v = (t.detach() for t in qkv())
    saved = torch.zeros_like(poise.attention(q, k, v))
    loss = (saved * torch.ones_like(saved, requires_grad=True)).sum()
    poise.attention(q, k, v, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        assert torch.equal(poise.attention(q, k, v, out=torch.empty_like(saved)), saved)


def test_transforms_of_torch_func():
    q, k, v = (t.detach() for t in qkv())

    def loss(q, k, v):
        return poise.attention(q, k, v, causal="bottom_right").square().sum()

    def plain(q, k, v):
        mask = torch.ones(5, 6, dtype=torch.bool).tril(1)
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, enable_gqa=True).square().sum()

    for transform in (lambda f: torch.func.grad(f, (0, 1, 2))(q, k, v),
                      lambda f: torch.func.jvp(f, (q, k, v), (k.mean() + q, k, -v)),
                      lambda f: torch.func.vjp(f, q, k, v)[1](torch.ones((), dtype=F64))):
        for a, b in zip(transform(loss), transform(plain)):
            torch.testing.assert_close(a, b)


def test_what_the_library_has_not_is_refused():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"\[forward\] vmap: leading axes are batches"):
        torch.func.vmap(poise.attention)(q.detach(), k.detach(), v.detach())
    bias = randn(5, 6)
    with forward_ad.dual_level(), pytest.raises(ValueError, match=r"\[jvp\] bias: has a tangent"):
        poise.attention(q, k, v, bias=forward_ad.make_dual(bias, bias))
    (dq,) = torch.autograd.grad(poise.attention(q, k, v, bias=bias).sum(), q, create_graph=True)
    with pytest.raises(ValueError, match=r"\[double_backward\] bias: takes part"):
        torch.autograd.grad(dq.sum(), bias)
    (dq,) = torch.autograd.grad(poise.attention(q, k, v).sum(), q, create_graph=True)
    (ddq,) = torch.autograd.grad(dq.sum(), q, create_graph=True)
    with pytest.raises(ValueError, match=r"\[double_backward\] the library has no gradient"):
        (ddq + q).sum().backward()
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(poise.attention(forward_ad.make_dual(q, q), k, v)).tangent
        with pytest.raises(ValueError, match=r"\[jvp\] the library has no gradient"):
            moved.sum().backward()
    half = [t.detach().half().requires_grad_() for t in (q, k, v)]
    (dq,) = torch.autograd.grad(poise.attention(*half).sum(), half[0], create_graph=True)
    with pytest.raises(TypeError, match=r"\[double_backward\] "):
        dq.sum().backward()
    with forward_ad.dual_level(), pytest.raises(TypeError, match=r"\[jvp\] "):
        poise.attention(forward_ad.make_dual(half[0], half[0]), *half[1:])


@pytest.mark.parametrize("change, error, sentence", [
    ({"key": randn(2, 3, 6, 8)}, ValueError, r"\[forward\] "),
    ({"key": randn(2, 2, 6, 7)}, ValueError, r"\[forward\] "),
    ({"key": randn(2, 2, 6, 8, dtype=torch.float32)}, TypeError, r"\[forward\] "),
    ({"key": randn(2, 2, 6, 8).to("meta")}, (TypeError, ValueError), r"\[forward\] key: "),
    ({"mask": MASK[:, :4]}, ValueError, "mask"), ({"bias": MASK}, TypeError, "bias"),
    ({"causal": True}, ValueError, "causal: True names no alignment"),
    ({"causal": "left"}, ValueError, "causal: 'left'"),
    ({"causal": 0.5}, TypeError, "causal: expected an integer"),
    ({"scale": "one"}, TypeError, "scale"), ({"window": 3}, TypeError, "window"),
    ({"dropout_p": 1.5}, ValueError, "dropout"), ({"dropout_p": "half"}, TypeError, "dropout_p"),
    ({"dropout_seed": -1, "dropout_p": 0.5}, ValueError, "dropout_seed"),
    ({"threads": 5000}, ValueError, "threads: 5000"), ({"sinks": ["a"]}, TypeError, "sinks"),
    ({"kv_lengths": [7, 1]}, ValueError, "kv_lengths"),
    ({"out": torch.empty(2, 4, 5, 3, dtype=F64)}, ValueError, r"\[forward\] out: given while"),
], ids=lambda case: str(next(iter(case))) if isinstance(case, dict) else "")
def test_recorded_calls_refuse_with_the_librarys_sentence(change, error, sentence):
    call = dict(zip(("query", "key", "value"), qkv()))
    call.update(change)
    with pytest.raises(error, match=sentence):
        poise.attention(**call)


def test_a_window_and_threads_mean_the_same_recorded_or_not():
    q, k, v = qkv()
    plain = [t.detach() for t in (q, k, v)]
    expected = poise.attention(*plain, window=(2, 1))
    for window in ([2, 1], np.array([2, 1])):
        assert torch.equal(poise.attention(q, k, v, window=window), expected)
    for tensors in (plain, (q, k, v)):
        for bad in ({"window": ()}, {"window": torch.tensor([2, 1])}, {"threads": 0}):
            with pytest.raises((TypeError, ValueError), match=r"^\[options\] (window|threads): "):
                poise.attention(*tensors, **bad)


def test_two_masks_of_one_kind_are_refused_as_elsewhere():
    q, k, v = qkv(heads=(4, 4))
    with pytest.raises(ValueError, match="attn_mask: floats add to the scores, and so does bias"):
        poise.scaled_dot_product_attention(q, k, v, randn(5, 6), bias=randn(5, 6))
