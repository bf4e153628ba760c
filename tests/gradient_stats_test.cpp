// Laws about the gradient's statistics: measured inside backward, they are what the definition says
// over materialised rows, on every instruction set and dtype.
//
// Sums, counts and quantiles per head, over masks, sinks, stand-ins for -inf, sampling and lengths;
// what must not change them; what backward does with the Stats it is given.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isa/dispatch.h"
#include "support/gradient_run.h"
#include "support/isa.h"
#include "support/shuffled_executor.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const StatsRequest kFull{.level = StatsLevel::full};

std::int64_t lanes_of(DType dtype) {
  const Kernels& kernels = *active_kernels(nullptr);
  return dtype == DType::f64 ? kernels.f64.lanes : kernels.f32.lanes;
}

// Weights carry the rounding of logits of size ~10, dP that of its product; what is squared, twice.
double slack_of(DType dtype) { return dtype == DType::f64 ? 1e-11 : 1e-4; }

void expect_close(double got, double expected, double slack, const char* what) {
  EXPECT_NEAR(got, expected, slack * std::fabs(expected)) << what;
}

// Nearest-rank quantiles of one number of the measured rows, to the width of a sketch's bin. What a
// row is to `floor` is rounding.
template <class Value>
void expect_quantiles(const Sketch& sketch, const ReferenceGradientHead& head, double floor,
                      const Value& value, const char* what) {
  std::vector<double> values;
  for (const ReferenceGradientRow& row : head.rows)
    if (row.measured) values.push_back(value(row));
  ASSERT_EQ(sketch.count(), static_cast<std::int64_t>(values.size())) << what;
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  for (double q : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const double rank = std::max(std::ceil(q * static_cast<double>(values.size())), 1.0);
    const double expected = values[static_cast<std::size_t>(rank) - 1];
    EXPECT_NEAR(sketch.quantile(q), expected, .023 * expected + floor) << what << " at " << q;
  }
}

double sum_of_squares(const std::vector<double>& values) {
  double sum = 0;
  for (double x : values) sum += x * x;
  return sum;
}

// The gradient of one head of [B, H, rows, columns].
std::vector<double> head_values(const std::vector<double>& all, std::int64_t batch,
                                std::int64_t heads, std::int64_t head) {
  const auto plane = static_cast<std::ptrdiff_t>(all.size()) / (batch * heads);
  std::vector<double> values;
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto from = all.begin() + (b * heads + head) * plane;
    values.insert(values.end(), from, from + plane);
  }
  return values;
}

void expect_same_head(const GradientProblem& g, std::int64_t h, const GradientStats& got,
                      const ReferenceGradients<double>& gradients,
                      const ReferenceGradientHead& expected) {
  const Problem& p = g.problem;
  const double slack = slack_of(p.dtype), floor = p.dtype == DType::f64 ? 1e-13 : 2e-6;
  EXPECT_EQ(got.measured_rows, expected.measured_rows);
  EXPECT_EQ(got.silent_rows, expected.silent_rows);
  EXPECT_EQ(got.nonfinite_rows, expected.nonfinite_rows);
  expect_close(got.sent_squares, expected.sent_squares, slack, "sent");
  expect_close(got.arrived_squares, expected.arrived_squares, slack, "arrived");
  double squared = 0;
  std::int64_t dead = 0, undecided = 0;
  for (const ReferenceGradientRow& row : expected.rows) {
    if (!row.measured) continue;
    squared += row.transmission * row.transmission;
    const double gain = row.keys * row.transmission;
    dead += gain < kDeadGain;
    undecided += std::fabs(gain - kDeadGain) < row.keys * floor + slack * kDeadGain;
  }
  expect_close(got.sum_transmission_squared, squared, slack, "transmission squared");
  EXPECT_LE(std::abs(got.dead_rows - dead), undecided);
  expect_quantiles(
      got.row_transmission, expected, floor, [](auto& row) { return row.transmission; },
      "transmission");
  expect_quantiles(
      got.row_gain, expected, static_cast<double>(p.shape.kv_len) * floor,
      [](auto& row) { return row.keys * row.transmission; }, "gain");
  const Shape& s = p.shape;
  const std::int64_t key_head = h / (s.q_heads / s.kv_heads);
  const auto norms = [&](const std::vector<double>& all, std::int64_t heads, std::int64_t head) {
    return sum_of_squares(head_values(all, s.batch, heads, head));
  };
  if (got.nonfinite_rows > 0) return;
  const double rounding = p.dtype == DType::f64 ? 1e-11 : p.dtype == DType::f32 ? 1e-4 : 3e-3;
  expect_close(got.dq_squares, norms(gradients.dquery, s.q_heads, h), rounding, "dq");
  expect_close(got.dk_squares, norms(gradients.dkey, s.kv_heads, key_head), rounding, "dk");
  expect_close(got.dv_squares, norms(gradients.dvalue, s.kv_heads, key_head), rounding, "dv");
}

void expect_fused_equals_definition(const GradientProblem& g, const StatsRequest& request,
                                    const GradientWish& how = {}) {
  SCOPED_TRACE(g.problem.describe());
  const GradientOutputs call = measured_run(g, request, how);
  ASSERT_FALSE(call.error) << call.error.message();
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  const auto expected =
      reference_gradient_statistics(gradients, request, lanes_of(g.problem.dtype));
  ASSERT_EQ(call.stats.heads.size(), expected.size());
  for (std::size_t h = 0; h < expected.size(); ++h) {
    SCOPED_TRACE("head " + std::to_string(h));
    expect_same_head(g, static_cast<std::int64_t>(h), call.stats.heads[h].gradient, gradients,
                     expected[h]);
    double squared = 0;
    for (const ReferenceGradientRow& row : expected[h].rows) squared += row.expected;
    if (expected[h].silent_rows + expected[h].nonfinite_rows > 0) continue;
    expect_close(call.stats.heads[h].sum_expected_transmission_squared, squared,
                 slack_of(g.problem.dtype), "expected");
  }
}

GradientProblem problem_of_shape(const Shape& shape, DType dtype, std::uint64_t seed) {
  return gradient_problem(make_problem(shape, dtype, seed), seed + 1, false, false);
}

TEST(gradient_stats, fused_equals_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    expect_fused_equals_definition(problem_of_shape({2, 4, 2, 70, 150, 16, 8}, dtype, 901), kFull);
    expect_fused_equals_definition(problem_of_shape({1, 1, 1, 9, 1, 4, 4}, dtype, 902), kFull);
    expect_fused_equals_definition(problem_of_shape({1, 2, 1, 5, 1091, 8, 24}, dtype, 903), kFull,
                                   {.from_lse = true});
  });
}

TEST(gradient_stats, masks_lengths_and_softcap_leave_the_rows_they_leave) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = problem_of_shape({2, 2, 1, 70, 150, 16, 8}, dtype, 904);
    Problem& p = g.problem;
    Rng rng(905);
    p.options.causal = Causal::bottom_right();
    expect_fused_equals_definition(g, kFull);
    add_random_mask(p, rng, 0.3, {2, 1, 70, 150});
    add_alibi(p);
    p.options.window_left = 40;
    p.options.softcap = 3;
    p.kv_lengths = random_lengths(rng, 2, 150);
    p.q_lengths = random_lengths(rng, 2, 70);
    expect_fused_equals_definition(g, kFull);
  });
}

// 33 rows fill no tile. Its other lanes have a query of zeros, which sees every key: one that holds
// NaN and that no row sees, and logits whose exp is infinite.
TEST(gradient_stats, lanes_without_a_row_add_nothing_to_norms) {
  for_each_isa_and_dtype([](DType dtype) {
    const Shape shape{1, 2, 1, 33, 90, 16, 8};
    GradientProblem g = problem_of_shape(shape, dtype, 919);
    g.problem.mask = TensorBuffer(DType::boolean, {33, 90});
    std::int64_t n = 0;
    g.problem.mask.fill([&] { return n++ % 90 == 40 ? 0 : 1; });
    for (std::int64_t d = 0; d < 16; ++d)
      g.problem.key.set(g.problem.key.index({0, 0, 40, d}),
                        std::numeric_limits<double>::quiet_NaN());
    expect_fused_equals_definition(g, kFull);

    g = problem_of_shape(shape, dtype, 919);
    g.problem.bias = TensorBuffer(DType::f32, {90});
    g.problem.bias.fill([&] { return dtype == DType::f64 ? 1000 : 150; });
    expect_fused_equals_definition(g, kFull);
  });
}

TEST(gradient_stats, neither_a_sink_nor_dlse_takes_part) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = problem_of_shape({1, 4, 2, 40, 90, 16, 8}, dtype, 906);
    g.problem.sinks = TensorBuffer(g.problem.number_dtype(), {4});
    const double sinks[] = {2, -kInfinity, 9, 16};  // 16: e^-10 of the weight is left to the keys
    for (std::int64_t h = 0; h < 4; ++h) g.problem.sinks.set(h, sinks[h]);
    expect_fused_equals_definition(g, kFull);
    g.dlse = TensorBuffer(g.problem.number_dtype(), {1, 4, 40});
    Rng rng(907);
    g.dlse.fill([&] { return 3 * rng.normal(); });
    expect_fused_equals_definition(g, kFull);
  });
}

// Beside such a sink the keys' own softmax has no digits left.
TEST(gradient_stats, rows_that_a_sink_has_swallowed_are_not_measured) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = problem_of_shape({1, 1, 1, 20, 30, 16, 8}, dtype, 908);
    g.problem.sinks = TensorBuffer(g.problem.number_dtype(), {1});
    g.problem.sinks.set(0, 2000);
    const GradientOutputs call = measured_run(g, kFull);
    ASSERT_FALSE(call.error) << call.error.message();
    EXPECT_FALSE(call.stats.heads[0].gradient.measured());
    EXPECT_EQ(call.stats.heads[0].measured_rows, 20);
  });
}

TEST(gradient_stats, finite_stand_ins_for_minus_infinity_are_left_out) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double stand_in : {-1e4, -2.0}) {  // without weight, and with some
      GradientProblem g = problem_of_shape({1, 2, 1, 60, 300, 16, 8}, dtype, 909);
      Rng rng(910);
      g.problem.bias = TensorBuffer(DType::f32, {60, 300});
      std::int64_t n = 0;
      g.problem.bias.fill([&] {
        // Rows 0 to 9 hold nothing but stand-ins, row 10 one other key, row 11 one beside hidden
        // ones.
        const std::int64_t row = n / 300, key = n++ % 300;
        if (row == 11) return key == 7 ? stand_in : key == 9 ? 0. : -kInfinity;
        return row < 10 || (row == 10 && key > 0) || rng.chance(0.4) ? stand_in : 0.0;
      });
      StatsRequest request = kFull;
      request.stand_in_bias = stand_in;
      expect_fused_equals_definition(g, request);
    }
  });
}

TEST(gradient_stats, sampled_rows_are_those_of_forward) {
  for_each_isa_and_dtype([](DType dtype) {
    StatsRequest request = kFull;
    for (int every : {2, 3, 8}) {
      request.every = every;
      expect_fused_equals_definition(problem_of_shape({2, 2, 1, 131, 40, 16, 8}, dtype, 911),
                                     request);
    }
  });
}

TEST(gradient_stats, silent_and_nonfinite_rows_are_counted_and_left_out) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = problem_of_shape({2, 1, 1, 40, 130, 16, 8}, dtype, 912);
    for (std::int64_t row = 3; row < 20; ++row)
      for (std::int64_t c = 0; c < 8; ++c) g.dout.set(g.dout.index({1, 0, row, c}), 0);
    expect_fused_equals_definition(g, kFull);
    g.problem.query.set(g.problem.query.index({0, 0, 17, 3}),
                        std::numeric_limits<double>::quiet_NaN());
    g.dout.set(g.dout.index({0, 0, 5, 2}), kInfinity);
    g.dout.set(g.dout.index({1, 0, 25, 2}), std::numeric_limits<double>::quiet_NaN());
    expect_fused_equals_definition(g, kFull);
    const GradientOutputs call = measured_run(g, kFull);
    EXPECT_EQ(call.stats.heads[0].gradient.nonfinite_rows, 3);
    EXPECT_EQ(call.stats.heads[0].gradient.silent_rows, 17);
  });
}

// What is sent may be as small as a loss averaged over a million tokens makes it.
TEST(gradient_stats, the_size_of_the_gradient_changes_no_ratio) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    GradientProblem g = problem_of_shape({1, 2, 1, 40, 200, 16, 8}, DType::f32, 913);
    const GradientStats expected = measured_run(g, kFull).stats.heads[1].gradient;
    for (int power : {-90, -60, -20, 20, 60}) {
      GradientProblem scaled = g;
      scaled.dout = g.dout.copied(Layout::contiguous);
      for (std::int64_t n = 0; n < g.dout.count(); ++n)
        scaled.dout.set(n, std::ldexp(g.dout.at(n), power));
      const GradientStats got = measured_run(scaled, kFull).stats.heads[1].gradient;
      SCOPED_TRACE(power);
      // Beyond 2^-30 ... 2^30 other sums are gathered: the same to rounding.
      const double rounding = std::abs(power) < 30 ? 0 : 1e-6;
      expect_close(got.sent_squares, std::ldexp(expected.sent_squares, 2 * power), rounding,
                   "sent");
      expect_close(got.arrived_squares, std::ldexp(expected.arrived_squares, 2 * power), rounding,
                   "arrived");
      expect_close(got.sum_transmission_squared, expected.sum_transmission_squared, rounding,
                   "transmission squared");
      EXPECT_EQ(got.dead_rows, expected.dead_rows);
      EXPECT_EQ(got.dq_squares, std::ldexp(expected.dq_squares, 2 * power));
      EXPECT_EQ(got.dk_squares, std::ldexp(expected.dk_squares, 2 * power));
      EXPECT_EQ(got.dv_squares, std::ldexp(expected.dv_squares, 2 * power));
    }
  }
}

TEST(gradient_stats, threads_change_no_bit_and_statistics_none_of_the_gradients) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = problem_of_shape({3, 4, 2, 140, 700, 16, 8}, dtype, 914);
    g.problem.options.causal = Causal::top_left();
    const GradientOutputs one = measured_run(g, kFull);
    ASSERT_FALSE(one.error) << one.error.message();
    ThreadExecutor threads(4);
    ShuffledExecutor shuffled(1, 915);
    for (Executor* executor :
         {static_cast<Executor*>(&threads), static_cast<Executor*>(&shuffled)}) {
      const GradientOutputs many = measured_run(g, kFull, {.executor = executor});
      ASSERT_FALSE(many.error) << many.error.message();
      EXPECT_EQ(many.stats.heads, one.stats.heads);
    }
    const GradientOutputs silent = measured_run(g, {.level = StatsLevel::off});
    ASSERT_FALSE(silent.error) << silent.error.message();
    EXPECT_TRUE(silent.stats.heads.empty());
    EXPECT_EQ(first_difference(one.dq, silent.dq), "");
    EXPECT_EQ(first_difference(one.dk, silent.dk), "");
    EXPECT_EQ(first_difference(one.dv, silent.dv), "");
  });
}

TEST(gradient_stats, only_the_gradient_of_forwards_statistics_is_written) {
  const GradientProblem g = problem_of_shape({1, 4, 2, 40, 60, 16, 8}, DType::f32, 916);
  Stats of_forward = run(g.problem, {.stats = kFull}).stats;
  GradientOutputs call = measured_run(g, kFull);
  ASSERT_FALSE(call.error) << call.error.message();
  ForwardState state(g.problem);
  state.stats = {};
  state.stats.request = kFull;
  const GradientOutputs fresh = run(g, state, {.statistics = true});
  ASSERT_FALSE(fresh.error) << fresh.error.message();
  EXPECT_EQ(fresh.stats.head_dim, 16);
  EXPECT_EQ(fresh.stats.kv_heads, 2);
  ASSERT_EQ(fresh.stats.heads.size(), 4u);
  for (std::size_t h = 0; h < 4; ++h) {
    EXPECT_EQ(fresh.stats.heads[h].gradient, call.stats.heads[h].gradient);
    EXPECT_TRUE(call.stats.heads[h].gradient.measured());
    EXPECT_EQ(fresh.stats.heads[h].rows, 0);
    EXPECT_EQ(fresh.stats.heads[h].scale, 0.25);
    call.stats.heads[h].gradient = {};
    EXPECT_EQ(call.stats.heads[h], of_forward.heads[h]);
  }
}

TEST(gradient_stats, merging_two_calls_is_measuring_both) {
  const GradientProblem whole = problem_of_shape({2, 2, 1, 40, 60, 16, 8}, DType::f64, 917);
  const GradientOutputs expected = measured_run(whole, kFull);
  ASSERT_FALSE(expected.error) << expected.error.message();
  Stats merged;
  for (std::int64_t b = 0; b < 2; ++b) {
    GradientProblem part = whole;
    part.problem.shape.batch = 1;
    for (TensorBuffer* tensor : {&part.problem.query, &part.problem.key, &part.problem.value})
      *tensor = tensor->sliced(0, b, 1);
    part.dout = whole.dout.sliced(0, b, 1);
    ASSERT_FALSE(merged.merge(measured_run(part, kFull).stats));
  }
  for (std::size_t h = 0; h < 2; ++h) {
    const GradientStats &got = merged.heads[h].gradient, &want = expected.stats.heads[h].gradient;
    EXPECT_EQ(got.measured_rows, want.measured_rows);
    EXPECT_EQ(got.dead_rows, want.dead_rows);
    EXPECT_EQ(got.row_transmission, want.row_transmission);
    EXPECT_EQ(got.row_gain, want.row_gain);
    expect_close(got.transmission(), want.transmission(), 1e-14, "transmission");
    expect_close(got.rms_transmission(), want.rms_transmission(), 1e-14, "rms transmission");
    expect_close(got.dq_norm(), want.dq_norm(), 1e-14, "dq");
    expect_close(got.dk_norm(), want.dk_norm(), 1e-14, "dk");
    expect_close(got.dv_norm(), want.dv_norm(), 1e-14, "dv");
  }
}

TEST(gradient_stats, statistics_of_another_call_are_refused_in_one_sentence) {
  const GradientProblem g = problem_of_shape({1, 4, 2, 4, 6, 16, 8}, DType::f32, 918);
  const Stats good = run(g.problem, {.stats = kFull}).stats;
  const struct {
    void (*change)(Stats&);
    ErrorCode code;
    const char* message;
  } cases[] = {
      {[](Stats& s) { s.heads.pop_back(); }, ErrorCode::bad_shape,
       "[backward] stats: heads 3, expected 4 as in this call, or no heads at all"},
      {[](Stats& s) { s.kv_heads = 4; }, ErrorCode::bad_shape,
       "[backward] stats: kv_heads 4, expected 2 as in this call, or no heads at all"},
      {[](Stats& s) { s.head_dim = 8; }, ErrorCode::bad_shape,
       "[backward] stats: head_dim 8, expected 16 as in this call, or no heads at all"},
      {[](Stats& s) { s.softcap = 2; }, ErrorCode::bad_value,
       "[backward] stats: softcap 2, expected 0 as in this call"},
      {[](Stats& s) { s.heads[2].scale = 1; }, ErrorCode::bad_value,
       "[backward] stats: head 2 has scale 1, expected 0.25 as in this call"},
      {[](Stats& s) { s.request.every = 0; }, ErrorCode::bad_value,
       "[backward] stats: every 0 is not in 1 ... 1048576"},
  };
  for (const auto& c : cases) {
    Stats stats = good;
    c.change(stats);
    const std::vector<HeadStats> before = stats.heads;
    const Problem& p = g.problem;
    const Outputs o = run(p);
    Forward forward;
    forward.out = o.out.view();
    forward.lse = o.lse.view();
    TensorBuffer dq(DType::f32, {1, 4, 4, 16});
    dq.fill([] { return 7.0; });
    Gradients gradients;
    gradients.dq = dq.view();
    const Error error = backward(p.query.view(), p.key.view(), p.value.view(), forward,
                                 {g.dout.view(), {}}, gradients, p.call_options(), &stats);
    EXPECT_EQ(error.code(), c.code);
    EXPECT_EQ(error.message(), c.message);
    EXPECT_EQ(stats.heads, before);
    EXPECT_EQ(dq.at(0), 7);
  }
}

}  // namespace
}  // namespace poise::test
