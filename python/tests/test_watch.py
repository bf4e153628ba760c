"""poise.watch: what it sees of a model, under which names, and that the model does not notice.

In: small torch models. Out: statistics as those of a direct call, results and gradients to the bit.
Must not happen here: a dashboard or a file (test_watch_outputs.py), or transformers (test_hf.py).
"""

import copy
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import poise

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Attention(nn.Module):
    """Self-attention of a model that calls F.scaled_dot_product_attention itself."""

    def __init__(self, width=32, heads=4, kv_heads=4, **options):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim)
        self.options = options

    def split(self, x):
        b, n, _ = x.shape
        return [projection(x).view(b, n, -1, self.head_dim).transpose(1, 2)
                for projection in (self.q_proj, self.k_proj, self.v_proj)]

    def forward(self, x, mask=None):
        q, k, v = self.split(x)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, enable_gqa=self.heads != self.kv_heads, **self.options)
        return out.transpose(1, 2).flatten(2)


class Stack(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = x + layer(x, mask)
        return x


def stack(**options):
    torch.manual_seed(0)
    return Stack(Attention(**options), Attention(**options))


def inputs(batch=3, length=12, width=32, seed=1):
    torch.manual_seed(seed)
    return torch.randn(batch, length, width)


def padding(*lengths, total=12, left=False):
    """bool [B, 1, 1, L] of sequences of these lengths."""
    place = torch.arange(total)
    if left:
        place = place.flip(0)
    return (place < torch.tensor(lengths)[:, None])[:, None, None, :]


def bits(*tensors):
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


def run(model, x, mask=None):
    """Result and gradients of a step of training."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    out = model(x, mask)
    (out**2).sum().backward()
    return bits(out, x.grad, *(parameter.grad for parameter in model.parameters()))


MASKS = {
    "none": None, "padding": padding(12, 5, 9), "left": padding(12, 5, 9, left=True),
    "added": torch.zeros(3, 1, 12, 12).masked_fill(~padding(12, 5, 9), float("-inf")),
    "causal and padding": padding(12, 5, 9) & torch.ones(12, 12, dtype=torch.bool).tril(),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("stats", ["max", "core", "full"])
def test_torchs_own_results_keep_every_bit(mask, stats):
    model, x = stack(), inputs()
    expected = run(model, x, MASKS[mask])
    with poise.watch(model, stats=stats) as w:
        assert run(model, x, MASKS[mask]) == expected
    assert list(w.stats) == ["layers.0", "layers.1"] and not w.refused and not w.unseen


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("trains", [True, False])
def test_poises_results_keep_every_bit(mask, trains):
    model, x = stack(), inputs()

    def result():
        if trains:
            return run(model, x, MASKS[mask])
        with torch.no_grad():
            return bits(model(x, MASKS[mask]))

    unmeasured = poise.watch(model, compute="poise", layers=[])
    with unmeasured:
        expected = result()
    assert not unmeasured.stats
    with poise.watch(model, compute="poise") as w:
        assert result() == expected
    assert len(w.stats) == 2
    assert result() != expected  # torch's kernel rounds otherwise: poise did compute


@pytest.mark.parametrize("compute", ["torch", "poise"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("trains", [True, False])
def test_statistics_are_those_of_the_rows_that_are_no_padding(compute, mask, trains):
    model, x = Stack(Attention()), inputs()
    with torch.set_grad_enabled(trains), poise.watch(model, compute=compute) as w:
        model(x, MASKS[mask])
    stats = w.stats["layers.0"]
    q, k, v = (tensor.detach() for tensor in model.layers[0].split(x))
    total = poise.Stats()
    for batch, length in enumerate((12, 12, 12) if mask == "none" else (12, 5, 9)):
        real = slice(12 - length, 12) if mask == "left" else slice(0, length)
        causal = "top_left" if mask.startswith("causal") else None
        _, aux = poise.attention(*(t[batch:batch + 1, :, real] for t in (q, k, v)), causal=causal,
                                 return_aux=poise.AuxRequest(stats=True))
        total.merge(aux.stats)
    for name in ("measured_rows", "max_score", "entropy", "top1", "score_variance", "trace"):
        np.testing.assert_allclose(getattr(stats, name), getattr(total, name), rtol=1e-5,
                                   err_msg=name)


@pytest.mark.parametrize("compute", ["torch", "poise"])
def test_inference_mode_is_watched(compute):
    with torch.inference_mode():
        model, x, mask = stack(), inputs(), padding(12, 5, 9)
        with poise.watch(model, compute=compute) as w:
            model(x, mask)
            mask[2] = False  # in place, which such a tensor does not tell
            model(x, mask)
    assert list(w.total["layers.0"].rows) == [26 + 17] * 4


def test_rows_of_cross_attention_are_not_padding():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cross_attention = Attention()

        def forward(self, x, mask):
            return self.cross_attention(x, mask)

    with poise.watch(Decoder()) as w:
        w.model(inputs(), padding(12, 5, 9))
    assert list(w.stats["cross_attention"].rows) == [36] * 4
    with poise.watch(stack(), skip_padding=False) as w:
        w.model(inputs(), padding(12, 5, 9))
    assert list(w.stats["layers.0"].rows) == [36] * 4


@pytest.mark.parametrize("compute", ["torch", "poise"])
def test_gradient_statistics_join(compute):
    model, x = stack(), inputs()
    with poise.watch(model, stats="full", compute=compute) as w:
        run(model, x)
        measured = w.stats["layers.1"].transmission
    assert (np.isfinite(measured) & (measured > 0)).all()
    with poise.watch(model, stats="full", compute=compute) as w, torch.no_grad():
        model(x)
    assert np.isnan(w.stats["layers.1"].transmission).all()


def test_both_ways_measure_the_same():
    model, x = stack(kv_heads=2, is_causal=True), inputs()
    found = []
    for compute in ("torch", "poise"):
        with poise.watch(model, compute=compute, stats="full") as w:
            run(model, x)
        found.append(w.stats["layers.0"])
    assert found[0].kv_heads == 2
    for name in ("max_score", "entropy", "expected_transmission", "transmission", "dk_norm"):
        np.testing.assert_allclose(*(getattr(stats, name) for stats in found), rtol=1e-5)


def test_dropout_draws_the_same_numbers():
    model, x = stack(dropout_p=0.3), inputs()
    torch.manual_seed(5)
    expected = run(model, x)
    torch.manual_seed(5)
    with poise.watch(model, stats="full") as w:
        assert run(model, x) == expected
    assert np.isnan(w.stats["layers.0"].transmission).all()  # of another mask it would be


def test_steps_are_counted_and_every_nth_is_measured():
    model, x = stack(), inputs()
    with poise.watch(model, every=3) as w:
        for _ in range(8):
            model(x)
    assert w.step == 7
    assert [(m.step, m.layer) for m in w.history] == [
        (step, f"layers.{layer}") for step in (0, 3, 6) for layer in (0, 1)]
    assert list(w.stats["layers.0"].rows) == [36] * 4
    assert list(w.total["layers.0"].rows) == [108] * 4


def test_steps_may_be_named():
    model, x = stack(), inputs()
    with poise.watch(model, every=10) as w:
        for step in (10, 11, 20):
            w.at_step(step)
            model(x)
            model(x)
    assert [m.step for m in w.history] == [10, 10, 20, 20]
    assert list(w.stats["layers.0"].rows) == [72] * 4
    with pytest.raises(ValueError, match=r"\[watch\] step: -1, expected an integer"):
        w.at_step(-1)


@pytest.mark.parametrize("layers, expected", [
    ("layers.1", ["layers.1"]), (["layers.[0]"], ["layers.0"]), ([1], ["layers.1"]),
    ("", ["layers.0", "layers.1"]), ([], []),
])
def test_layers_are_chosen(layers, expected):
    with poise.watch(stack(), layers=layers) as w:
        w.model(inputs())
    assert list(w.stats) == expected and not w.unseen


def test_a_module_that_calls_twice_has_two_labels_and_shared_weights_are_told(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()

        def forward(self, x):
            return self.attention(self.attention(x))

    with poise.watch(Twice()) as w:
        w.model(inputs())
        w.model(inputs())
    assert list(w.stats) == ["attention", "attention#2"]
    path = w.report(tmp_path / "report.json")
    assert json.loads(path.read_text())["rules"]["layers_share_weights"] is True


@pytest.mark.parametrize("compute", ["torch", "poise"])
def test_the_transformer_encoder_of_torch_is_seen(compute):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, keys = inputs(), ~padding(12, 5, 9)[:, 0, 0]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = model(x, src_key_padding_mask=keys)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    with torch.no_grad(), poise.watch(model, compute=compute) as w:
        assert not torch.backends.mha.get_fastpath_enabled()
        out = model(x, src_key_padding_mask=keys)
    assert torch.backends.mha.get_fastpath_enabled()
    if compute == "torch":
        assert torch.equal(out, expected)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert list(w.stats) == ["layers.0.self_attn", "layers.1.self_attn"] and not w.unseen
    assert list(w.stats["layers.0.self_attn"].rows) == [26] * 4


def test_attention_by_other_means_is_listed():
    model = nn.Sequential(nn.MultiheadAttention(32, 4, batch_first=True), Attention())
    model.forward = lambda x: model[1](model[0](x, x, x, need_weights=True)[0])
    with pytest.warns(UserWarning, match="1 attention modules made no call.* 0:"):
        with poise.watch(model) as w:
            model(inputs())
    assert w.unseen == ["0"] and list(w.stats) == ["1"]


@pytest.mark.filterwarnings("ignore:Dynamo")
@pytest.mark.parametrize("compute", ["torch", "poise"])
@pytest.mark.parametrize("compiled", ["all", "a layer", "a layer in place", "torch.func"])
def test_what_runs_in_a_graph_is_listed(compute, compiled):
    model, x = stack(), inputs()
    run, unseen = model, ["layers.0", "layers.1"]
    if compiled == "all":
        run = torch.compile(model, backend="eager")
    elif compiled == "a layer":
        model.layers[0], unseen = torch.compile(model.layers[0], backend="eager"), None
    elif compiled == "a layer in place":
        model.layers[0].compile(backend="eager")
        unseen = ["layers.0"]
    else:
        weights = dict(model.named_parameters())
        run = torch.func.grad(lambda x: torch.func.functional_call(model, weights, x).sum())
    with pytest.warns(UserWarning, match="made no call that could be watched.*compiled graph"):
        with poise.watch(model, compute=compute) as w:
            for _ in range(2):
                run(x)
    if unseen is None:  # under the name of what wraps it
        assert w.unseen and all(name.startswith("layers.0") for name in w.unseen)
    else:
        assert w.unseen == unseen
    assert list(w.stats) == ["layers.1"][:2 - len(w.unseen)]


def test_a_model_without_attention_is_told_of():
    with pytest.warns(UserWarning, match="Linear made no attention call"):
        with poise.watch(nn.Linear(2, 2)) as w:
            w.model(torch.ones(1, 2))


def test_poise_use_inside_is_seen():
    model, x = stack(), inputs()
    with poise.use():
        expected = bits(model(x))
    with poise.watch(model) as w, poise.use() as u:
        assert bits(model(x)) == expected
    assert u.taken == 2 and list(w.stats) == ["layers.0", "layers.1"]


def test_copies_of_a_watched_model_are_not_watched():
    model, x = stack(), inputs()
    with poise.watch(model) as w:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        expected = bits(model(x))
        for other in copies:
            assert bits(other(x)) == expected
    assert w.step == 0 and len(w.history) == 2


def test_calls_outside_the_model_and_after_the_block_are_left_alone():
    model, x = stack(), inputs()
    q = torch.randn(1, 2, 5, 8)
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    with poise.watch(model) as w:
        F.scaled_dot_product_attention(q, q, q)
    assert not w.stats and hooks == sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    model(x)
    assert not w.stats
    with pytest.raises(ValueError, match="nothing was measured"):
        w.report()


def test_it_is_an_object_too_and_survives_an_error_of_the_model():
    model = stack()
    w = poise.watch(model).start()
    with pytest.raises(ValueError, match="running already"):
        w.start()
    with pytest.raises(RuntimeError):
        model(torch.randn(1, 3, 5))
    model(inputs())
    w.stop()
    w.stop()
    assert w.step == 1  # the call that failed was a step, and has ended
    assert list(w.stats) == ["layers.0", "layers.1"]
    assert torch.backends.mha.get_fastpath_enabled()


class Ragged(Attention):
    """Attention over sequences of different lengths in one tensor, which poise refuses."""

    def forward(self, x, mask=None):
        q, k, v = (torch.nested.nested_tensor(list(tensor.transpose(1, 2)), layout=torch.jagged)
                   .transpose(1, 2) for tensor in self.split(x))
        out = F.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).to_padded_tensor(0.0).flatten(2)


def test_what_cannot_be_measured_is_counted_and_told():
    model, x = Stack(Ragged()), inputs()
    with torch.no_grad():
        expected = bits(model(x))
        with pytest.warns(UserWarning, match="was not measured: layers.0: .*query"):
            with poise.watch(model) as w:
                assert bits(model(x)) == expected
        assert list(w.refused.values()) == [1] and not w.stats
        with pytest.raises((TypeError, ValueError), match="query"):
            with poise.watch(model, compute="poise"):
                model(x)
        with poise.watch(model, compute="poise", on_unsupported="fallback") as w:
            assert bits(model(x)) == expected
        assert list(w.refused.values()) == [1]


@pytest.mark.parametrize("compute", ["torch", "poise"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_is_measured_once(compute, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Stack):
        def forward(self, x, mask=None):
            for layer in self.layers:
                x = x + checkpoint(layer, x, mask, use_reentrant=reentrant)
            return x

    model, x = Checkpointed(*stack().layers), inputs()
    with poise.watch(model, compute=compute, layers=[]):
        expected = run(model, x)
    with poise.watch(model, stats="full", compute=compute) as w:
        assert run(model, x) == expected
    assert w.step == 0 and list(w.stats) == ["layers.0", "layers.1"]
    assert list(w.stats["layers.0"].rows) == [36] * 4
    # The first of two passes of reentrant checkpointing records no gradients.
    assert np.isfinite(w.stats["layers.0"].transmission).all() == (not reentrant)


@pytest.mark.parametrize("options, sentence", [
    ({"every": 0}, "every: 0, expected an integer from 1"),
    ({"layers": ["layer.7"]}, "layers: 'layer.7' matches no module"),
    ({"compute": "jax"}, "compute: 'jax', expected"), ({"stats": "off"}, "nothing is measured"),
    ({"stats": "deep"}, "stats: level 'deep'"), ({"process": ""}, None),
])
def test_bad_arguments_are_refused(options, sentence, tmp_path):
    if sentence is None:
        options, sentence = {**options, "log": tmp_path / "l"}, "process: '', expected text"
    with pytest.raises(ValueError, match=sentence):
        poise.watch(stack(), **options)


def test_no_model_is_refused():
    with pytest.raises(TypeError, match="model: str, expected a torch.nn.Module"):
        poise.watch("model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(stack())
    with pytest.raises(ValueError, match="model: compiled"):
        poise.watch(compiled)
    in_place = stack()
    in_place.compile(backend="eager")
    with pytest.raises(ValueError, match="model: compiled in place"):
        poise.watch(in_place)


@pytest.mark.parametrize("compute", ["torch", "poise"])
def test_what_was_measured_is_freed(compute):
    """An interpreter that ends tells of objects that nobody can free."""
    code = f"""
import torch, poise
poise._core.set_leak_warnings(True)
model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0)
for backward in (False, True):
    with poise.watch(model, stats="full", compute={compute!r}) as w:
        out = model(torch.randn(2, 5, 32))
        if backward:
            out.sum().backward()
assert w.stats
del w, out
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0 and "leaked" not in told.stderr, told.stderr
