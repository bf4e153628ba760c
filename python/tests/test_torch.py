"""Beside torch: F.scaled_dot_product_attention's math path, tensors in and out, what is refused.

In: torch tensors on the CPU. Out: agreement with the math backend, tensors back. Must not happen
here: a comparison with torch's fused kernels, which are not its definition.
"""

import numpy as np
import pytest

import poise

torch = pytest.importorskip("torch")
F = torch.nn.functional
# Tolerances of torch's own test_transformers.py for its fused CPU kernels: 1e-5 in f32 (1e-6 plus
# 1e-5 relative there), 2e-2 in bf16, 1e-2 in f16.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 1e-2}


def math_path(*arguments, **options):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **options)


def tensors(*shapes, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.7}, {"attn_mask": torch.rand(9, 9) < 0.8},
    {"attn_mask": "float"}, {"enable_gqa": True},
], ids=lambda options: next(iter(options), "plain"))
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_agrees_with_torchs_math_path(dtype, options, lead):
    options = dict(options)
    kv_heads = 2 if "enable_gqa" in options else 4
    q, k, v = tensors((*lead, 4, 9, 16), (*lead, kv_heads, 9, 16), (*lead, kv_heads, 9, 16),
                      dtype=dtype)
    if "attn_mask" in options and isinstance(options["attn_mask"], str):
        options["attn_mask"] = torch.randn(9, 9, dtype=dtype)
    out = poise.scaled_dot_product_attention(q, k, v, **options)
    assert out.dtype == dtype and isinstance(out, torch.Tensor)
    torch.testing.assert_close(out, math_path(q, k, v, **options), rtol=TOLERANCE[dtype],
                               atol=TOLERANCE[dtype])


@pytest.mark.parametrize("q_shape, k_shape, v_shape", [
    ((5, 8), (7, 8), (7, 3)), ((4, 5, 8), (1, 7, 8), (4, 7, 3)),
    ((2, 1, 4, 5, 8), (3, 4, 7, 8), (1, 3, 1, 7, 3)), ((1, 1, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3)),
])
def test_axes_broadcast_as_in_torch(q_shape, k_shape, v_shape):
    q, k, v = tensors(q_shape, k_shape, v_shape)
    expected = math_path(q, k, v)
    out = poise.scaled_dot_product_attention(q, k, v)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_dropout_follows_torchs_generator():
    q, k, v = tensors(*[(2, 4, 32, 8)] * 3)

    def run():
        return poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    torch.manual_seed(7)
    first, second = run(), run()
    torch.manual_seed(7)
    assert torch.equal(first, run()) and not torch.equal(first, second)


def test_views_and_layouts_of_tensors():
    q, k, v = tensors(*[(2, 5, 4, 8)] * 3)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = poise.scaled_dot_product_attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    compact = (x.contiguous() for x in (q, k, v))
    assert torch.equal(out, poise.scaled_dot_product_attention(*compact))
    result = torch.empty(2, 4, 5, 8)
    assert poise.attention(q, k, v, out=result) is result and torch.equal(result, out)


def test_aux_comes_as_tensors():
    q, k, v = tensors(*[(2, 4, 5, 8)] * 3, dtype=torch.bfloat16)
    request = poise.AuxRequest(lse=True, max_scores=True, weights=True)
    _, aux = poise.scaled_dot_product_attention(q, k, v, return_aux=request)
    assert aux.lse.dtype == aux.max_scores.dtype == torch.float32
    expected = (q.double() @ k.double().mT / 8**0.5)
    torch.testing.assert_close(aux.lse.double(), expected.logsumexp(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(aux.max_scores.double(), expected.amax(-1), rtol=1e-5, atol=1e-5)


def test_functions_that_record_nothing_refuse_a_tensor_that_records_gradients():
    q, k, v = tensors(*[(1, 1, 5, 8)] * 3)
    out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(lse=True))
    q.requires_grad_()
    with pytest.raises(TypeError, match=r"\[backward\] query: the tensor requires grad"):
        poise.backward(q, k, v, out, out, lse=aux.lse)
    with torch.no_grad():
        gradients = poise.backward(q, k, v, out, out, lse=aux.lse)
    assert torch.equal(gradients.dq, poise.backward(q.detach(), k, v, out, out, lse=aux.lse).dq)


@pytest.mark.parametrize("wrong", [
    torch.ones(1, 1, 5, 8, device="meta"), torch.ones(1, 1, 5, 8, dtype=torch.complex64).conj(),
    torch.ones(1, 1, 5, 8, dtype=torch.complex64).conj().imag, torch.eye(5).to_sparse(),
    torch.ones(1, 1, 5, 8, dtype=torch.int16),
    torch._subclasses.FakeTensorMode().from_tensor(torch.ones(1, 1, 5, 8)),
], ids=["meta", "conj", "neg", "sparse", "int16", "fake"])
def test_other_tensors_are_refused(wrong):
    q = torch.ones(1, 1, 5, 8)
    with pytest.raises((TypeError, ValueError), match=r"\[forward\] query: ") as refusal:
        poise.scaled_dot_product_attention(wrong, q, q)
    assert "\n" not in str(refusal.value)


def test_numpy_and_torch_give_the_same_bits_and_the_querys_kind():
    q, k, v = tensors(*[(2, 4, 5, 8)] * 3)
    out = poise.attention(q, k.numpy(), v)
    assert isinstance(out, torch.Tensor)
    expected = poise.attention(q.numpy(), k, v)
    assert isinstance(expected, np.ndarray) and np.array_equal(out.numpy(), expected)


def test_threads_follow_torchs_number():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert poise.get_num_threads() == 1
        torch.set_num_threads(2)
        assert poise.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
