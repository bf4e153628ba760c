"""The grid that torch tests its own fused CPU attention on, with poise in the fused kernel's place.

In: the shapes, dtypes, masks and tolerances of TestSDPA in torch's test/test_transformers.py
(fused_attention_vs_math_cpu, fused_attention_mask_vs_math_cpu, with_inf, negative_scale), and the
same for grouped heads. Out: results and gradients beside torch's math path, which gets 16-bit
inputs in float32, as there. Must not happen here: torch's code, or tolerances of our own.
"""

import itertools

import pytest

import poise

torch = pytest.importorskip("torch")
F = torch.nn.functional

TOLERANCE = {torch.float64: (1e-5, 5e-6), torch.float32: (1e-5, 5e-6),
             torch.bfloat16: (5e-2, 5e-2), torch.float16: (1e-2, 1e-2)}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda dtype: str(dtype)[6:])


def math_path(*arguments, **options):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **options)


def close(actual, expected, dtype):
    atol, rtol = TOLERANCE[dtype]
    torch.testing.assert_close(actual, expected.to(dtype), atol=atol, rtol=rtol)


def compare(leaves, heads_of, dtype, attn_mask=None, **options):
    """Results and gradients of the leaves; heads_of makes query, key and value of them."""
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    results, gradients = [], []
    for function, number in ((poise.scaled_dot_product_attention, dtype), (math_path, wide)):
        copies = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        query, key, value = (t.to(number) for t in heads_of(*copies))
        mask = attn_mask
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(number)
        out = function(query, key, value, mask, **options)
        out.to(dtype).sum().backward()
        results.append(out.detach())
        gradients.append([copy.grad for copy in copies])
        if function is not math_path:
            with torch.no_grad():
                assert torch.equal(out, function(query, key, value, mask, **options))
    close(results[0], results[1], dtype)
    for actual, expected in zip(*gradients):
        close(actual, expected, dtype)


def long_ones_apart(batches, lengths):
    """Every pair; the largest, which takes the math path seconds, among the slow tests."""
    pairs = list(itertools.product(batches, lengths))
    return [pytest.param(*pair, marks=pytest.mark.slow) if pair == pairs[-1] else pair
            for pair in pairs]


@DTYPES
@pytest.mark.parametrize("batch, length", long_ones_apart([2, 12], [267, 1030]))
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("head_dim", [8, 16])
@pytest.mark.parametrize("causal", [True, False])
def test_against_the_math_path(dtype, batch, length, heads, head_dim, causal):
    torch.manual_seed(0)
    packed = torch.randn(batch, length, 3 * heads * head_dim).to(dtype)

    def heads_of(packed):
        return (part.view(batch, length, heads, head_dim).transpose(1, 2)
                for part in packed.split(heads * head_dim, dim=2))

    compare([packed], heads_of, dtype, is_causal=causal)


def masks(mask_dim):
    extents = [(2, 1), (3, 1), (267, 1), (514, 1)][4 - mask_dim:]
    return list(itertools.product(*extents))


@DTYPES
@pytest.mark.parametrize("shape", masks(2) + masks(4), ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("is_bool", [True, False], ids=["bool", "float"])
def test_masks_against_the_math_path(dtype, shape, is_bool):
    torch.manual_seed(0)
    leaves = [torch.randn(2, length, 3, 8).to(dtype) for length in (267, 514, 514)]
    mask = torch.randint(0, 2, shape, dtype=torch.bool) if is_bool else torch.randn(shape).to(dtype)
    compare(leaves, lambda *leaves: (leaf.transpose(1, 2) for leaf in leaves), dtype, mask)


@DTYPES
@pytest.mark.filterwarnings("ignore:is_causal=True starts at the top left")
@pytest.mark.parametrize("heads, kv_heads", [(6, 3), (6, 2), (4, 1)])
@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_grouped_heads_against_the_math_path(dtype, heads, kv_heads, mask):
    torch.manual_seed(0)
    leaves = [torch.randn(2, n, length, 16).to(dtype)
              for n, length in ((heads, 67), (kv_heads, 130), (kv_heads, 130))]
    given = {"bool": torch.rand(67, 130) < 0.5, "float": torch.randn(heads, 67, 130)}.get(mask)
    compare(leaves, lambda *leaves: leaves, dtype, given, is_causal=mask == "causal",
            enable_gqa=True)


@pytest.mark.parametrize("length", [1, 2, 32, 33])
@pytest.mark.parametrize("value_dim", [8, 5])
def test_few_queries_and_other_value_widths(length, value_dim):
    torch.manual_seed(0)
    leaves = [torch.randn(2, 3, length, 8), torch.randn(2, 3, 514, 8),
              torch.randn(2, 3, 514, value_dim)]
    compare(leaves, lambda *leaves: leaves, torch.float32)


def test_rows_without_keys_in_a_float_mask_are_zero_in_both():
    full = torch.full((600, 600), float("-inf"))
    mask = torch.triu(full, diagonal=1) + torch.tril(full, diagonal=-10)
    mask[17] = float("-inf")
    torch.manual_seed(0)
    leaves = [torch.randn(1, 2, 600, 8) for _ in range(3)]
    compare(leaves, lambda *leaves: leaves, torch.float32, mask)
    out = poise.scaled_dot_product_attention(*leaves, mask)
    assert not out[:, :, 17].any() and not math_path(*leaves, mask)[:, :, 17].any()


def test_a_large_negative_scale():
    torch.manual_seed(0)
    x = torch.randn(1, 3, 64, 64)
    out = poise.scaled_dot_product_attention(x, x, x, scale=-1.0 / 0.0001)
    torch.testing.assert_close(out, ((x @ x.mT) / -0.0001).softmax(-1) @ x)


def test_mask_and_causal_intersect_where_torch_refuses():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 33, 8) for _ in range(3))
    mask = torch.rand(2, 1, 33, 33) < 0.7
    with pytest.raises(RuntimeError, match="attn_mask"):
        math_path(q, k, v, mask, is_causal=True)
    out = poise.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
    close(out, math_path(q, k, v, mask & torch.ones(33, 33, dtype=torch.bool).tril()),
          torch.float32)
