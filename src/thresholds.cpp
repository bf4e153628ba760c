// Every threshold of every rule with its meaning and source, for faces that print the rules.
//
// In: Thresholds. Out: one line per member. A member added to health.h gets its line here; a test
// counts them. The rules themselves: verdicts_*.cpp.
#include <poise/health.h>

namespace poise {

std::vector<ThresholdInfo> list_thresholds(const Thresholds& t) {
  const char* half_precision =
      "IEEE 754 binary16: largest finite value 65504, ties round up at 65520";
  const char* blow_ups =
      "attention logits > 1e4 preceded every divergence in Wortsman et al. 2309.14322; "
      "> 5e4 in ViT-22B, Dehghani et al. 2302.05442";
  const char* sixteen_bit =
      "derived: rounding errors at that size reach 1/16 (warn) and 1/4 (bad) of a nat";
  const char* ties = "biased rounding of P V in bf16 with several keys at the maximum: 2510.04212";
  const char* random_energy =
      "random-energy model, freezing at sigma = sqrt(2 ln n): Giorlandino & Goldt 2505.24333";
  return {
      {"f16_overflow", t.f16_overflow, "|q·k| that rounds to infinity in float16: critical",
       half_precision},
      {"f16_warn", t.f16_warn, "|q·k| within one bit of it: warn", half_precision},
      {"bf16_score_warn", t.bf16_score_warn, "|logit| where scores are stored in bfloat16: warn",
       sixteen_bit},
      {"bf16_score_bad", t.bf16_score_bad, "|logit| where scores are stored in bfloat16: bad",
       sixteen_bit},
      {"f16_score_warn", t.f16_score_warn, "|logit| where scores are stored in float16: warn",
       sixteen_bit},
      {"f16_score_bad", t.f16_score_bad, "|logit| where scores are stored in float16: bad",
       sixteen_bit},
      {"tie_share", t.tie_share, "share of rows with a near tie at the maximum: warn", ties},
      {"tie_rows", t.tie_rows, "and at least this many rows", ties},
      {"exploding_bad", t.exploding_bad, "|logit|: bad", blow_ups},
      {"exploding_critical", t.exploding_critical, "|logit|: critical", blow_ups},
      {"hot_watch", t.hot_watch, "largest signed score: watch",
       "half of hot_bad; also the softcap of Gemma 2"},
      {"hot_bad", t.hot_bad, "largest signed score: bad; tau of QK-clip",
       "Kimi K2, 2507.20534: QK-clip with tau = 100"},
      {"saturated_share", t.saturated_share, "share of rows with top-1 > .99: saturated",
       "derived: the median row is one-hot"},
      {"saturated_trace", t.saturated_trace, "median tr J of the softmax: saturated",
       "derived: tr J = .02 is top-1 = .99 over one competitor"},
      {"saturated_x", t.saturated_x, "sigma / sqrt(2 ln n): only above it is the spread to blame",
       random_energy},
      {"peaked_place_share", t.peaked_place_share,
       "share of rows whose arg-max is at one offset or in one column: peaked by design",
       "derived: heads that look at a position, common in trained models"},
      {"peaked_rows", t.peaked_rows, "and at least this many rows",
       "derived: a few rows agree on a place by chance"},
      {"sink_weight", t.sink_weight, "mean weight of one key: sink",
       "Gu et al. 2410.10781: 92-99 % of heads in 7-8B models have such a column"},
      {"diffuse_kl", t.diffuse_kl, "mean KL from uniform in nats: diffuse",
       "derived: sigma^2 / 2 at sigma = .32"},
      {"dead_gain", t.dead_gain, "median gain |J|_F n / sqrt(n - 1), 1 for a uniform row: dead",
       "derived: a tenth of the gradient that a uniform row passes"},
      {"dead_transmission", t.dead_transmission,
       "measured transmission over that of independent dP, root mean squares over rows: dead",
       "derived: E |J dP|^2 / |dP - mean|^2 = |J|_F^2 / (n - 1) over independent dP; below a "
       "quarter "
       "of its root the values hide what the softmax would pass"},
      {"target_x", t.target_x, "sigma* / sqrt(2 ln n) that remedies aim at; sigma* = 1 untrained",
       random_energy},
  };
}

}  // namespace poise
