// The definition's statistics of the gradient: what arrives at the logits of what is sent.
//
// Nothing here runs a kernel. Worked rows, the theory's expectation, and what counts as a row.
// ctest-labels: fast unit
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_problem.h"

namespace poise::test {
namespace {

// Rows of given logits (one key per logit, head_dim 1, scale 1, the same for each of `rows`
// queries) whose values are unit vectors, so that dweights is dout.
GradientProblem rows_of(const std::vector<double>& logits, std::int64_t rows, std::uint64_t seed) {
  const auto n = static_cast<std::int64_t>(logits.size());
  Problem p = make_problem({1, 1, 1, rows, n, 1, n}, DType::f64, seed);
  p.query.fill([] { return 1.0; });
  for (std::int64_t j = 0; j < n; ++j) {
    p.key.set(j, logits[static_cast<std::size_t>(j)]);
    for (std::int64_t c = 0; c < n; ++c) p.value.set(j * n + c, j == c ? 1 : 0);
  }
  p.options.scale = 1;
  return gradient_problem(p, seed + 1, false, false);
}

ReferenceGradientHead head_of(const GradientProblem& g, const StatsRequest& request = {}) {
  return reference_gradient_statistics(reference_gradients_of<double>(g), request).at(0);
}

TEST(reference_transmission, a_uniform_row_passes_one_part_in_n) {
  const ReferenceGradientHead head = head_of(rows_of(std::vector<double>(7, 0.3), 3, 1));
  ASSERT_EQ(head.measured_rows, 3);
  for (const ReferenceGradientRow& row : head.rows) {
    EXPECT_EQ(row.keys, 7);
    EXPECT_NEAR(row.transmission, 1. / 7, 1e-15);
    EXPECT_NEAR(row.expected, 1. / 49, 1e-15);  // (sqrt(6)/7)^2 / 6
  }
  EXPECT_NEAR(head.transmission(), 1. / 7, 1e-15);
}

// p = (3/4, 1/4) and dP = (2, 0): |dP - 1|^2 = 2; dS = 3/16 * 2 * (1, -1).
TEST(reference_transmission, a_row_of_two_keys_by_hand) {
  GradientProblem g = rows_of({std::log(3.), 0}, 1, 2);
  g.dout.set(0, 2);
  g.dout.set(1, 0);
  const ReferenceGradientRow row = head_of(g).rows.at(0);
  EXPECT_NEAR(row.sent_squares, 2, 1e-15);
  EXPECT_NEAR(row.arrived_squares, 2 * .375 * .375, 1e-15);
  EXPECT_NEAR(row.transmission, .375, 1e-15);
  EXPECT_NEAR(row.expected, .375 * .375, 1e-15);  // one direction: what is expected is what comes
}

// E |J dP|^2 / |dP - mean|^2 = |J|_F^2 / (n - 1) over iid normal dP.
TEST(reference_transmission, its_mean_square_over_iid_gradients_is_what_theory_expects) {
  for (const std::vector<double>& logits :
       {std::vector<double>{1, 5, 10}, {0.1, -0.7, 0.4, 1.1, -0.2, 0.6, -1.3, 0.9}}) {
    constexpr std::int64_t kRows = 4000;
    const ReferenceGradientHead head = head_of(rows_of(logits, kRows, 3));
    double mean = 0, squares = 0;
    for (const ReferenceGradientRow& row : head.rows) {
      const double ratio = row.transmission * row.transmission;
      mean += ratio / kRows;
      squares += ratio * ratio / kRows;
    }
    const double standard_error = std::sqrt((squares - mean * mean) / kRows);
    EXPECT_NEAR(mean, head.rows[0].expected, 4 * standard_error);
    EXPECT_NEAR(head.expected / kRows, head.rows[0].expected, 1e-12);
  }
}

TEST(reference_transmission, neither_a_sink_nor_dlse_nor_a_constant_in_dp_changes_a_row) {
  const GradientProblem plain = rows_of({0.5, -1, 2, 0}, 2, 4);
  const ReferenceGradientHead expected = head_of(plain);
  GradientProblem other = rows_of({0.5, -1, 2, 0}, 2, 4);
  other.problem.sinks = TensorBuffer(DType::f64, {1});
  other.problem.sinks.set(0, 3);
  other.dlse = TensorBuffer(DType::f64, {1, 1, 2});
  other.dlse.fill([] { return 5.0; });
  for (std::int64_t n = 0; n < other.dout.count(); ++n) other.dout.set(n, plain.dout.at(n) + 7);
  const ReferenceGradientHead got = head_of(other);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(got.rows[i].sent_squares, expected.rows[i].sent_squares, 1e-13);
    EXPECT_NEAR(got.rows[i].arrived_squares, expected.rows[i].arrived_squares, 1e-13);
    EXPECT_NEAR(got.rows[i].expected, expected.rows[i].expected, 1e-15);
  }
}

TEST(reference_transmission, only_rows_of_two_keys_and_finite_gradients_are_measured) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  GradientProblem g = rows_of({0.5, -1, 2}, 5, 5);
  g.problem.bias = TensorBuffer(DType::f64, {5, 3});
  const double bias[] = {-kInfinity, -kInfinity, -kInfinity,  // no key
                         -1e4,       0,          -1e4,        // one, and two stand-ins
                         0,          -1e4,       0,           // two, and a stand-in
                         0,          kInfinity,  0,           // not finite
                         0,          0,          0};          // dP is not finite
  for (std::int64_t n = 0; n < 15; ++n) g.problem.bias.set(n, bias[n]);
  g.dout.set(7, 1e3);  // sent to the stand-in
  g.dout.set(13, std::numeric_limits<double>::quiet_NaN());
  const ReferenceGradientHead head = head_of(g);
  ASSERT_EQ(head.rows.size(), 5u);
  EXPECT_EQ(head.measured_rows, 1);
  EXPECT_EQ(head.nonfinite_rows, 2);
  ASSERT_TRUE(head.rows[2].measured);
  EXPECT_EQ(head.rows[2].keys, 2);
  const double difference = g.dout.at(6) - g.dout.at(8);
  EXPECT_NEAR(head.rows[2].sent_squares, difference * difference / 2, 1e-13);
  EXPECT_EQ(head.sent_squares, head.rows[2].sent_squares);
  EXPECT_EQ(head.arrived_squares, head.rows[2].arrived_squares);
}

TEST(reference_transmission, a_row_that_is_sent_one_number_is_silent) {
  GradientProblem g = rows_of({0.5, -1, 2}, 3, 7);
  for (std::int64_t n = 0; n < 6; ++n) g.dout.set(n, n < 3 ? 0 : 0.25);
  const ReferenceGradientHead head = head_of(g);
  EXPECT_EQ(head.silent_rows, 2);
  EXPECT_EQ(head.measured_rows, 1);
  EXPECT_TRUE(head.rows[2].measured);
}

// Weight on a stand-in is weight the other keys do not have: it stays in p and in sum p dP.
TEST(reference_transmission, a_stand_in_keeps_its_weight) {
  GradientProblem g = rows_of({0, 0, 0}, 1, 8);
  g.problem.bias = TensorBuffer(DType::f64, {3});
  for (std::int64_t j = 0; j < 3; ++j) g.problem.bias.set(j, j == 2 ? -1 : 0);
  for (std::int64_t j = 0; j < 3; ++j) g.dout.set(j, j == 2 ? 4 : static_cast<double>(j));
  const ReferenceGradientRow row = head_of(g, {.stand_in_bias = -1}).rows.at(0);
  const double last = std::exp(-1.), whole = 2 + last, mean = (1 + 4 * last) / whole;
  ASSERT_TRUE(row.measured);
  EXPECT_EQ(row.keys, 2);
  EXPECT_NEAR(row.sent_squares, 0.5, 1e-15);
  EXPECT_NEAR(row.arrived_squares, (mean * mean + (1 - mean) * (1 - mean)) / (whole * whole),
              1e-15);
}

TEST(reference_transmission, sampling_takes_the_rows_of_every_nth_vector) {
  const GradientProblem g = rows_of({0.5, -1, 2}, 9, 6);
  const auto heads =
      reference_gradient_statistics(reference_gradients_of<double>(g), {.every = 2}, 2);
  std::vector<std::int64_t> rows;
  for (const ReferenceGradientRow& row : heads.at(0).rows) rows.push_back(row.row);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{0, 1, 4, 5, 8}));
}

}  // namespace
}  // namespace poise::test
