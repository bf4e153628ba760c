// What theory says of q . k and of a row of given spread, against draws and against attention():
// correlated pairs, within and between rows, the mean key, KL and lse of finite rows, gain of
// healthy ones. ctest-labels: fast laws
#include <gtest/gtest.h>
#include <poise/health.h>
#include <poise/theory.h>

#include <cmath>
#include <vector>

#include "support/oracle.h"
#include "support/problem.h"

namespace poise::test {
namespace {

const StatsRequest kFull{.level = StatsLevel::full};

double mean_over_rows(double sum, const HeadStats& head) {
  return sum / static_cast<double>(head.measured_rows);
}

// q and k of three dimensions as linear images of four normals, so that they share some.
struct CorrelatedPair {
  static constexpr int kDim = 3, kSources = 4;
  double q_of[kDim][kSources] = {{1, 0.5, 0, 0}, {0, 0.8, -0.6, 0}, {0.3, 0, 0.9, 0.4}};
  double k_of[kDim][kSources] = {{0.7, 0, 0, 0.7}, {0, 1.1, 0.2, 0}, {-0.5, 0, 0.6, 0}};
  double q_mean[kDim] = {0.5, -1, 2}, k_mean[kDim] = {1.5, 0.25, -0.75};

  static std::vector<double> product(const double (&a)[kDim][kSources],
                                     const double (&b)[kDim][kSources]) {
    std::vector<double> covariance(kDim * kDim);
    for (int i = 0; i < kDim; ++i)
      for (int j = 0; j < kDim; ++j)
        for (int s = 0; s < kSources; ++s)
          covariance[static_cast<std::size_t>(i * kDim + j)] += a[i][s] * b[j][s];
    return covariance;
  }
  DotMoments expected() const {
    return dot_moments(kDim, q_mean, k_mean, product(q_of, q_of).data(), product(k_of, k_of).data(),
                       product(q_of, k_of).data());
  }
  double draw(Rng& rng) const {
    double sources[kSources], dot = 0;
    for (double& s : sources) s = rng.normal();
    for (int i = 0; i < kDim; ++i) {
      double q = q_mean[i], k = k_mean[i];
      for (int s = 0; s < kSources; ++s) {
        q += q_of[i][s] * sources[s];
        k += k_of[i][s] * sources[s];
      }
      dot += q * k;
    }
    return dot;
  }
};

TEST(dot_theory, pairs_drawn_together_have_the_mean_and_variance_of_the_closed_form) {
  const CorrelatedPair pair;
  const DotMoments expected = pair.expected();
  Rng rng(61);
  constexpr int kDraws = 400'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int n = 0; n < kDraws; ++n) {
    const double x = pair.draw(rng) - expected.mean;
    sum += x / kDraws;
    squares += x * x / kDraws;
    fourth += x * x * x * x / kDraws;
  }
  EXPECT_LT(std::fabs(sum), 4 * std::sqrt(expected.variance / kDraws));
  const double error = std::sqrt((fourth - squares * squares) / kDraws);
  EXPECT_LT(error, 0.01 * expected.variance);  // else it would be shown by nothing
  EXPECT_NEAR(squares, expected.variance, 4 * error);
}

TEST(dot_theory, independent_standard_elements_give_head_dim) {
  const std::vector<double> zero(4), none(16),
      one = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  const DotMoments m =
      dot_moments(4, zero.data(), zero.data(), one.data(), one.data(), none.data());
  EXPECT_EQ(m.mean, 0);
  EXPECT_EQ(m.variance, 4);
}

// A learned alignment of q with k: dots of a token with itself then grow like D, not sqrt(D), and
// only 1/D keeps them in place (Tensor Programs V).
TEST(dot_theory, once_q_and_k_are_the_same_only_one_over_head_dim_keeps_their_dot_in_place) {
  for (std::int64_t dim : {4, 64, 256}) {
    const auto d = static_cast<double>(dim);
    std::vector<double> zero(static_cast<std::size_t>(dim)),
        one(static_cast<std::size_t>(dim * dim));
    for (std::int64_t i = 0; i < dim; ++i) one[static_cast<std::size_t>(i * dim + i)] = 1;
    const DotMoments m =
        dot_moments(dim, zero.data(), zero.data(), one.data(), one.data(), one.data());
    EXPECT_DOUBLE_EQ(m.mean / d, 1);
    EXPECT_DOUBLE_EQ(m.variance, 2 * d);
  }
}

// (kurtosis_q kurtosis_k - 3) / D.
TEST(dot_theory, the_excess_kurtosis_of_dots_falls_with_head_dim_for_any_elements) {
  struct Law {
    const char* name;
    double kurtosis;
    double (*draw)(Rng&);
  };
  const Law laws[] = {
      {"normal", 3, [](Rng& rng) { return rng.normal(); }},
      {"uniform", 1.8, [](Rng& rng) { return rng.uniform(-std::sqrt(3.0), std::sqrt(3.0)); }},
      {"two values", 1, [](Rng& rng) { return rng.chance(0.5) ? 1.0 : -1.0; }}};
  Rng rng(66);
  for (const Law& law : laws)
    for (int dim : {4, 16}) {
      constexpr int kDraws = 200'000;
      double squares = 0, fourth = 0, eighth = 0;
      for (int n = 0; n < kDraws; ++n) {
        double dot = 0;
        for (int d = 0; d < dim; ++d) dot += law.draw(rng) * law.draw(rng);
        const double x = dot * dot / dim;
        squares += x / kDraws;
        fourth += x * x / kDraws;
        eighth += x * x * x * x / kDraws;
      }
      EXPECT_NEAR(squares, 1, 0.02) << law.name << dim;
      const double error = std::sqrt((eighth - fourth * fourth) / kDraws);
      EXPECT_NEAR(fourth, 3 + (law.kurtosis * law.kurtosis - 3) / dim, 4 * error)
          << law.name << dim;
    }
}

// Without a scale the typical row passes 2 exp(-g sqrt(D)), g = .44 for 8 keys, while the mean
// falls like 1/sqrt(D) alone.
TEST(dot_theory, the_typical_trace_of_unscaled_heads_falls_exponentially_in_the_root_of_head_dim) {
  const auto trace = [](std::int64_t dim, double* mean) {
    Sketch traces;
    *mean = 0;
    for (std::uint64_t seed = 0; seed < 8; ++seed)
      for (const HeadStats& head : oracle_row_stats(dim, 8, 1, 500, 67 + seed).heads) {
        traces.merge(head.trace);
        *mean += mean_over_rows(head.sum_trace, head) / 4000;
      }
    return traces.quantile(0.5);
  };
  double mean = 0, wide_mean = 0;
  const double median = trace(256, &mean), wide_median = trace(1024, &wide_mean);
  EXPECT_NEAR(std::log(median / wide_median) / 16, 0.44, 0.05);
  EXPECT_NEAR(mean, mean_trace_constant(8) / 16, 0.1 * mean);
  EXPECT_NEAR(wide_mean, mean_trace_constant(8) / 32, 0.15 * wide_mean);
}

// Keys that are the queries themselves are as correlated as can be, and the prediction that knows
// nothing of pairs is still exact.
TEST(dot_theory, over_all_pairs_of_a_matrix_their_correlation_drops_out) {
  Problem p = make_problem({1, 1, 1, 50, 50, 12, 4}, DType::f64, 62);
  for (std::int64_t n = 0; n < p.query.count(); ++n) {
    p.query.set(n, p.query.at(n) + 0.3 * static_cast<double>(n % 12));
    p.key.set(n, p.query.at(n));
  }
  Stats stats = run(p, {.stats = kFull}).stats;
  ASSERT_FALSE(measure_inputs(p.query.view(), p.key.view(), &stats));
  const Expectation e = expect(stats.heads.at(0), 12);
  EXPECT_NEAR(e.measured / e.full, 1, 1e-10);
}

TEST(dot_theory, the_variance_of_row_means_is_that_of_q_along_the_mean_key) {
  Problem p = make_problem({1, 1, 1, 40, 70, 8, 4}, DType::f64, 63);
  p.options.scale = 1;
  for (std::int64_t n = 0; n < p.key.count(); ++n)
    p.key.set(n, p.key.at(n) + static_cast<double>(n % 8) - 2);
  const HeadStats head = run(p, {.stats = kFull}).stats.heads.at(0);
  std::vector<double> mean_key(8);
  for (std::int64_t n = 0; n < p.key.count(); ++n)
    mean_key[static_cast<std::size_t>(n % 8)] += p.key.at(n) / 70;
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < 40; ++i) {
    double along = 0;
    for (std::int64_t d = 0; d < 8; ++d)
      along += p.query.at(i * 8 + d) * mean_key[static_cast<std::size_t>(d)];
    sum += along / 40;
    squares += along * along / 40;
  }
  const double mean = mean_over_rows(head.scores.sum_mean, head);
  const double between = mean_over_rows(head.scores.sum_mean_squared, head) - mean * mean;
  EXPECT_NEAR(between, squares - sum * sum, 1e-10 * squares);
}

TEST(dot_theory, subtracting_the_mean_key_moves_lse_and_dots_and_nothing_else) {
  Problem p = make_problem({1, 1, 1, 30, 70, 8, 4}, DType::f64, 64);
  p.options.scale = 0.5;
  for (std::int64_t n = 0; n < p.key.count(); ++n) p.key.set(n, p.key.at(n) + 40);
  for (std::int64_t n = 0; n < p.query.count(); ++n) p.query.set(n, p.query.at(n) + 5);
  const Outputs before = run(p, {.stats = kFull});
  std::vector<double> mean_key(8);
  for (std::int64_t n = 0; n < p.key.count(); ++n)
    mean_key[static_cast<std::size_t>(n % 8)] += p.key.at(n) / 70;
  for (std::int64_t n = 0; n < p.key.count(); ++n)
    p.key.set(n, p.key.at(n) - mean_key[static_cast<std::size_t>(n % 8)]);
  const Outputs after = run(p, {.stats = kFull});
  for (std::int64_t n = 0; n < before.out.count(); ++n)
    EXPECT_NEAR(after.out.at(n), before.out.at(n), 1e-10);
  for (std::int64_t i = 0; i < 30; ++i) {
    double along = 0;
    for (std::int64_t d = 0; d < 8; ++d)
      along += p.query.at(i * 8 + d) * mean_key[static_cast<std::size_t>(d)];
    EXPECT_NEAR(after.lse.at(i) + 0.5 * along, before.lse.at(i), 1e-9);
  }
  const HeadStats &a = before.stats.heads.at(0), &b = after.stats.heads.at(0);
  EXPECT_NEAR(a.sum_entropy, b.sum_entropy, 1e-8);
  EXPECT_LT(b.max_dot, a.max_dot / 10);
}

// Rows of normal scores of standard deviation 1: wide heads of 40 queries each.
struct UnitRows {
  double kl = 0, lse_above_mean = 0, gain = 0;

  UnitRows(std::int64_t keys, std::int64_t heads) {
    const Problem p = make_problem({1, heads, heads, 40, keys, 1024, 1}, DType::f32, 65);
    HeadStats all;
    for (const HeadStats& head : run(p, {.columns = false, .stats = kFull}).stats.heads)
      all.merge(head);
    kl = mean_over_rows(all.sum_kl, all);
    lse_above_mean = mean_over_rows(all.sum_lse - all.scores.sum_mean, all);
    gain = all.gain.quantile(0.5);
  }
};

TEST(dot_theory, finite_rows_lie_below_the_many_keys_limit_by_the_known_amounts) {
  const UnitRows few(8, 400), many(64, 100);
  EXPECT_NEAR(few.kl, 0.358, 0.01);
  EXPECT_NEAR(many.kl / kl_of_spread(1), 0.95, 0.02);
  EXPECT_LT(few.lse_above_mean, std::log(8.0) + 0.5);
  EXPECT_NEAR(many.lse_above_mean, std::log(64.0) + 0.5, 0.03);
}

TEST(dot_theory, a_healthy_row_passes_a_little_more_than_a_uniform_one) {
  EXPECT_NEAR(UnitRows(8, 400).gain, 1.11, 0.03);
  EXPECT_NEAR(UnitRows(64, 100).gain, 1.45, 0.04);
  EXPECT_NEAR(UnitRows(512, 20).gain, 1.59, 0.05);
}

}  // namespace
}  // namespace poise::test
