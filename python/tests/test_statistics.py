"""Statistics, verdicts and the report from Python.

In: calls that measure. Out: read-outs that NumPy computes too, JSON that comes back to the bit.
Must not happen here: a bit of a result that changes because it was measured.
"""

import copy
import json
import pickle

import numpy as np
import pytest
import reference

import poise


def measured(qkv, level="full", **options):
    q, k, v = qkv((2,), 4, 2, 64, 96, 16)
    return poise.attention(q, k, v, return_aux=poise.AuxRequest(stats=level), **options)


@pytest.mark.parametrize("level", ["max", "core", "full"])
def test_measuring_changes_no_bit(qkv, level):
    q, k, v = qkv((2,), 4, 2, 64, 96, 16)
    out, aux = measured(qkv, level)
    assert out.tobytes() == poise.attention(q, k, v).tobytes()
    assert aux.stats.level == level and aux.stats.heads == 4 and aux.lse is None


def test_readouts_are_what_numpy_computes(qkv):
    q, k, v = qkv((2,), 4, 2, 64, 96, 16)
    _, aux = measured(qkv)
    _, lse, weights = reference.attention(q, k, v)
    scores = (q.astype(np.float64) @ np.repeat(k, 2, 1).swapaxes(-1, -2)) / 4
    entropy = -(weights * np.log(weights)).sum(-1)
    stats = aux.stats
    assert stats.rows.dtype == np.int64 and list(stats.rows) == [128] * 4
    np.testing.assert_allclose(stats.entropy, entropy.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(stats.score_variance, scores.var(-1).mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(stats.max_score, scores.max((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(stats.lse_max, lse.max((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(stats.top1, weights.max(-1).mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(stats.trace, (1 - (weights**2).sum(-1)).mean((0, 2)), rtol=1e-5)
    median = np.median(scores.std(-1), axis=(0, 2))
    np.testing.assert_allclose(stats.quantile("sigma", 0.5), median, rtol=0.03)
    np.testing.assert_allclose(stats.readout()["sigma"], median, rtol=0.03)
    counts, edges = stats.histogram()
    for head in range(4):
        expected = np.histogram(scores[:, head], edges)[0]
        assert np.abs(counts[head] - expected).sum() <= 4  # scores on an edge may round over it
    with pytest.raises(ValueError, match="quantile.*name: 'median'"):
        stats.quantile("median", 0.5)


@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_the_share_of_the_sink_counts_rows_with_one_key_too(qkv, causal):
    q, k, v = qkv((2,), 2, 2, 3, 4, 8, dtype=np.float64)
    sinks = np.array([0.5, -1.0])
    _, aux = poise.attention(q, k, v, causal=causal, sinks=sinks, return_aux=poise.AuxRequest(
        lse=True, stats=True))
    share = np.exp(sinks[:, None] - aux.lse)
    np.testing.assert_allclose(aux.stats.sink_weight, share.mean((0, 2)), rtol=1e-12)
    _, aux = poise.attention(q, k[:, :, :1], v[:, :, :1], sinks=sinks, return_aux=poise.AuxRequest(
        lse=True, stats=True))
    share = np.exp(sinks[:, None] - aux.lse)
    np.testing.assert_allclose(aux.stats.sink_weight, share.mean((0, 2)), rtol=1e-12)


def test_json_and_pickle_lose_no_bit(qkv):
    _, aux = measured(qkv)
    text = aux.stats.to_json()
    again = poise.Stats.from_json(text)
    assert again == aux.stats and again.to_json() == text
    assert pickle.loads(pickle.dumps(aux.stats)) == aux.stats == copy.deepcopy(aux.stats)
    assert poise.Stats() != aux.stats


def test_stats_merge_and_refuse_strangers(qkv):
    _, aux = measured(qkv)
    total = poise.Stats()
    total.merge(aux.stats)
    assert total == aux.stats
    total.merge(aux.stats)
    assert list(total.rows) == [256] * 4
    _, other = measured(qkv, "core")
    before = total.to_json()
    with pytest.raises(ValueError):
        total.merge(other.stats)
    assert total.to_json() == before


def test_names_that_have_no_encoding_are_replaced(qkv):
    q, k, v = qkv((2,), 4, 2, 6, 9, 8)
    _, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(stats=True))
    assert "caf?" in poise.report({"caf\udce9": aux.stats}, title="\udcff").to_text()


def test_everything_says_what_it_is(qkv):
    q, k, v = qkv((2,), 4, 2, 6, 9, 8)
    request = poise.AuxRequest(lse=True, state=True, stats="full")
    out, aux = poise.attention(q, k, v, return_aux=request)
    assert repr(request) == "AuxRequest(lse=True, stats='full', state=True)"
    assert repr(aux) == "Aux(lse, row_max, row_sum, stats)"
    assert repr(poise.StatsRequest("max", every=2)) == "StatsRequest('max', every=2)"
    assert repr(aux.stats) == "Stats(level='full', heads=4)"
    assert repr(poise.judge(aux.stats)).startswith("Health(heads=4, worst='")
    assert repr(poise.report(aux.stats)).startswith("Report(layers=1, worst='")
    assert repr(poise.AuxRequest(stats=None)) == "AuxRequest()"


def test_a_request_says_what_is_measured(qkv):
    request = poise.StatsRequest("full", every=4, histogram_low=-1, histogram_width=0.5)
    _, aux = measured(qkv, request)
    assert aux.stats.request.every == 4 and aux.stats.rows[0] < 128
    assert list(aux.stats.histogram()[1][:2]) == [-1, -0.5]


def test_backward_adds_gradient_statistics(qkv):
    q, k, v = qkv((2,), 4, 2, 64, 96, 16)
    out, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(stats="full", state=True))
    dout = np.random.default_rng(5).standard_normal(out.shape).astype(np.float32)
    assert np.isnan(aux.stats.transmission).all()
    got = poise.backward(q, k, v, out, dout, row_max=aux.row_max, row_sum=aux.row_sum,
                         stats=aux.stats)
    assert got.stats is aux.stats
    np.testing.assert_allclose(aux.stats.transmission, aux.stats.expected_transmission, rtol=0.2)
    norms = np.sqrt((got.dq.astype(np.float64) ** 2).sum((0, 2, 3)))
    np.testing.assert_allclose(aux.stats.dq_norm, norms, rtol=1e-5)


def test_wide_heads_are_judged_saturated_and_scaled_ones_are_not(qkv):
    q, k, v = qkv((2,), 2, 2, 256, 256, 128)
    _, wide = poise.attention(q, k, v, scale=4.0, return_aux=poise.AuxRequest(stats="full"))
    _, good = poise.attention(q, k, v, return_aux=poise.AuxRequest(stats="full"))
    sick, well = poise.judge(wide.stats), poise.judge(good.stats)
    flag = next(flag for flag in sick.heads[0].flags if flag.kind == "saturated")
    assert 0 < flag.factor < 1 and flag.evidence and flag.remedy and sick.worst == "bad"
    assert well.worst == "healthy" and well.counts["healthy"] == 2 and not well.heads[0].flags
    assert poise.to_text(sick) == str(sick) and "saturated" in str(sick)
    with pytest.raises(ValueError, match="scores_stored: 'int4'"):
        poise.judge(wide.stats, scores_stored="int4")


def test_the_report_has_three_faces(qkv):
    q, k, _ = qkv((2,), 4, 2, 64, 96, 16)
    _, aux = measured(qkv)
    aux.stats.measure_inputs(q, k)
    layers = {"encoder <0>": aux.stats, "encoder 1": aux.stats}
    report = poise.report(layers, title="two & two", tokens=["a", "b"])
    data = json.loads(report.to_json())
    assert data == json.loads(poise.to_json(report))
    page = poise.to_html(report)
    assert "encoder &lt;0&gt;" in page and "two &amp; two" in page and "encoder <0>" not in page
    text = report.to_text(unicode=False, width=80, all_heads=True)
    assert text.isascii() and "encoder" in text and report.headline
    assert poise.to_text(aux.stats) == poise.report([aux.stats]).to_text()
    with pytest.raises(TypeError, match="int at 1, expected Stats"):
        poise.report([aux.stats, 3])
    with pytest.raises(ValueError, match="labels: 1, expected one for each of 2"):
        poise.report([aux.stats, aux.stats], labels=["a"])
