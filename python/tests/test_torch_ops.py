"""The operators as torch sees them: opcheck, torch.compile without graph breaks, fake tensors.

In: torch.ops.poise.* and functions that call poise. Out: what torch's own checkers say, and results
equal to those without compiling. Must not happen here: a graph that leaves a call out.
"""

import pytest

import poise

torch = pytest.importorskip("torch")
ours = pytest.importorskip("poise.torch")
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.library import opcheck  # noqa: E402

OPS = torch.ops.poise
NUMBERS = ["none", 0, None, 0.0, [], 0.0, 0, 0, True]
CALLS = {
    "plain": {}, "causal_offset": {"causal": ["offset", 2]}, "scale": {"scale_number": 0.3},
    "bias": {"bias": (4, 5, 6)}, "sinks": {"sinks": (4,)}, "slopes": {"alibi_slopes": (4,)},
    "learned_scale": {"scale": (4,)}, "window": {"causal": ["bottom_right", 0], "window": [2, 0]},
    "dropout": {"dropout_p": 0.4, "seed": True}, "mask": {"mask": True}, "blhd": {"blhd": True},
    "five_axes": {"lead": (2, 3)}, "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16, "bias": (4, 5, 6), "scale": (4,), "sinks": (4,),
                 "alibi_slopes": (4,)},
    "broadcast": {"heads": (4, 1), "grouped": False},
    "no_lead": {"lead": ()},
}


def arguments(lead=(2,), heads=(4, 2), dtype=torch.float32, blhd=False, grad=True, **options):
    """The twelve tensors and nine numbers of a call."""
    torch.manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, dtype=dtype, requires_grad=grad)

    qkv = [randn(*lead, heads[0], 5, 8), randn(*lead, heads[1], 6, 8), randn(*lead, heads[1], 6, 3)]
    if blhd:
        qkv = [t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(grad)
               for t in qkv]
    others = [randn(*options[name]) if name in options else None
              for name in ("bias", "scale", "sinks", "alibi_slopes")]
    mask = torch.rand(5, 6) < 0.7 if "mask" in options else None
    seed = torch.tensor(7) if "seed" in options else None
    numbers = list(NUMBERS)
    numbers[:2] = options.get("causal", numbers[:2])
    numbers[2] = options.get("scale_number")
    numbers[4] = options.get("window", [])
    numbers[5] = options.get("dropout_p", 0.0)
    numbers[8] = options.get("grouped", True)
    return [*qkv, *others, mask, None, None, None, seed], numbers


def derivative_arguments(**options):
    tensors, numbers = arguments(grad=False, **options)
    out, row_max, row_sum, lse = OPS.forward(*tensors, *numbers, True)
    return tensors, [out, row_max, row_sum], numbers, torch.randn_like(out), torch.randn_like(lse)


@pytest.mark.parametrize("name", CALLS)
def test_opcheck_forward(name):
    """With inputs that require grad: the operator records without a call of ours around it."""
    tensors, numbers = arguments(**CALLS[name])
    opcheck(OPS.forward.default, (*tensors, *numbers, True))
    opcheck(OPS.forward.default, (*arguments(grad=False, **CALLS[name])[0], *numbers, False))


@pytest.mark.parametrize("name", CALLS)
def test_opcheck_backward(name):
    tensors, state, numbers, dout, dlse = derivative_arguments(**CALLS[name])
    wanted = [t is not None for t in tensors[:7]]
    opcheck(OPS.backward.default, (dout, dlse, *tensors, *state, *numbers, wanted))
    wanted = [False, True] + [False] * 5
    opcheck(OPS.backward.default, (dout, None, *tensors, *state, *numbers, wanted))


@pytest.mark.parametrize("name", ["plain", "mask", "blhd", "five_axes", "float64", "broadcast"])
def test_opcheck_jvp_and_double_backward(name):
    tensors, state, numbers, dout, dlse = derivative_arguments(**CALLS[name])
    moves = [torch.randn_like(t) for t in tensors[:3]]
    opcheck(OPS.jvp.default, (*moves, *tensors, *state, *numbers))
    opcheck(OPS.jvp.default, (None, moves[1], None, *tensors, *state, *numbers))
    opcheck(OPS.double_backward.default, (*moves, dout, dlse, *tensors, *state, *numbers))
    opcheck(OPS.double_backward.default, (None, None, moves[2], dout, None, *tensors, *state,
                                          *numbers))


def compiled_and_plain(function, tensors, backend="aot_eager", **how):
    """Results and gradients of the function, compiled and not."""
    torch._dynamo.reset()
    both = []
    for call in (torch.compile(function, fullgraph=True, backend=backend, **how), function):
        torch.manual_seed(5)
        inputs = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
        results = call(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        torch.autograd.backward([r.sin().sum() for r in results])
        both.append([*results, *(t.grad for t in inputs if t.requires_grad)])
    return both


def qkv(dtype=torch.float32, heads=4):
    torch.manual_seed(0)
    return [torch.randn(2, heads, 6, 8, dtype=dtype) for _ in range(3)]


BIAS = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(1))
FUNCTIONS = {
    "sdpa": lambda q, k, v: poise.scaled_dot_product_attention(q * 2, k, v, is_causal=True),
    "mask": lambda q, k, v: poise.scaled_dot_product_attention(q, k, v, BIAS > 0, scale=0.2),
    "bias": lambda q, k, v, b=BIAS: poise.scaled_dot_product_attention(q, k, v, b),
    "extras": lambda q, k, v: poise.scaled_dot_product_attention(
        q, k, v, causal="bottom_right", window=(2, 0), softcap=5.0, sinks=q[0, :, 0, 0],
        kv_lengths=[5, 6], bias=BIAS, diagonal=0),
    "attention": lambda q, k, v: poise.attention(q, k[:, :2], v[:, :2], causal=1,
                                                 scale=q[0, :, 0, 0]),
    "blhd": lambda q, k, v: poise.attention(q.transpose(1, 2), k.transpose(1, 2),
                                            v.transpose(1, 2), layout="blhd"),
    "lse": lambda q, k, v: ours.attention(q, k, v, return_lse=True),
    "dropout": lambda q, k, v: poise.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiles_to_one_graph(name):
    compiled, plain = compiled_and_plain(FUNCTIONS[name], qkv())
    assert all(torch.equal(a, b) for a, b in zip(compiled, plain))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
def test_compiles_with_inductor():
    def block(x):
        q, k, v = (x * 2).reshape(2, 6, 3, 4, 8).permute(2, 0, 3, 1, 4)
        out = poise.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        compiled, plain = compiled_and_plain(block, [torch.randn(2, 6, 96)], "inductor")
    for a, b in zip(compiled, plain):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_compiles_once_for_all_lengths():
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    call = torch.compile(lambda q, k: poise.attention(q, k, k, causal=k.shape[2] - q.shape[2]),
                         fullgraph=True, dynamic=True, backend=count)
    for length in (5, 9, 17):
        q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 4, length, 8)
        assert torch.equal(call(q, k), poise.attention(q, k, k, causal="bottom_right"))
    assert len(graphs) == 1


def test_a_mode_around_a_traced_function():
    F = torch.nn.functional

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    torch._dynamo.reset()
    q, k, v = qkv()
    with poise.use() as u:
        graph = make_fx(function)(q, k, v)
    assert u.taken == 1 and "poise.forward" in graph.code
    assert torch.equal(graph(q, k, v), poise.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_traced_calls_are_in_the_graph_and_fake_tensors_have_shapes():
    q, k, v = qkv()
    graph = make_fx(lambda q, k, v: poise.attention(q, k, v))(q, k, v)
    assert "poise.forward" in graph.code
    with torch._subclasses.FakeTensorMode() as mode:
        out = poise.attention(*(mode.from_tensor(t) for t in (q, k, v)))
        assert type(out) is torch._subclasses.FakeTensor and out.shape == q.shape
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        assert torch.equal(poise.attention(q, k, v), graph(q, k, v))
    with pytest.raises(ValueError, match=r"\[forward\] return_aux: a traced call hands out lse"):
        make_fx(lambda q: poise.attention(q, q, q, return_aux=poise.AuxRequest(stats=True)))(q)


def test_exports():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return poise.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = qkv()
    program = torch.export.export(Model(), (q, k, v))
    assert torch.equal(program.module()(q, k, v), Model()(q, k, v))
