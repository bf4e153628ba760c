// The definition itself: against worked figures, case files, and other forms of the same formulas.
//
// Nothing here runs a kernel: the reference must be right before anything is compared with it.
// ctest-labels: fast unit
#include "reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "support/case_file.h"
#include "support/problem.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row of logits as a problem: one query of 1, keys that are the logits, scale 1.
Problem row_of(const std::vector<double>& logits) {
  Problem p =
      make_problem({1, 1, 1, 1, static_cast<std::int64_t>(logits.size()), 1, 1}, DType::f64, 1);
  p.query.set(0, 1);
  for (std::size_t j = 0; j < logits.size(); ++j)
    p.key.set(static_cast<std::int64_t>(j), logits[j]);
  p.options.scale = 1;
  return p;
}

ReferenceRow statistics_of_row(const std::vector<double>& logits) {
  return reference_statistics(reference_of<double>(row_of(logits)), {}).at(0).rows.at(0);
}

TEST(reference, softmax_of_1_5_10_is_the_lessons_figure) {
  const ReferenceResult<double> r = reference_of<double>(row_of({1, 5, 10}));
  EXPECT_NEAR(r.weights[0], .000122569, 5e-10);
  EXPECT_NEAR(r.weights[1], .00669203, 5e-9);
  EXPECT_NEAR(r.weights[2], .993185, 5e-7);
  EXPECT_NEAR(r.lse[0], 10.006838, 5e-7);
  const ReferenceRow row = statistics_of_row({1, 5, 10});
  EXPECT_NEAR(row.entropy, .041401, 5e-7);
  EXPECT_NEAR(row.trace, .013538, 5e-7);
  EXPECT_NEAR(row.frobenius, .013356, 5e-7);
}

TEST(reference, dividing_by_8_brings_the_gradient_back) {
  const ReferenceResult<double> r = reference_of<double>(row_of({1. / 8, 5. / 8, 10. / 8}));
  EXPECT_NEAR(r.weights[0], .174552, 5e-7);
  EXPECT_NEAR(r.weights[1], .287788, 5e-7);
  EXPECT_NEAR(r.weights[2], .537659, 1e-6);
  const double trace = statistics_of_row({1. / 8, 5. / 8, 10. / 8}).trace;
  EXPECT_NEAR(trace, .597632, 5e-7);
  EXPECT_EQ(std::round(trace / statistics_of_row({1, 5, 10}).trace), 44);
}

TEST(reference, dots_of_112_and_96_at_head_dim_64_are_14_and_12) {
  Problem p = make_problem({1, 1, 1, 1, 2, 64, 1}, DType::f64, 1);
  p.query.fill([] { return 1.0; });
  for (std::int64_t n = 0; n < 128; ++n) p.key.set(n, n < 64 ? 112. / 64 : 96. / 64);
  const ReferenceResult<double> scaled = reference_of<double>(p);
  EXPECT_EQ(scaled.scores, (std::vector<double>{14, 12}));
  EXPECT_NEAR(scaled.weights[0], .880797, 5e-7);
  EXPECT_NEAR(scaled.weights[1], .119203, 5e-7);
  EXPECT_NEAR(reference_statistics(scaled, {}).at(0).rows.at(0).trace, .209987, 5e-7);
  p.options.scale = 1;
  EXPECT_NEAR(reference_of<double>(p).weights[1], 1.125e-7, 5e-11);
}

TEST(reference, softmax_of_three_ones_and_a_five) {
  const ReferenceResult<double> r = reference_of<double>(row_of({1, 1, 1, 5}));
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(r.weights[j], .0173617, 5e-8);
  EXPECT_NEAR(r.weights[3], .947915, 5e-7);
}

TEST(reference, value_cases_hold) {
  int cases = 0, gradients = 0;
  for (const auto& entry : std::filesystem::directory_iterator(POISE_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() != ".json") continue;
    const CaseFile file = read_case(entry.path());
    if (file.cls != "value" || file.dtype != "f32") continue;
    const CaseResult result = reference_case_result(file);
    const Judgement verdict = judge_case(file, result);
    EXPECT_EQ(result.gradients.has_value(), expects_gradients(file)) << file.id;
    gradients += result.gradients.has_value();
    // Double arithmetic must sit far inside tolerances that were made for f32.
    EXPECT_LE(verdict.worst, 1e-2) << file.id << ": " << verdict.where;
    ++cases;
  }
  EXPECT_GE(cases, 30);
  EXPECT_GE(gradients, 18);
}

TEST(reference, a_wider_type_changes_no_digit_that_counts) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Problem p = random_problem(seed, DType::f32, {.max_len = 40, .max_dim = 20});
    const ReferenceResult<double> r = reference_of<double>(p);
    const ReferenceResult<long double> wide = reference_of<long double>(p);
    const ReferenceResult<float> narrow = reference_of<float>(p);
    for (std::size_t n = 0; n < r.out.size(); ++n) {
      ASSERT_NEAR(r.out[n], static_cast<double>(wide.out[n]), 1e-12) << p.describe();
      ASSERT_NEAR(r.out[n], static_cast<double>(narrow.out[n]), 1e-3) << p.describe();
    }
  }
}

TEST(reference, weights_and_the_sinks_share_sum_to_one) {
  Problem p = make_problem({1, 2, 1, 5, 9, 4, 4}, DType::f64, 2);
  Rng rng(3);
  add_sinks(p, rng);
  p.sinks.set(0, 0.75);
  const ReferenceResult<double> r = reference_of<double>(p);
  for (std::size_t row = 0; row < 10; ++row) {
    double sum = std::exp(p.sinks.at(static_cast<std::int64_t>(row / 5)) - r.lse[row]);
    for (std::size_t j = 0; j < 9; ++j) sum += r.weights[row * 9 + j];
    EXPECT_NEAR(sum, 1, 1e-14);
    EXPECT_NEAR(r.row_max[row] + std::log(r.row_sum[row]), r.lse[row], 1e-14);
  }
}

TEST(reference, a_row_that_sees_nan_and_infinity_says_infinity) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& logits :
       {std::vector{nan, kInfinity, 1.}, {kInfinity, nan, 1.}, {1., nan, kInfinity}}) {
    const ReferenceResult<double> r = reference_of<double>(row_of(logits));
    EXPECT_EQ(r.max_score[0], kInfinity);
    EXPECT_TRUE(std::isnan(r.out[0]) && std::isnan(r.lse[0]));
  }
  EXPECT_TRUE(std::isnan(reference_of<double>(row_of({1, nan, 2})).max_score[0]));
}

// The Jacobian written out as a matrix: trace and Frobenius norm are its own.
TEST(reference, jacobian_statistics_are_those_of_the_matrix) {
  Rng rng(4);
  for (double spread : {0.1, 1.0, 5.0, 20.0}) {
    std::vector<double> logits(11);
    for (double& x : logits) x = spread * rng.normal();
    const ReferenceResult<double> r = reference_of<double>(row_of(logits));
    double trace = 0, squares = 0;
    for (std::size_t i = 0; i < 11; ++i)
      for (std::size_t j = 0; j < 11; ++j) {
        const double element = (i == j ? r.weights[i] : 0) - r.weights[i] * r.weights[j];
        trace += i == j ? element : 0;
        squares += element * element;
      }
    const ReferenceRow row = statistics_of_row(logits);
    EXPECT_NEAR(row.trace, trace, 1e-14);
    EXPECT_NEAR(row.frobenius, std::sqrt(squares), 1e-14);
    EXPECT_NEAR(row.top1 + row.rest, 1, 1e-15);
    EXPECT_NEAR(row.trace, 1 - row.sum_squares, 1e-14);
  }
}

// -dH/d ln beta of the scaled logits is the variance under p.
TEST(reference, temperature_variance_is_the_slope_of_entropy) {
  const std::vector<double> logits = {0.3, -1.2, 2.0, 0.9};
  constexpr double kStep = 1e-5;
  auto entropy_at = [&](double beta) {
    std::vector<double> scaled = logits;
    for (double& x : scaled) x *= beta;
    return statistics_of_row(scaled).entropy;
  };
  const double slope = (entropy_at(1 + kStep) - entropy_at(1 - kStep)) / (2 * kStep);
  EXPECT_NEAR(statistics_of_row(logits).temperature_variance, -slope, 1e-8);
}

// Taking a key out is the statistics of the row without it.
TEST(reference, the_row_without_a_tracked_key_is_the_shorter_row) {
  const std::vector<double> logits = {3, -1, 2, 0.5, 7};
  const ReferenceRow whole = statistics_of_row(logits);
  for (std::size_t k = 0; k < kTrackedKeys; ++k) {
    std::vector<double> shorter = logits;
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(k));
    const ReferenceRow rest = statistics_of_row(shorter);
    EXPECT_NEAR(whole.without[k].entropy, rest.entropy, 1e-14);
    EXPECT_NEAR(whole.without[k].trace, rest.trace, 1e-14);
    EXPECT_NEAR(whole.without[k].sigma, std::sqrt(rest.score_variance), 1e-14);
    EXPECT_NEAR(whole.without[k].weight, std::exp(logits[k] - whole.lse), 1e-14);
  }
}

TEST(reference, rows_are_counted_as_empty_single_measured_or_nonfinite) {
  Problem p = make_problem({1, 1, 1, 4, 3, 2, 2}, DType::f64, 5);
  p.bias = TensorBuffer(DType::f64, {4, 3});
  const double bias[] = {-kInfinity, -kInfinity, -kInfinity,  // no key
                         -1e4,       -1e4,       0,           // one, and two stand-ins
                         0,          -1e4,       0,           // two
                         0,          kInfinity,  0};          // not finite
  for (std::int64_t n = 0; n < 12; ++n) p.bias.set(n, bias[n]);
  const HeadStats sums = reference_statistics(reference_of<double>(p), {}).at(0).sums;
  EXPECT_EQ(sums.rows, 4);
  EXPECT_EQ(sums.empty_rows, 1);
  EXPECT_EQ(sums.single_rows, 1);
  EXPECT_EQ(sums.measured_rows, 1);
  EXPECT_EQ(sums.nonfinite_rows, 1);
  EXPECT_EQ(sums.first_nonfinite_row, 3);
  EXPECT_EQ(sums.stand_ins, 3);
  EXPECT_EQ(sums.visible_keys, 2);
}

}  // namespace
}  // namespace poise::test
