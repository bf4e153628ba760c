"""poise.use, autocast, processes: poise where torch's own function stands.

In: torch code that calls F.scaled_dot_product_attention. Out: who computed each call, and equal
results. Must not happen here: a call that neither poise took nor a counter saw.
"""

import os
import subprocess
import sys

import pytest

import poise

torch = pytest.importorskip("torch")
F = torch.nn.functional
nn = torch.nn


def qkv(dtype=torch.float32, shape=(2, 4, 6, 8)):
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for _ in range(3)]


def test_sends_the_calls_of_a_block():
    q, k, v = qkv()
    with poise.use() as u:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        named = F.scaled_dot_product_attention(query=q, key=k, value=v, scale=0.5)
    assert (u.taken, u.passed_on, u.reasons) == (2, 0, {})
    assert torch.equal(out, poise.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert torch.equal(named, poise.scaled_dot_product_attention(q, k, v, scale=0.5))
    F.scaled_dot_product_attention(q, k, v)
    assert u.taken == 2


def test_gradients_go_through():
    q, k, v = (t.requires_grad_() for t in qkv())
    with poise.use():
        out = F.scaled_dot_product_attention(q, k, v)
    assert "Attention" in out.grad_fn.name()
    gradients = torch.autograd.grad(out.sum(), (q, k, v))
    expected = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), (q, k, v))
    for a, b in zip(gradients, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


REFUSED = {"dtype": [t.to(torch.complex64) for t in qkv()], "device": [t.to("meta") for t in qkv()],
           "shape": [t[0, 0, 0] for t in qkv()]}


@pytest.mark.parametrize("name", REFUSED)
def test_what_poise_refuses_raises_or_is_passed_on_and_counted(name):
    with poise.use() as u, pytest.raises((TypeError, ValueError), match=r"^\[forward\] query: "):
        F.scaled_dot_product_attention(*REFUSED[name])
    assert (u.taken, u.passed_on) == (0, 0)
    q, k, v = qkv()
    with poise.use(on_unsupported="fallback") as u:
        F.scaled_dot_product_attention(q, k, v)
        try:
            outside = F.scaled_dot_product_attention(*REFUSED[name])
        except RuntimeError:  # torch refuses it too
            outside = None
    assert (u.taken, u.passed_on) == (1, 1) and sum(u.reasons.values()) == 1
    assert next(iter(u.reasons)).startswith("[forward] query: ")
    assert outside is None or outside.shape == q.shape
    with pytest.raises(ValueError, match=r"\[use\] on_unsupported: 'ignore'"):
        poise.use(on_unsupported="ignore")


def test_a_call_passed_on_leaves_torchs_generator_alone():
    meta = [t.to("meta") for t in qkv()]
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with poise.use(on_unsupported="fallback") as u:
        F.scaled_dot_product_attention(*meta, dropout_p=0.5)
    assert u.passed_on == 1 and torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("training", [True, False])
def test_modules_of_torch(training):
    """In evaluation nn.MultiheadAttention has a fused path of its own; not inside the block."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)
    x, padding = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with torch.set_grad_enabled(training):
        expected = model(x, src_key_padding_mask=padding)
        with poise.use() as u:
            out = model(x, src_key_padding_mask=padding)
        compiled = torch.compile(model.layers[0].self_attn, backend="aot_eager")
        with poise.use() as broken:
            compiled(x, x, x, need_weights=False)
    assert u.taken == 2 and broken.taken == 1
    visible = ~padding
    torch.testing.assert_close(out[visible], expected[visible], rtol=1e-4, atol=1e-5)


def test_a_fused_function_called_by_hand_is_not_passed_on_in_silence():
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    arguments = (x, x, x, 16, 4, layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight,
                 layer.out_proj.bias)
    with torch.no_grad(), poise.use() as u:
        with pytest.raises(ValueError, match=r"\[use\] torch._native_multi_head_attention"):
            torch._native_multi_head_attention(*arguments)
    with torch.no_grad(), poise.use("fallback") as u:
        torch._native_multi_head_attention(*arguments)
    assert u.passed_on == 1


def test_blocks_nest_and_end_with_an_error():
    q, k, v = qkv()
    with poise.use() as outer:
        with pytest.raises(KeyError), poise.use() as inner:
            F.scaled_dot_product_attention(q, k, v)
            raise KeyError
        F.scaled_dot_product_attention(q, k, v)
    assert (inner.taken, outer.taken) == (1, 1)


def test_a_block_inside_and_around_a_compiled_function():
    q, k, v = qkv()

    torch._dynamo.reset()
    expected = poise.scaled_dot_product_attention(q, k, v)

    def inside(q, k, v):
        with poise.use():
            return F.scaled_dot_product_attention(q, k, v)

    inside = torch.compile(inside, fullgraph=True, backend="aot_eager")
    assert torch.equal(inside(q, k, v), expected)
    around = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), fullgraph=True,
                           backend="aot_eager")
    with poise.use() as u:
        assert torch.equal(around(q, k, v), expected) and u.taken == 1


@pytest.mark.parametrize("block", [False, True])
def test_autocast_casts_as_for_torchs_function(block):
    q, k, v = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.scaled_dot_product_attention(q, k.bfloat16(), v)
        if block:
            with poise.use():
                out = F.scaled_dot_product_attention(q, k.bfloat16(), v)
        else:
            out = poise.scaled_dot_product_attention(q, k.bfloat16(), v)
    assert out.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)


PROGRAM = """
import torch, poise
F = torch.nn.functional
poise.set_num_threads(2)


def step(seed):
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 4, 64, 32, requires_grad=True) for _ in range(3))
    with poise.use():
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.sum().backward()
    return torch.stack([out.detach(), q.grad, k.grad, v.grad])


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return step(index)


if __name__ == "__main__":
    here = [step(i) for i in range(6)]
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=2,
                                             multiprocessing_context=context)
        print(context, all(torch.equal(a, b) for a, b in zip(here, loader)))
"""


def test_dataloader_workers_compute_what_their_parent_does(tmp_path):
    program = tmp_path / "loading.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.split() == ["fork", "True", "spawn", "True"], done.stderr


def test_poise_alone_imports_no_torch():
    program = ("import poise, sys, numpy as np\nx = np.ones((1, 2, 3, 4), np.float32)\n"
               "poise.scaled_dot_product_attention(x, x, x)\nprint('torch' in sys.modules)\n"
               "poise.use\nprint('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_examples_in_docstrings_run():
    import doctest

    from poise import _torch_use, torch as module

    for tested in (module, _torch_use):
        result = doctest.testmod(tested)
        assert result.failed == 0 and result.attempted > 0


@pytest.mark.parametrize("backward", [
    lambda out, x: out.backward(), lambda out, x: torch.autograd.backward([out]),
    lambda out, x: torch.autograd.grad(out, x)], ids=["Tensor.backward", "backward", "grad"])
def test_what_a_checkpoint_computes_again_poise_computes(backward):
    seen = []

    def attend(x):
        out = F.scaled_dot_product_attention(x, x, x)
        seen.append(out.detach())
        return out

    x = torch.randn(2, 3, 40, 8, requires_grad=True)
    with poise.use():
        out = torch.utils.checkpoint.checkpoint(attend, x, use_reentrant=False, early_stop=False)
        backward(out.sum(), x)
    assert len(seen) == 2 and torch.equal(*seen)
    assert not torch.equal(seen[0], F.scaled_dot_product_attention(x, x, x))
