// Growth over steps: the fit against runs whose crossing is known, noise, outliers, runs that do
// not grow; the rule "hot" over time; the first sick head. ctest-labels: fast unit
#include <poise/series.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/made_run.h"
#include "support/rng.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::head_of_spread;
using test::layer_of;
using test::MadeRun;
using test::Rng;

constexpr double kTau = 100, kNaN = std::numeric_limits<double>::quiet_NaN();

template <class Score>
Growth fit(int points, std::int64_t stride, Score score) {
  std::vector<std::int64_t> steps;
  std::vector<double> scores;
  for (int i = 0; i < points; ++i) {
    steps.push_back(stride * i);
    scores.push_back(score(i));
  }
  return fit_growth(steps, scores, kTau);
}

TEST(growth, an_exponential_is_fitted_exactly_and_its_crossing_is_the_true_one) {
  const Growth g = fit(12, 100, [](int i) { return 3 * std::exp(0.2 * i); });
  EXPECT_EQ(g.points, 6);
  EXPECT_TRUE(g.grows);
  EXPECT_NEAR(g.rate, 0.002, 1e-12);
  EXPECT_NEAR(g.level, 3 * std::exp(2.2), 1e-9);
  EXPECT_NEAR(g.eta_step, std::log(kTau / 3) / 0.002, 1e-6);
  EXPECT_EQ(g.crossed_step, -1);
}

TEST(growth, noise_moves_the_crossing_by_little_and_an_outlier_by_less) {
  Rng rng(3);
  const double truth = std::log(kTau / 3) / 0.002;
  int within = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const auto noisy = [&](int i) { return 3 * std::exp(0.02 * i + 0.05 * rng.normal()); };
    const Growth g = fit(100, 10, noisy);
    ASSERT_TRUE(g.grows);
    within += std::fabs(g.eta_step - truth) < 0.05 * truth ? 1 : 0;
  }
  EXPECT_GE(within, 48);
  const Growth spiked =
      fit(100, 10, [](int i) { return 3 * std::exp(0.02 * i) * (i % 9 == 4 ? 8 : 1); });
  EXPECT_NEAR(spiked.rate, 0.002, 1e-4) << "one point in nine is eight times too large";
}

TEST(growth, a_run_that_does_not_grow_has_no_crossing) {
  EXPECT_TRUE(std::isnan(fit(20, 10, [](int) { return 60.0; }).eta_step)) << "constant";
  EXPECT_TRUE(std::isnan(fit(20, 10, [](int i) { return 60 - i; }).eta_step)) << "falling";
  // It grew and has calmed down: the later half tells.
  EXPECT_TRUE(std::isnan(fit(20, 10, [](int i) { return std::min(60, 3 + 8 * i); }).eta_step));
  Rng rng(9);
  int alarms = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto noise = [&](int) { return 60 * std::exp(0.05 * rng.normal()); };
    alarms += std::isnan(fit(40, 10, noise).eta_step) ? 0 : 1;
  }
  EXPECT_LE(alarms, 12) << "of 400 runs of noise, one in a hundred is the rule";
}

TEST(growth, too_few_or_unusable_points_give_no_fit) {
  EXPECT_EQ(fit(kGrowthPoints - 1, 1, [](int i) { return 1.0 + i; }).points, 0);
  EXPECT_EQ(fit(kGrowthPoints, 1, [](int i) { return 1.0 + i; }).points, kGrowthPoints);
  EXPECT_EQ(fit(20, 1, [](int i) { return -1.0 - i; }).points, 0) << "no logarithm";
  const Growth gaps = fit(24, 100, [](int i) { return i % 2 ? 3 * std::exp(0.1 * i) : kNaN; });
  EXPECT_NEAR(gaps.eta_step, std::log(kTau / 3) / 0.001, 1e-6);
  EXPECT_EQ(fit_growth({}, {}, kTau).points, 0);
}

TEST(growth, a_crossing_too_far_ahead_is_not_foretold) {
  // The window is 500 steps long and believed for 5000 more.
  const auto eta = [](double rate) {
    return fit(12, 100, [rate](int i) { return std::exp(rate * 100 * i); }).eta_step;
  };
  EXPECT_NEAR(eta(std::log(kTau) / 6099), 6099, 1e-6);
  EXPECT_TRUE(std::isnan(eta(std::log(kTau) / 6101)));
}

TEST(growth, a_crossing_that_has_happened_is_told_by_its_step) {
  const Growth g = fit(12, 100, [](int i) { return 30.0 + 10 * i; });
  EXPECT_EQ(g.crossed_step, 800) << "100 itself is not above 100";
  EXPECT_TRUE(std::isnan(g.eta_step));
  EXPECT_EQ(growth_text(g, kTau), "was first above 100 at step 800");
}

TEST(growth, many_points_cost_no_more_than_128) {
  const Growth g = fit(100000, 1, [](int i) { return 3 * std::exp(3e-5 * i); });
  EXPECT_LE(g.points, 128);
  EXPECT_NEAR(g.eta_step, std::log(kTau / 3) / 3e-5, 1);
}

TEST(growth, the_made_run_crosses_where_its_scores_truly_do) {
  const MadeRun run(1.3);
  const ReportInput input = test::input_of({run.log()});
  const Report report = build_report(input);
  const double start =
      run.measure(MadeRun::kGrowingLayer, 0).heads[MadeRun::kGrowingHead].scores.max;
  const double truth = MadeRun::kStride * std::log(kTau / start) / std::log(1.3);
  ASSERT_EQ(report.series.hot_layer, MadeRun::kGrowingLayer);
  const ReportSeriesLayer& layer = report.series.layers[MadeRun::kGrowingLayer];
  EXPECT_EQ(layer.hot_head, MadeRun::kGrowingHead);
  EXPECT_NEAR(layer.growth[MadeRun::kGrowingHead].eta_step, truth, 1e-3);
  for (int head = 0; head < MadeRun::kHeads; ++head) {
    if (head == MadeRun::kGrowingHead) continue;
    EXPECT_TRUE(std::isnan(layer.growth[static_cast<std::size_t>(head)].eta_step)) << head;
  }
  const Report steady = build_report(test::input_of({MadeRun(1).log()}));
  EXPECT_EQ(steady.series.hot_layer, -1);
  EXPECT_EQ(steady.series.sick_layer, -1);
}

TEST(growth, the_first_sick_head_is_the_one_a_look_at_every_step_finds) {
  const MadeRun run(1.5);
  const Report report = build_report(test::input_of({run.log()}));
  std::int64_t first = -1;
  VerdictKind kind{};
  for (int i = 0; i < MadeRun::kSteps && first < 0; ++i) {
    for (int layer = 0; layer < MadeRun::kLayers; ++layer) {
      for (const HeadHealth& head : judge(run.measure(layer, i)).heads) {
        if (head.severity < Severity::bad) continue;
        EXPECT_EQ(layer, MadeRun::kGrowingLayer);
        EXPECT_EQ(head.head, MadeRun::kGrowingHead);
        first = MadeRun::step(i);
        kind = head.verdict;
      }
    }
  }
  ASSERT_GT(first, 0);
  ASSERT_EQ(report.series.sick_layer, MadeRun::kGrowingLayer);
  const SeriesPoint& point = report.series.layers[MadeRun::kGrowingLayer]
                                 .layer.points[static_cast<std::size_t>(report.series.sick_point)];
  EXPECT_EQ(point.step, first);
  EXPECT_EQ(point.sick_head, MadeRun::kGrowingHead);
  EXPECT_EQ(point.sick_kind, kind);
  EXPECT_EQ(report.series.sick_name, "L1 H2");
}

TEST(growth, the_rule_hot_speaks_over_time) {
  const Growth soon = fit(12, 100, [](int i) { return 3 * std::exp(0.2 * i); });
  const std::string text = growth_text(soon, kTau);
  EXPECT_EQ(text, "doubles every 347 steps and reaches 100 at about step 1753");

  HeadHealth cool = judge(layer_of({head_of_spread(1)}).stats).heads[0];
  judge_growth(soon, {}, &cool);
  ASSERT_EQ(cool.flags.size(), 1u);
  EXPECT_EQ(cool.severity, Severity::watch);
  EXPECT_EQ(cool.verdict, VerdictKind::hot);
  EXPECT_EQ(cool.flags[0].evidence, "The largest score is 3; it " + text);

  HeadStats warm = head_of_spread(1);
  warm.scores.max = 60;
  HeadHealth watched = judge(layer_of({warm}).stats).heads[0];
  judge_growth(soon, {}, &watched);
  ASSERT_EQ(watched.flags.size(), 1u) << "one flag, with more evidence";
  EXPECT_EQ(watched.flags[0].evidence, "The largest score is 60 (limit 50); it " + text);

  HeadHealth worse = judge(layer_of({head_of_spread(30)}).stats).heads[0];
  const VerdictKind verdict = worse.verdict;
  judge_growth(soon, {}, &worse);
  EXPECT_EQ(worse.verdict, verdict) << "a bad flag stays the verdict";

  HeadHealth steady = judge(layer_of({head_of_spread(1)}).stats).heads[0];
  judge_growth(fit(12, 100, [](int) { return 3.0; }), {}, &steady);
  EXPECT_TRUE(steady.flags.empty());
  judge_growth(fit(12, 100, [](int i) { return i < 3 ? 200.0 : 3.0; }), {}, &steady);
  EXPECT_TRUE(steady.flags.empty()) << "it was hot and has come down";
}

TEST(growth, a_point_of_a_series_holds_what_the_heads_read_out) {
  std::vector<HeadStats> heads = {head_of_spread(1), head_of_spread(30)};
  SeriesPoint point = series_point(7, layer_of(heads).stats);
  EXPECT_EQ(point.step, 7);
  EXPECT_EQ(point.max_score, 90);
  EXPECT_EQ(point.head_max_score, (std::vector<double>{3, 90}));
  EXPECT_DOUBLE_EQ(point.above_99, 0.5);
  EXPECT_DOUBLE_EQ(point.entropy_ratio,
                   (heads[0].sum_entropy_ratio + heads[1].sum_entropy_ratio) / 128);
  EXPECT_TRUE(std::isnan(point.transmission)) << "neither measured nor expected";
  EXPECT_EQ(point.sick_head, 1);

  heads[0].sum_expected_transmission_squared = 64 * 0.09;
  heads[1].sum_expected_transmission_squared = 64 * 0.01;
  point = series_point(7, layer_of(heads).stats);
  EXPECT_DOUBLE_EQ(point.transmission, std::sqrt(0.05));
  EXPECT_FALSE(point.transmission_measured);
  heads[0].gradient.measured_rows = 64;
  heads[0].gradient.sum_transmission_squared = 64 * 0.04;
  point = series_point(7, layer_of(heads).stats);
  EXPECT_DOUBLE_EQ(point.transmission, 0.2);
  EXPECT_TRUE(point.transmission_measured);

  point = series_point(0, Stats{});
  EXPECT_TRUE(std::isnan(point.max_score) && std::isnan(point.above_99));
  EXPECT_EQ(point.sick_head, -1);
}

}  // namespace
}  // namespace poise
