// What theory says about the gradient that passes a softmax, against what backward measures.
//
// The expected transmission of independent gradients, mean and median of unscaled wide heads, and
// the gradient that reaches q beside the Monte-Carlo table (gradient_oracle_slow_test has all cells
// whose cost is bearable).
// ctest-labels: fast laws
#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_run.h"
#include "support/oracle.h"

namespace poise::test {
namespace {

// Keys whose values are the unit vectors, so that dP = dout value^T is dout.
GradientProblem with_sent_gradients(const Shape& shape, DType dtype, std::uint64_t seed,
                                    double spread) {
  Problem p = make_problem(shape, dtype, seed, spread);
  std::int64_t n = 0;
  p.value.fill([&] {
    const std::int64_t at = n++ % (shape.kv_len * shape.value_dim);
    return at / shape.value_dim == at % shape.value_dim ? 1.0 : 0.0;
  });
  return gradient_problem(p, seed + 1, false, false);
}

// E |J dP|^2 / |dP - mean|^2 = |J|_F^2 / (n - 1) over independent normal dP: a head's mean over
// rows differs from its expectation by what rows drew, so heads tell the standard error.
TEST(gradient_theory, independent_gradients_pass_what_the_jacobian_expects) {
  constexpr std::int64_t kHeads = 64, kRows = 64, kKeys = 40;
  for (double spread : {0.3, 1.0, 4.0}) {
    const GradientProblem g =
        with_sent_gradients({1, kHeads, kHeads, kRows, kKeys, 16, kKeys}, DType::f32, 921, spread);
    const GradientOutputs call = measured_run(g, {.level = StatsLevel::full});
    ASSERT_FALSE(call.error) << call.error.message();
    double mean = 0, squares = 0, expected = 0;
    for (const HeadStats& head : call.stats.heads) {
      ASSERT_EQ(head.gradient.measured_rows, kRows);
      const double here = head.gradient.rms_transmission(), there = head.expected_transmission();
      const double difference = here * here - there * there;
      mean += difference / kHeads;
      squares += difference * difference / kHeads;
      expected += there * there / kHeads;
    }
    const double error = std::sqrt((squares - mean * mean) / kHeads);
    EXPECT_LT(error, 0.05 * expected) << spread;  // else the law would be shown by nothing
    EXPECT_LT(std::fabs(mean), 4 * error) << spread;
  }
}

// The same without chance: over the unit vectors, arrived is |J|_F^2 and sent is n - 1.
TEST(gradient_theory, the_unit_vectors_pass_exactly_what_is_expected) {
  for (double scale : {0.0, 0.05, 0.125, 1.0}) {
    for (const HeadStats& head : oracle_row_stats(64, 24, scale, 50, 922).heads) {
      const double expected = head.expected_transmission();
      EXPECT_NEAR(head.gradient.transmission(), expected, 1e-9 * expected);
      EXPECT_NEAR(head.gradient.rms_transmission(), expected, 1e-9 * expected);
      EXPECT_NEAR(head.gradient.sent_squares, 23, 1e-12);
    }
  }
}

// Unscaled iid heads: the mean of tr J is c_n / sqrt(D), c_8 = 1.4236, while the median row passes
// nothing. Means alone would call such a head alive.
TEST(gradient_theory, unscaled_wide_heads_pass_gradient_on_average_and_none_in_the_median) {
  constexpr std::int64_t kDim = 4096, kKeys = 8, kRows = 20'000;
  GradientStats all;
  double mean = 0, squares = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (const HeadStats& head : oracle_row_stats(kDim, kKeys, 1, kRows / 10, 923 + seed).heads) {
      const double trace = head.sum_trace / static_cast<double>(head.measured_rows);
      mean += trace / kRows;
      squares += trace * trace / kRows;
      all.merge(head.gradient);
    }
  const double error = std::sqrt((squares - mean * mean) / kRows);
  EXPECT_NEAR(mean, 1.4236 / std::sqrt(double{kDim}), 4 * error);
  EXPECT_EQ(all.measured_rows, kRows * kKeys);
  EXPECT_LT(all.row_gain.quantile(0.5), 1e-9);
  EXPECT_GT(static_cast<double>(all.dead_rows), 0.9 * kRows * kKeys);
  EXPECT_GT(all.rms_transmission(), 1e-2);  // what the few rows that live make of the mean
  // With 1/sqrt(D) the same width has no dead rows.
  GradientStats scaled;
  for (const HeadStats& head :
       oracle_row_stats(kDim, kKeys, 1 / std::sqrt(double{kDim}), 500, 933).heads)
    scaled.merge(head.gradient);
  EXPECT_GT(scaled.row_gain.quantile(0.5), 0.5);
  EXPECT_LT(static_cast<double>(scaled.dead_rows), 0.05 * 500 * kKeys);
}

TEST(gradient_theory, the_gradient_that_reaches_q_agrees_with_the_table) {
  expect_oracle_gradient(64, 8, 20'000);
  expect_oracle_gradient(4096, 8, 20'000);
  expect_oracle_gradient(64, 64, 1'000);
}

}  // namespace
}  // namespace poise::test
