// The figures of the lesson "why divide by sqrt(d_k)", through poise::attention: worked examples of
// the softmax, the variance of a dot product against its width, the histogram of scaled scores.
// ctest-labels: fast laws
#include <gtest/gtest.h>
#include <poise/attention.h>
#include <poise/health.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "support/rng.h"

namespace poise::test {
namespace {

// One query of one component, 1, so that the keys are the dots.
struct Example {
  std::vector<double> weights;
  double lse = 0;
  HeadStats stats;

  Example(const std::vector<double>& dots, double scale) : weights(dots.size()) {
    const auto n = static_cast<std::int64_t>(dots.size());
    const double query = 1;
    const std::vector<double> value(dots.size());
    double out = 0;
    Stats measured;
    measured.request.level = StatsLevel::full;
    const Tensor lse_view = view(&lse, {1, 1, 1}),
                 weights_view = view(weights.data(), {1, 1, 1, n});
    Extras extras;
    extras.stats = &measured;
    extras.lse = &lse_view;
    extras.weights = &weights_view;
    Options options;
    options.scale = scale;
    const Error error =
        attention(view(&query, {1, 1, 1, 1}), view(dots.data(), {1, 1, n, 1}),
                  view(value.data(), {1, 1, n, 1}), view(&out, {1, 1, 1, 1}), options, extras);
    EXPECT_FALSE(error) << error.message();
    if (!error) stats = measured.heads[0];
  }
};

TEST(Lesson, softmax_of_1_5_10) {
  const Example e({1, 5, 10}, 1);
  EXPECT_NEAR(e.weights[0], 0.000122569, 5e-10);
  EXPECT_NEAR(e.weights[1], 0.00669203, 5e-9);
  EXPECT_NEAR(e.weights[2], 0.993185, 5e-7);
  char text[64];
  std::snprintf(text, sizeof text, "[%.3f, %.3f, %.3f]", e.weights[0], e.weights[1], e.weights[2]);
  EXPECT_STREQ(text, "[0.000, 0.007, 0.993]");
  EXPECT_NEAR(e.lse, 10.006838, 5e-7);
  EXPECT_NEAR(e.stats.sum_entropy, 0.041401, 5e-7);
  EXPECT_NEAR(e.stats.sum_trace, 0.013538, 5e-7);
  EXPECT_NEAR(e.stats.sum_frobenius, 0.013356, 5e-7);
}

TEST(Lesson, the_same_scores_divided_by_8_pass_44_times_the_gradient) {
  const Example e({1, 5, 10}, 0.125);
  EXPECT_NEAR(e.weights[0], 0.174552, 5e-7);
  EXPECT_NEAR(e.weights[1], 0.287788, 5e-7);
  EXPECT_NEAR(e.weights[2], 0.537659, 5e-7);
  EXPECT_NEAR(e.stats.sum_trace, 0.597632, 5e-7);
  EXPECT_NEAR(e.stats.sum_trace / Example({1, 5, 10}, 1).stats.sum_trace, 44, 0.5);
}

TEST(Lesson, a_dot_of_112_becomes_14_beside_12) {
  const Example scaled({112, 96}, 1 / std::sqrt(64.0));
  EXPECT_EQ(scaled.stats.scores.max, 14);
  EXPECT_EQ(scaled.stats.scores.min, 12);
  EXPECT_EQ(scaled.stats.max_dot, 112);
  EXPECT_NEAR(scaled.weights[0], 0.880797, 5e-7);
  EXPECT_NEAR(scaled.weights[1], 0.119203, 5e-7);
  EXPECT_NEAR(scaled.stats.sum_trace, 0.209987, 5e-7);
  EXPECT_NEAR(Example({112, 96}, 1).weights[1], 1.125e-7, 5e-11);
}

TEST(Lesson, softmax_of_1_1_1_5) {
  const Example e({1, 1, 1, 5}, 1);
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(e.weights[j], 0.0173617, 5e-8);
  EXPECT_NEAR(e.weights[3], 0.947915, 5e-7);
}

// Statistics of `rows` queries against `keys` keys; element() fills query and key.
template <class Element>
Stats measure(std::int64_t head_dim, std::int64_t rows, std::int64_t keys,
              std::optional<double> scale, const StatsRequest& request, const Element& element) {
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  std::vector<float> q(size(rows, head_dim)), k(size(keys, head_dim)), v(size(keys, 1)),
      out(size(rows, 1));
  for (float& x : q) x = static_cast<float>(element());
  for (float& x : k) x = static_cast<float>(element());
  Stats stats;
  stats.request = request;
  Options options;
  options.scale = scale;
  Extras extras;
  extras.stats = &stats;
  const Error error = attention(
      view(q.data(), {1, 1, rows, head_dim}), view(k.data(), {1, 1, keys, head_dim}),
      view(v.data(), {1, 1, keys, 1}), view(out.data(), {1, 1, rows, 1}), options, extras);
  EXPECT_FALSE(error) << error.message();
  return stats;
}

// Of bins that end at a whole number, the share inside (-bound, bound).
double share_within(const Histogram& histogram, double bound) {
  double inside = 0, all = static_cast<double>(histogram.below + histogram.above);
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    const auto count = static_cast<double>(histogram.counts[i]);
    const double low = histogram.low + histogram.width * static_cast<double>(i);
    all += count;
    if (low >= -bound && low + histogram.width <= bound) inside += count;
  }
  return inside / all;
}

// Scores of rows that share keys are dependent: the allowances are five times the standard
// deviation measured over 12 other seeds at this size, not binomial errors.
TEST(Lesson, scaled_scores_of_64_standard_normal_components_look_standard_normal) {
  Rng rng(1);
  StatsRequest request;
  request.level = StatsLevel::full;
  const Stats stats = measure(64, 2048, 2048, std::nullopt, request, [&] { return rng.normal(); });
  const HeadStats& head = stats.heads[0];
  EXPECT_NEAR(share_within(head.histogram, 1), 0.6864, 0.0075);
  EXPECT_NEAR(share_within(head.histogram, 2), 0.9537, 0.0035);
  EXPECT_NEAR(share_within(head.histogram, 3), 0.9967, 0.0006);
  const auto rows = static_cast<double>(head.measured_rows);
  EXPECT_NEAR(head.scores.sum_mean / rows, 0, 0.003);
  EXPECT_NEAR(std::sqrt(head.scores.sum_variance / rows), 1.0, 0.016);
}

// Excess kurtosis of q . k is 6/D for Gaussian elements. Over 10 other seeds this estimate has a
// standard deviation of .0045.
TEST(Lesson, scaled_scores_of_64_components_have_an_excess_kurtosis_of_6_over_64) {
  Rng rng(2);
  double m2 = 0, m4 = 0;
  // Short calls with fresh keys keep rows nearly independent.
  for (int call = 0; call < 400; ++call) {
    StatsRequest request;
    request.level = StatsLevel::full;
    const Stats stats = measure(64, 64, 64, std::nullopt, request, [&] { return rng.normal(); });
    const Histogram& h = stats.heads[0].histogram;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
      const double middle = h.low + h.width * (static_cast<double>(i) + 0.5);
      m2 += static_cast<double>(h.counts[i]) * middle * middle;
      m4 += static_cast<double>(h.counts[i]) * std::pow(middle, 4);
    }
  }
  const double count = 400 * 64 * 64, width = 0.25;
  // Sheppard's corrections for bins of this width.
  const double variance = m2 / count - width * width / 12;
  const double fourth = m4 / count - m2 / count * width * width / 2 + 7 * std::pow(width, 4) / 240;
  EXPECT_NEAR(fourth / (variance * variance) - 3, 6.0 / 64, 0.02);
}

enum class Elements { gaussian, uniform, signs };

class Variance : public testing::TestWithParam<Elements> {
 protected:
  // Mean 0 and variance 1 in every case.
  double element() {
    switch (GetParam()) {
      case Elements::gaussian:
        return rng_.normal();
      case Elements::uniform:
        return rng_.uniform(-std::sqrt(3.0), std::sqrt(3.0));
      case Elements::signs:
        return rng_.chance(0.5) ? 1 : -1;
    }
    return 0;
  }
  // Mean within-row variance of the scores, made up for the (n - 1)/n of a variance about the mean
  // of n keys.
  double variance(std::int64_t head_dim, std::optional<double> scale) {
    constexpr std::int64_t kRows = 256, kKeys = 256;
    const Stats stats =
        measure(head_dim, kRows, kKeys, scale, StatsRequest(), [&] { return element(); });
    const SpreadStats& scores = stats.heads[0].scores;
    return scores.sum_variance / kRows * kKeys / (kKeys - 1.0);
  }
  Rng rng_{3};
};

TEST_P(Variance, of_dots_is_head_dim_and_of_scaled_scores_is_1) {
  std::vector<double> log_dim, log_variance;
  for (std::int64_t head_dim = 2; head_dim <= 4096; head_dim *= 2) {
    const auto d = static_cast<double>(head_dim);
    const double unscaled = variance(head_dim, 1.0);
    // Five standard errors: the mean squares of 256 q and of 256 k have sqrt(2 / (256 D)) each, the
    // D^2 products of their sample covariances 1/256 together.
    const double allowed = 5 * (std::sqrt(4 / (256 * d)) + 1.0 / 256);
    EXPECT_NEAR(unscaled / d, 1, allowed) << head_dim;
    EXPECT_NEAR(variance(head_dim, std::nullopt), 1, allowed) << head_dim;
    log_dim.push_back(std::log(d));
    log_variance.push_back(std::log(unscaled));
  }
  const auto mean = [](const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  };
  double covariance = 0, spread = 0;
  for (std::size_t i = 0; i < log_dim.size(); ++i) {
    const double off = log_dim[i] - mean(log_dim);
    covariance += off * (log_variance[i] - mean(log_variance));
    spread += off * off;
  }
  EXPECT_NEAR(covariance / spread, 1, 0.03);
}

std::string name_of(const testing::TestParamInfo<Elements>& test) {
  const char* const names[] = {"gaussian", "uniform", "signs"};
  return names[static_cast<std::size_t>(test.param)];
}
INSTANTIATE_TEST_SUITE_P(Elements, Variance,
                         testing::Values(Elements::gaussian, Elements::uniform, Elements::signs),
                         name_of);

TEST(Lesson, a_call_overwrites_its_statistics_and_merging_accumulates_them) {
  Rng rng(4);
  Stats step;
  step.request.level = StatsLevel::full;
  const auto attend = [&](double size) {
    const std::vector<double> q{size}, k{1, 2, 3}, v{0, 0, 0};
    double out = 0;
    Options options;
    options.scale = 1;
    Extras extras;
    extras.stats = &step;
    EXPECT_FALSE(attention(view(q.data(), {1, 1, 1, 1}), view(k.data(), {1, 1, 3, 1}),
                           view(v.data(), {1, 1, 3, 1}), view(&out, {1, 1, 1, 1}), options,
                           extras));
  };
  attend(10);
  Stats total = step;
  attend(1);
  EXPECT_EQ(step.heads[0].scores.max, 3);
  EXPECT_EQ(step.heads[0].rows, 1);
  ASSERT_FALSE(total.merge(step));
  EXPECT_EQ(total.heads[0].scores.max, 30);
  EXPECT_EQ(total.heads[0].rows, 2);
}

}  // namespace
}  // namespace poise::test
