// Judging: what a flag says and by which number it corrects, read-outs, order, counts, text.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/health.h>
#include <poise/theory.h>

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/subject.h"

namespace poise::test {
namespace {

using Storage = JudgeContext::Storage;

TEST(Health, precision_and_explosion_are_of_logits_and_heat_is_of_scores) {
  Subject s;
  s.stats.has_softcap = true;
  s.stats.softcap = 30;
  s.head().scores.max = 2000;
  s.head().logits.max = 30;
  s.head().logits.min = -20;
  s.context.scores_stored = Storage::bf16;
  EXPECT_EQ(flags_of(s.judged()), "bad hot, warn precision 16-bit");
  EXPECT_EQ(s.judged().readout.max_score, 2000);
  EXPECT_EQ(s.judged().readout.max_abs_logit, 30);
}

TEST(Health, signed_and_absolute_maximum_are_kept_apart) {
  Subject s;
  s.head().scores.max = 3;
  s.head().scores.min = -700;
  const Readout readout = s.judged().readout;
  EXPECT_EQ(readout.max_score, 3);
  EXPECT_EQ(readout.max_abs_logit, 700);
}

TEST(Health, a_hot_head_splits_its_factor_over_wq_and_wk) {
  Subject s;
  s.head().scores.max = 400;
  const Flag flag = s.judged().flags[0];
  EXPECT_DOUBLE_EQ(flag.factor, 0.5);
  EXPECT_EQ(flag.remedy, "QK-clip, γ = 0.25: Wq and Wk of this head × 0.5 each");
}

TEST(Health, a_head_that_is_hot_through_its_mean_key_alone_is_told_to_subtract_it) {
  Subject s;
  s.head().scores.max = 1500;
  s.head().inputs.q_rows = s.head().inputs.k_rows = 100;
  s.head().inputs.qk_mean = 1400 / s.head().scale;  // 100 are left without it: hot no longer
  const HeadHealth head = s.judged();
  ASSERT_EQ(flags_of(head), "bad exploding, bad hot");
  const Flag& hot = head.flags[1];
  EXPECT_NE(hot.cause.find("The mean vectors of q and k alone give 1400"), std::string::npos);
  EXPECT_NE(hot.remedy.find("Subtract the mean key"), std::string::npos) << hot.remedy;
  EXPECT_NE(hot.remedy.find("γ = 0.0667, would narrow the spread"), std::string::npos);
  EXPECT_TRUE(std::isnan(hot.factor));
  EXPECT_NE(head.flags[0].remedy.find("Subtract the mean key"), std::string::npos);
  s.head().inputs.qk_mean = 1399 / s.head().scale;
  EXPECT_NE(s.judged().flags[1].remedy.find("Wq and Wk of this head"), std::string::npos);
  s.head().scores.max = 140;  // of a small mean, half of the score, QK-clip takes care
  s.head().inputs.qk_mean = 70 / s.head().scale;
  EXPECT_NE(s.judged().flags[0].remedy.find("Wq and Wk of this head"), std::string::npos);
}

TEST(Health, one_hot_head_of_a_group_is_corrected_in_its_own_wq_only) {
  Stats stats = stats_of({healthy_head(), healthy_head(), healthy_head(), healthy_head()});
  stats.kv_heads = 1;
  stats.heads[2].scores.max = 400;
  const Health health = judge(stats);
  ASSERT_EQ(flags_of(health.heads[2]), "bad hot");
  EXPECT_DOUBLE_EQ(health.heads[2].flags[0].factor, 0.25);
  EXPECT_EQ(health.heads[2].flags[0].remedy,
            "QK-clip, γ = 0.25: Wq of this head × 0.25; its key head serves 4 query heads, so "
            "leave Wk");
  EXPECT_EQ(health.counts[static_cast<std::size_t>(Severity::healthy)], 3);
}

TEST(Health, where_layers_share_weights_the_scale_is_changed_and_not_the_weights) {
  Subject s;
  s.context.layers_share_weights = true;
  s.head().scores.max = 400;
  saturate(s, 90, 8);
  for (const Flag& flag : s.judged().flags) {
    EXPECT_TRUE(contains(flag.remedy, "the layers share Wq and Wk")) << flag.remedy;
    EXPECT_FALSE(contains(flag.remedy, "each")) << flag.remedy;
  }
}

TEST(Health, the_factor_brings_the_spread_to_its_target) {
  Subject s;
  saturate(s, 90, 15.2);
  const HeadHealth trained = s.judged();
  const double target = 0.7 * saturation_threshold(kKeys);
  EXPECT_NEAR(trained.readout.target_sigma, target, 1e-12);
  EXPECT_NEAR(trained.flags[0].factor * trained.readout.sigma, target, 1e-12);
  EXPECT_EQ(trained.flags[0].factor, trained.readout.factor);
  s.context.at_initialisation = true;
  EXPECT_NEAR(s.judged().flags[0].factor * trained.readout.sigma, 1, 1e-12);
}

TEST(Health, a_forgotten_division_is_named) {
  Subject s;
  s.head().scale = 1;
  saturate(s, 90, 8);
  const Flag flag = s.judged().flags[0];
  EXPECT_EQ(flag.cause, "The scale is 1: the division by √64 was forgotten");
  EXPECT_TRUE(contains(flag.remedy, "scale 1/√64 = 0.125")) << flag.remedy;
}

TEST(Health, a_dead_head_that_is_not_saturated_gets_its_own_factor) {
  Subject s;
  s.head().scores.sigma = sketch_of(2.5);
  set_gain(s.head(), 0.05);
  const HeadHealth head = s.judged();
  ASSERT_EQ(flags_of(head), "bad dead gradient");
  EXPECT_EQ(head.flags[0].factor, head.readout.factor);
  EXPECT_NE(head.flags[0].remedy.find("brings σ to 2.02"), std::string::npos);
}

TEST(Health, a_sink_is_named_by_its_key_and_the_rest_by_its_entropy) {
  Subject s;
  s.head().tracked[0].sum_weight = 45;
  set_without_sink(s.head(), 1, 0.9, 0);
  EXPECT_EQ(s.judged().flags[0].evidence,
            "Key 0 holds 45 % of the weight (limit 30 %); the other keys have an entropy of 2.5 "
            "nats");
  EXPECT_EQ(s.judged().flags[0].remedy, "Keep key 0 when evicting from a KV cache");
}

void set_moments(HeadStats& head, double norms, double alignment) {
  head.inputs.q_rows = head.inputs.k_rows = kRows;
  head.inputs.q_second_moment = norms;
  head.inputs.k_variance_centred = 1;
  head.inputs.alignment = alignment;
}

TEST(Health, grown_norms_and_alignment_get_different_advice) {
  Subject s;
  saturate(s, 90, 8);
  EXPECT_EQ(s.judged().flags[0].cause, "The scale is the usual 1/√64");
  set_moments(s.head(), 47, 4.8);
  Flag flag = s.judged().flags[0];
  EXPECT_TRUE(contains(flag.cause, "× 47 from norms, × 4.8 from alignment")) << flag.cause;
  EXPECT_TRUE(contains(flag.remedy, "QK-norm")) << flag.remedy;
  set_moments(s.head(), 1.5, 20);
  flag = s.judged().flags[0];
  EXPECT_TRUE(contains(flag.remedy, "a learned temperature, or 1/D")) << flag.remedy;
}

TEST(Health, saturation_without_its_sink_is_corrected_by_the_spread_of_the_rest) {
  Subject s;
  saturate(s, 80, 9);
  s.head().tracked[0].sum_weight = 80;
  set_without_sink(s.head(), 4, 0.01, 0);
  const Flag flag = s.judged().flags[0];
  EXPECT_TRUE(contains(flag.evidence, "Without its sink, key 0: σ 4.0")) << flag.evidence;
  EXPECT_NEAR(flag.factor, 0.7 * saturation_threshold(kKeys - 1) / 4, 0.016);
}

TEST(Health, a_scale_of_one_over_head_dim_is_divided_once_too_often) {
  Subject s;
  s.head().scale = 1.0 / 64;
  s.head().sum_kl = 0.01 * kRows;
  const Flag flag = s.judged().flags[0];
  EXPECT_EQ(flag.cause, "The scale is 1/D: divided by √64 twice, or meant as µP");
  EXPECT_DOUBLE_EQ(flag.factor, 8);
}

TEST(Health, a_head_without_any_spread_gets_no_factor) {
  Subject s;
  s.head().sum_kl = 0;
  s.head().scores.sigma = sketch_of(0);
  const Flag flag = s.judged().flags[0];
  EXPECT_EQ(flag.kind, VerdictKind::diffuse);
  EXPECT_TRUE(std::isnan(flag.factor));
  EXPECT_EQ(flag.remedy, "Look at q and k: no scale changes that");
}

TEST(Health, the_verdict_is_the_most_severe_flag_and_the_first_rule_among_equals) {
  Subject s;
  s.head().scores.max = 2000;
  s.head().max_dot = 33000;
  saturate(s, 90, 8);
  const HeadHealth head = s.judged();
  EXPECT_EQ(flags_of(head), "bad exploding, bad hot, bad saturated, warn overflow fp16");
  EXPECT_EQ(head.verdict, VerdictKind::exploding);
  EXPECT_EQ(head.severity, Severity::bad);
}

TEST(Health, heads_are_counted_by_the_severity_of_their_verdict) {
  Stats stats = stats_of({healthy_head(), healthy_head(), healthy_head()});
  stats.heads[0].scores.max = 400;
  stats.heads[2].sum_kl = 0;
  const Health health = judge(stats);
  EXPECT_EQ(health.counts, (std::array<int, kSeverities>{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(health.worst, Severity::bad);
  EXPECT_EQ(health.heads[1].verdict, VerdictKind::healthy);
}

TEST(Health, heads_without_measured_rows_are_healthy_without_flags) {
  Stats stats = stats_of({HeadStats(), HeadStats()});
  stats.heads[1].rows = stats.heads[1].empty_rows = 5;
  const Health health = judge(stats);
  for (const HeadHealth& head : health.heads) {
    EXPECT_EQ(flags_of(head), "");
    EXPECT_EQ(head.severity, Severity::healthy);
    EXPECT_TRUE(std::isnan(head.readout.sigma));
    EXPECT_TRUE(std::isnan(head.readout.above_99));
    EXPECT_TRUE(std::isnan(head.readout.max_score));
    EXPECT_TRUE(std::isnan(head.readout.f16_headroom_bits));
    EXPECT_EQ(head.readout.sink_key, -1);
  }
}

TEST(Health, rows_of_one_key_alone_can_still_be_too_large) {
  Stats stats = stats_of({HeadStats()});
  stats.heads[0].rows = stats.heads[0].single_rows = 1;
  stats.heads[0].scores.max = stats.heads[0].scores.min = 2e4;
  stats.heads[0].max_dot = stats.heads[0].min_dot = 2e5;
  EXPECT_EQ(flags_of(judge(stats).heads[0]), "critical overflow fp16, critical exploding, bad hot");
}

TEST(Health, level_max_is_judged_by_what_it_holds) {
  HeadStats head;
  head.scale = -1;
  head.rows = head.measured_rows = 20;
  head.sum_log_keys = 20 * std::log(kKeys);
  head.scores.max = 120;
  head.min_dot = -120;  // a negative scale turns the largest score into the smallest dot
  head.rows_above_99 = 20;
  const HeadHealth health = judge(stats_of({head})).heads[0];
  EXPECT_EQ(flags_of(health), "bad hot");
  EXPECT_EQ(health.readout.max_abs_dot, 120);
  EXPECT_TRUE(std::isnan(health.readout.kl));
  EXPECT_TRUE(std::isnan(health.readout.gain));
}

TEST(Health, readouts_are_the_means_medians_and_shares_of_the_statistics) {
  Subject s;
  s.head().rows_above_99 = 20;
  s.head().tracked[2].sum_weight = 11;
  const Readout r = s.judged().readout;
  EXPECT_NEAR(r.sigma, 1, 0.016);
  EXPECT_NEAR(r.keys, kKeys, 1e-9);
  EXPECT_NEAR(r.x, r.sigma / 2.884, 1e-3);
  EXPECT_NEAR(r.f16_headroom_bits, std::log2(65504.0 / 32), 1e-12);
  EXPECT_NEAR(r.entropy_ratio, 0.9, 1e-12);
  EXPECT_NEAR(r.kl, 0.42, 1e-12);
  EXPECT_NEAR(r.above_99, 0.2, 1e-12);
  EXPECT_NEAR(r.gain, 1.4, 0.03);
  EXPECT_EQ(r.sink_key, 2);
  EXPECT_NEAR(r.sink_weight, 0.11, 1e-12);
  EXPECT_EQ(r.argmax_column, 2);
  EXPECT_NEAR(r.argmax_column_share, 0.6, 1e-12);
  EXPECT_EQ(r.argmax_offset, -3);
  EXPECT_EQ(r.measured_rows, kRows);
}

TEST(Health, thresholds_are_configurable) {
  Subject s;
  s.head().scores.max = 60;
  Thresholds thresholds;
  thresholds.hot_watch = 70;
  EXPECT_EQ(flags_of(judge(s.stats, thresholds).heads[0]), "");
  thresholds.target_x = 0.5;
  saturate(s, 90, 8);
  const HeadHealth head = judge(s.stats, thresholds).heads[0];
  EXPECT_NEAR(head.readout.target_sigma, 0.5 * saturation_threshold(kKeys), 1e-12);
}

TEST(Health, every_threshold_is_listed_with_its_meaning_and_source) {
  Thresholds thresholds;
  thresholds.hot_bad = 77;
  const std::vector<ThresholdInfo> list = list_thresholds(thresholds);
  EXPECT_EQ(list.size(), sizeof(Thresholds) / sizeof(double));
  std::set<std::string> names;
  for (const ThresholdInfo& info : list) {
    names.insert(info.name);
    EXPECT_FALSE(info.meaning.empty() || info.source.empty()) << info.name;
    if (info.name == "hot_bad") {
      EXPECT_EQ(info.value, 77);
    }
  }
  EXPECT_EQ(names.size(), list.size());
}

TEST(Health, the_text_counts_heads_and_quotes_every_flag) {
  Stats stats = stats_of({healthy_head(), healthy_head()});
  stats.heads[1].scores.max = 400;
  stats.heads[1].nonfinite_rows = 1;
  EXPECT_EQ(to_text(judge(stats)),
            "2 heads: 1 bad, 1 healthy.\n"
            "H1  1 row with NaN or infinity, left out of every number\n"
            "H1  bad  hot: The largest score is 400 (limit 100).\n"
            "    → QK-clip, γ = 0.25: Wq and Wk of this head × 0.5 each.\n");
  EXPECT_EQ(to_text(Health()), "0 heads: nothing was measured.\n");
}

TEST(Health, evidence_quotes_the_numbers_beside_their_limits) {
  Subject s;
  saturate(s, 59, 15.2);
  s.head().trace = sketch_of(0.015);
  set_gain(s.head(), 0.08);
  const HeadHealth head = s.judged();
  EXPECT_EQ(flags_of(head), "bad saturated, bad dead gradient");
  EXPECT_EQ(head.flags[0].evidence,
            "σ 15.1, 5.24 times the freezing spread √(2 ln 64) (limit 1); 59 % of rows above .99 "
            "on one key (limit 50 %), median tr J 0.015 (limit 0.02)");
  EXPECT_EQ(head.flags[1].factor, head.flags[0].factor);
  EXPECT_EQ(head.flags[1].remedy, "The same factor, × 0.133");
  EXPECT_EQ(head.flags[1].evidence,
            "Median gain 0.0791 (1 uniform, limit 0.1); 100 % of rows pass less than 0.1");
}

TEST(Health, a_head_whose_values_hide_the_gradient_says_so) {
  Subject s;
  set_transmission(s.head(), 0.02, 0.1);
  const HeadHealth head = s.judged();
  ASSERT_EQ(flags_of(head), "bad dead gradient");
  EXPECT_EQ(
      head.flags[0].evidence,
      "Of the gradients sent to the weights 0.02 arrived at the logits, where 0.1 is expected "
      "of independent ones: × 0.2 (limit × 0.25)");
  EXPECT_TRUE(std::isnan(head.flags[0].factor));
  EXPECT_EQ(head.flags[0].remedy,
            "Look at the values and the gradient of the output; no scale changes that");
  EXPECT_EQ(head.readout.transmission, 0.02);
  EXPECT_EQ(head.readout.expected_transmission, 0.1);
  EXPECT_EQ(head.readout.passed_dead, 0);
}

TEST(Health, measured_transmission_stands_beside_a_low_gain) {
  Subject s;
  set_gain(s.head(), 0.08);
  set_transmission(s.head(), 0.001, 0.002);
  EXPECT_EQ(s.judged().flags[0].evidence,
            "Median gain 0.0791 (1 uniform, limit 0.1); 100 % of rows pass less than 0.1. Of the "
            "gradients sent to the weights 0.001 arrived at the logits, where 0.002 is expected of "
            "independent ones: × 0.5 (limit × 0.25)");
}

}  // namespace
}  // namespace poise::test
