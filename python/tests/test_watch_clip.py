"""poise.qk_clip_: scores fall to tau where they exceeded it, and nothing else changes.

In: attention modules of the common layouts with weights made too large. Out: largest scores as the
rule says. Must not happen here: the whole-checkpoint command, which has tests of its own.
"""

import numpy as np
import pytest
from test_watch import Attention, Stack, inputs

import poise

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
TAU = 5.0


class Conv1D(nn.Module):
    """GPT-2's linear layer: weight [in, out]."""

    def __init__(self, out, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, out)), nn.Parameter(
            torch.randn(out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Fused(nn.Module):
    """[q | k | v] from one projection."""

    def __init__(self, name, linear, kv_heads=4):
        super().__init__()
        self.rows = (32, 8 * kv_heads, 8 * kv_heads)
        self.name = name
        setattr(self, name, linear)

    def forward(self, x, mask=None):
        q, k, v = (part.unflatten(-1, (-1, 8)).transpose(1, 2)
                   for part in getattr(self, self.name)(x).split(self.rows, -1))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)


class Bert(Attention):
    def __init__(self):
        super().__init__()
        self.query, self.key = self.q_proj, self.k_proj
        del self.q_proj, self.k_proj

    def split(self, x):
        b, n, _ = x.shape
        return [projection(x).view(b, n, -1, 8).transpose(1, 2)
                for projection in (self.query, self.key, self.v_proj)]


class Torchs(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True, **options)
        if self.attention.in_proj_bias is not None:
            nn.init.normal_(self.attention.in_proj_bias)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def cross(**options):
    model = Torchs(**options)
    model.forward = lambda x: model.attention(x, x[..., :16], x[..., :16], need_weights=False)[0]
    return model


LAYOUTS = {
    "separate": lambda: Attention(), "grouped": lambda: Attention(kv_heads=2), "bert": Bert,
    "gpt2": lambda: Fused("c_attn", Conv1D(96, 32)),
    "fused": lambda: Fused("qkv", nn.Linear(32, 96)),
    "fused, grouped": lambda: Fused("qkv_proj", nn.Linear(32, 64, bias=False), kv_heads=2),
    "torch": Torchs, "torch, without bias": lambda: Torchs(bias=False),
    "torch, other keys": lambda: cross(kdim=16, vdim=16),
}


def scores(model, x):
    with torch.no_grad(), poise.watch(model) as w:
        model(x)
    return w


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_largest_score_falls_to_tau_and_other_heads_keep_theirs(layout):
    torch.manual_seed(0)
    model, x = nn.Sequential(LAYOUTS[layout]()), inputs()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5 if layout == "gpt2" else 5)
    w = scores(model, x)
    (label, stats), = w.stats.items()
    before = stats.max_score
    tau = float(np.sort(before)[1:3].mean())  # two of four heads are above
    values = {name: parameter.clone() for name, parameter in model.named_parameters()}
    gamma = poise.qk_clip_(model, w, tau=tau)[label]
    np.testing.assert_allclose(gamma, np.minimum(1, tau / before))
    after = scores(model, x).stats[label].max_score
    assert (gamma < 1).sum() == 2
    np.testing.assert_allclose(after[gamma < 1], tau, rtol=1e-5)
    assert np.array_equal(after[gamma == 1], before[gamma == 1])
    for name, parameter in model.named_parameters():
        changed = (parameter != values[name]).any().item()
        carries = not any(word in name for word in (".v_proj", "out_proj"))
        shared_key = "grouped" in layout and ".k_proj" in name
        assert changed == (carries and not shared_key), name


def test_grouped_heads_scale_the_query_alone():
    torch.manual_seed(0)
    model, x = nn.Sequential(Fused("qkv", nn.Linear(32, 64), kv_heads=2)), inputs()
    with torch.no_grad():
        model[0].qkv.weight.mul_(9)
    w, before = scores(model, x), model[0].qkv.weight.detach().clone()
    poise.qk_clip_(model, w, tau=TAU)
    after = model[0].qkv.weight
    assert torch.equal(after[32:], before[32:]) and not torch.equal(after[:32], before[:32])


@pytest.mark.parametrize("order", [1, -1])
def test_shared_weights_take_the_smallest_factor(order):
    torch.manual_seed(0)
    shared = Attention()
    model, x = Stack(shared, shared), inputs()
    with torch.no_grad():
        shared.q_proj.weight.mul_(20)
    measured = dict(list(scores(model, x).stats.items())[::order])
    first, second = (measured[label].max_score for label in ("layers.0", "layers.0#2"))
    gamma = poise.qk_clip_(model, measured, tau=TAU)["layers.0"]
    np.testing.assert_allclose(gamma, np.minimum(1, TAU / np.maximum(first, second)))


def test_scores_below_tau_change_nothing():
    model, x = nn.Sequential(Attention()), inputs()
    before = [parameter.clone() for parameter in model.parameters()]
    assert poise.qk_clip_(model, scores(model, x), tau=1e4) == {}
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


class Interleaved(Fused):
    def __init__(self):
        super().__init__("query_key_value", nn.Linear(32, 96))


class Normed(Attention):
    def __init__(self):
        super().__init__()
        self.q_norm = nn.LayerNorm(8)


@pytest.mark.parametrize("layer, sentence", [
    (Interleaved, "1: Interleaved has a layout that is not known .inside: query_key_value"),
    (Normed, r"1: Normed normalises query or key after the projection \(q_norm\)"),
])
def test_unknown_layouts_are_refused_by_name_and_nothing_is_written(layer, sentence):
    torch.manual_seed(0)
    model, x = nn.Sequential(Attention(), layer()), inputs()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    w = scores(model, x)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=r"\[qk_clip_\] " + sentence):
        poise.qk_clip_(model, w, tau=0.01)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_another_model_and_bad_numbers_are_refused():
    model = nn.Sequential(Attention())
    w = scores(model, inputs())
    with pytest.raises(ValueError, match="0: the model has no such module"):
        poise.qk_clip_(nn.ModuleDict({"a": Attention()}), w, tau=1e-3)
    with pytest.raises(ValueError, match="32 outputs of q and 32 of k; 4 and 2 heads"):
        poise.qk_clip_(model, scores(nn.Sequential(Attention(kv_heads=2)), inputs()), tau=1e-3)
    for tau in (0, -1, float("nan"), "100"):
        with pytest.raises(ValueError, match="tau: "):
            poise.qk_clip_(model, w, tau=tau)
    with pytest.raises(TypeError, match="model: str, expected a torch.nn.Module"):
        poise.qk_clip_("model", w)
    for what in (3, w.history, {"0": 3}, {0: w.stats["0"]}):
        with pytest.raises(TypeError, match="w: .*expected a watch or {name: Stats}"):
            poise.qk_clip_(model, what)
