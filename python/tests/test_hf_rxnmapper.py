"""rxnmapper's ALBERT, whose twelve layers share their weights, through poise by one line.

In: the model that PyPI's rxnmapper ships. Out: the hidden states of torch's attention. Must not
happen here: an import of rxnmapper, whose own requirements are older than what is tested.
"""

import importlib.util
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import pytest

import poise

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
spec = importlib.util.find_spec("rxnmapper")
if spec is None:
    pytest.skip("rxnmapper is not installed", allow_module_level=True)
import poise.hf  # noqa: E402

FOLDER = (pathlib.Path(spec.submodule_search_locations[0]) / "models" / "transformers"
          / "albert_heads_8_uspto_all_1310k")
pytestmark = pytest.mark.filterwarnings("ignore")


@torch.no_grad()
def test_rxnmapper_by_one_line():
    torch.manual_seed(0)
    model = transformers.AlbertModel.from_pretrained(
        FOLDER, attn_implementation="sdpa", local_files_only=True).eval()
    ids = torch.randint(20, 200, (2, 40))
    mask = torch.ones_like(ids)
    mask[1, 25:] = 0
    expected = model(ids, attention_mask=mask).last_hidden_state[mask.bool()]
    model.set_attn_implementation("poise")
    with poise.watch(model) as w:
        found = model(ids, attention_mask=mask).last_hidden_state[mask.bool()]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    cosine = torch.nn.functional.cosine_similarity(expected.double(), found.double())
    assert (1 - cosine).abs().max() < 1e-5
    assert len(w.stats) == 12 and not w.unseen
    assert all(list(stats.rows) == [65] * 8 for stats in w.stats.values())
