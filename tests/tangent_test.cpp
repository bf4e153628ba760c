// jvp() and double_backward() against the definition, and the laws they obey, per instruction set.
//
// Drawn problems over the option space in f64, where agreement leaves no room for a wrong formula;
// in f32 the accuracy rule; then bits, masks, sentences. Seeds are fixed.
// ctest-labels: fast laws per_isa
#include <poise/tangent.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/drawn_law.h"
#include "support/gradient_problem.h"
#include "support/isa.h"
#include "support/moved.h"
#include "support/peak_memory.h"
#include "support/slices.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr DrawLimits kSmall{
    .max_rows = 24, .max_q_len = 9, .max_kv_len = 20, .max_dim = 7, .poison = false};

// Who runs it: threads, or an executor of the test's own.
struct Runner {
  int threads = 1;
  Executor* executor = nullptr;
  bool from_lse = false;
};

struct Second {
  Error error;
  TensorBuffer query, key, value, dout, dlse;
  TensorBuffer out, lse;  // of jvp along the same direction
};

Second run_derivatives(const GradientProblem& g, const Moved& moved, const Runner& runner = {}) {
  const Problem& p = g.problem;
  const Outputs forward = run(p);
  Options options = p.call_options();
  const CallThreads threads(options, runner.executor, runner.threads);
  Forward left{.out = forward.out.view()};
  if (runner.from_lse) {
    left.lse = forward.lse.view();
  } else {
    left.row_max = forward.row_max.view();
    left.row_sum = forward.row_sum.view();
  }
  const auto like = [](const TensorBuffer& tensor) { return tensor.copied(Layout::padded); };
  Second second{forward.error,     like(p.query),     like(p.key),       like(p.value),
                like(forward.out), like(forward.lse), like(forward.out), like(forward.lse)};
  if (second.error) return second;
  second.error = jvp(p.query.view(), p.key.view(), p.value.view(), left, moved.direction(),
                     {second.out.view(), second.lse.view()}, options);
  if (second.error) return second;
  second.error = double_backward(p.query.view(), p.key.view(), p.value.view(), left,
                                 {g.dout.view(), g.dlse.view()}, moved.direction(),
                                 {second.query.view(), second.key.view(), second.value.view(),
                                  second.dout.view(), second.dlse.view()},
                                 options);
  return second;
}

struct Compared {
  const char* name;
  const TensorBuffer& got;
  const std::vector<double>& expected;
};
std::vector<Compared> compared(const Second& got, const ReferenceTangent<double>& tangent,
                               const ReferenceSecondGradients<double>& second) {
  return {{"tangent.out", got.out, tangent.out}, {"tangent.lse", got.lse, tangent.lse},
          {"query", got.query, second.query},    {"key", got.key, second.key},
          {"value", got.value, second.value},    {"dout", got.dout, second.dout},
          {"dlse", got.dlse, second.dlse}};
}

template <class T>
ReferenceSecondGradients<T> definition_of(const GradientProblem& g, const Moved& moved) {
  const Problem& p = g.problem;
  return reference_double_backward<T>(p.query.view(), p.key.view(), p.value.view(),
                                      p.call_options(), g.dout.view(), g.dlse.view(),
                                      moved.direction());
}
template <class T>
ReferenceTangent<T> tangent_of(const GradientProblem& g, const Moved& moved) {
  const Problem& p = g.problem;
  return reference_jvp<T>(p.query.view(), p.key.view(), p.value.view(), p.call_options(),
                          moved.direction());
}

Moved moved_of(const Draw& draw, const Problem& p) {
  return Moved(p, draw.way / 2, static_cast<std::uint64_t>(draw.seed) + 5);
}

std::string broken_by_definition(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const Moved moved = moved_of(draw, g.problem);
  const ReferenceTangent<double> tangent = tangent_of<double>(g, moved);
  const ReferenceSecondGradients<double> second = definition_of<double>(g, moved);
  // From a rounded lse, weights carry its last digit.
  for (const bool from_lse : {false, true}) {
    const Second got = run_derivatives(g, moved, {.from_lse = from_lse});
    if (got.error) return got.error.message();
    for (const Compared& c : compared(got, tangent, second)) {
      const std::string found =
          first_miss(c.name, c.got.values(), c.expected, from_lse ? 1e-8 : 1e-9);
      if (!found.empty()) return found;
    }
  }
  return {};
}

TEST(tangent, fused_derivatives_agree_with_the_definition) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    check_draws(broken_by_definition, DType::f64, kSmall, 150, 61, isa);
  }
}

// Blocks, splits and tiles of every kind: more keys than two splits, more rows than a task, dims
// that are no multiple of a vector.
std::vector<GradientProblem> long_gradient_problems(DType dtype) {
  std::vector<GradientProblem> all;
  std::uint64_t seed = 71;
  for (const Problem& p : long_problems(dtype))
    all.push_back(gradient_problem(p, seed++, true, true));
  Problem grouped = make_problem({1, 4, 2, 300, 600, 24, 40}, dtype, seed);
  grouped.options.causal = Causal::bottom_right();
  grouped.options.softcap = 3;
  all.push_back(gradient_problem(grouped, seed + 1, true, false));
  return all;
}

TEST(tangent, long_problems_agree_with_the_definition) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (const GradientProblem& g : long_gradient_problems(DType::f64)) {
      const Moved moved(g.problem, 0, 72);
      const Second got = run_derivatives(g, moved);
      ASSERT_FALSE(got.error) << got.error.message();
      const ReferenceTangent<double> tangent = tangent_of<double>(g, moved);
      const ReferenceSecondGradients<double> second = definition_of<double>(g, moved);
      for (const Compared& c : compared(got, tangent, second))
        EXPECT_EQ(first_miss(c.name, c.got.values(), c.expected, 1e-9), "")
            << isa << " " << g.problem.describe();
    }
  }
}

struct Errors {
  double squares = 0, largest = 0;
  void take(double got, double truth) {
    squares += (got - truth) * (got - truth);
    largest = std::max(largest, std::fabs(got - truth));
  }
};

// The rule of docs/semantics.md, pooled over seeds, for each result by itself.
TEST(tangent, f32_derivatives_are_as_exact_as_the_plain_computation) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (const double spread : {0.3, 1.0, 3.0}) {
      Errors fused[7], plain[7];
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const GradientProblem g =
            gradient_problem(make_problem({1, 1, 1, 40, 700, 32, 24}, DType::f32, seed, spread),
                             seed + 90, true, false);
        const Moved moved(g.problem, 0, seed + 91);
        const Second got = run_derivatives(g, moved);
        ASSERT_FALSE(got.error) << got.error.message();
        const auto truth_tangent = tangent_of<double>(g, moved);
        const auto truth = definition_of<double>(g, moved);
        const auto f32_tangent = tangent_of<float>(g, moved);
        const auto f32 = definition_of<float>(g, moved);
        const std::vector<float>* plain_results[] = {&f32_tangent.out, &f32_tangent.lse, &f32.query,
                                                     &f32.key,         &f32.value,       &f32.dout,
                                                     &f32.dlse};
        const auto results = compared(got, truth_tangent, truth);
        for (std::size_t n = 0; n < results.size(); ++n)
          for (std::size_t i = 0; i < results[n].expected.size(); ++i) {
            fused[n].take(results[n].got.at(static_cast<std::int64_t>(i)), results[n].expected[i]);
            plain[n].take(static_cast<double>((*plain_results[n])[i]), results[n].expected[i]);
          }
      }
      for (int n = 0; n < 7; ++n) {
        EXPECT_LE(std::sqrt(fused[n].squares), 1.1 * std::sqrt(plain[n].squares))
            << isa << " result " << n << " spread " << spread;
        EXPECT_LE(fused[n].largest, 3 * plain[n].largest)
            << isa << " result " << n << " spread " << spread;
      }
    }
  }
}

std::string first_difference(const Second& a, const Second& b) {
  const std::pair<const char*, const TensorBuffer Second::*> tensors[] = {
      {"tangent.out", &Second::out}, {"tangent.lse", &Second::lse}, {"query", &Second::query},
      {"key", &Second::key},         {"value", &Second::value},     {"dout", &Second::dout},
      {"dlse", &Second::dlse}};
  for (const auto& [name, tensor] : tensors)
    for (std::int64_t n = 0; n < (a.*tensor).count(); ++n)
      if (std::bit_cast<std::uint64_t>((a.*tensor).at(n)) !=
          std::bit_cast<std::uint64_t>((b.*tensor).at(n)))
        return std::string(name) + "[" + std::to_string(n) + "]";
  return {};
}

TEST(tangent, threads_change_no_bit) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (DType dtype : {DType::f32, DType::f64})
      for (const GradientProblem& g : long_gradient_problems(dtype)) {
        const Moved moved(g.problem, 0, 73);
        const Second one = run_derivatives(g, moved, {.executor = &serial_executor()});
        for (int threads : {2, 5}) {
          ThreadExecutor executor(threads);
          EXPECT_EQ(first_difference(one, run_derivatives(g, moved, {.executor = &executor})), "")
              << isa << " " << threads << " " << g.problem.describe();
        }
        EXPECT_EQ(first_difference(one, run_derivatives(g, moved, {.threads = 2})), "") << isa;
      }
  }
}

// NaN and infinity where nobody looks, in every tensor and direction, change no bit.
std::string broken_by_masked_nan(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  Problem& p = g.problem;
  Moved moved(p, 0, static_cast<std::uint64_t>(draw.seed) + 6);
  const Second before = run_derivatives(g, moved);
  if (before.error) return before.error.message();
  const ReferenceResult<double> r = reference_of<double>(p);
  const Shape& s = p.shape;
  auto set_row = [](TensorBuffer& tensor, std::int64_t row, std::int64_t dim) {
    for (std::int64_t c = 0; tensor.given() && c < dim; ++c)
      tensor.set(row * dim + c, (row + c) % 3 == 0 ? kInfinity : kNaN);
  };
  std::vector<bool> key_seen(static_cast<std::size_t>(s.batch * s.kv_heads * s.kv_len), false);
  std::size_t pair = 0;
  for (std::int64_t row = 0; row < s.batch * s.q_heads * s.q_len; ++row) {
    bool sees_any = false;
    const std::int64_t head = row / s.q_len / (s.q_heads / s.kv_heads);  // in [B, Hkv]
    for (std::int64_t j = 0; j < s.kv_len; ++j, ++pair) {
      if (r.logits[pair] == -kInfinity) continue;
      sees_any = key_seen[static_cast<std::size_t>(head * s.kv_len + j)] = true;
    }
    if (sees_any) continue;
    set_row(p.query, row, s.head_dim);
    set_row(moved.query, row, s.head_dim);
    set_row(g.dout, row, s.value_dim);
  }
  for (std::size_t key = 0; key < key_seen.size(); ++key) {
    if (key_seen[key]) continue;
    for (TensorBuffer* tensor : {&p.key, &moved.key, &p.value, &moved.value})
      set_row(*tensor, static_cast<std::int64_t>(key), tensor->extent(3));
  }
  return first_difference(before, run_derivatives(g, moved));
}

TEST(tangent, nan_behind_a_mask_changes_no_bit) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (DType dtype : {DType::f32, DType::f64})
      check_draws(broken_by_masked_nan, dtype, kSmall, 150, 62, isa);
  }
}

TEST(tangent, refusals_name_the_argument) {
  const GradientProblem g =
      gradient_problem(make_problem({1, 2, 1, 3, 4, 5, 6}, DType::f32, 1), 2, true, false);
  const Problem& p = g.problem;
  const Outputs forward = run(p);
  const Forward left{.out = forward.out.view(),
                     .row_max = forward.row_max.view(),
                     .row_sum = forward.row_sum.view()};
  TensorBuffer out(DType::f32, {1, 2, 3, 6});
  const auto refusal = [&](const Direction& direction, const Forward& state, Tensor to) {
    const Error error = jvp(p.query.view(), p.key.view(), p.value.view(), state, direction,
                            {to, {}}, p.call_options());
    return error.message();
  };
  EXPECT_EQ(
      refusal({p.key.view(), {}, {}}, left, out.view()),
      "[jvp] direction.query: extents [1, 1, 4, 5] differ from [B, Hq, Lq, D] = [1, 2, 3, 5]");
  EXPECT_EQ(refusal({}, {.out = forward.out.view()}, out.view()),
            "[jvp] row_max: rank 0, expected 3 for [B, Hq, Lq]");
  EXPECT_EQ(refusal({}, left, {}), "[jvp] tangent.out: rank 0, expected 4 for [B, Hq, Lq, Dv]");
  EXPECT_EQ(refusal({}, left, p.query.view()),
            "[jvp] tangent.out: extents [1, 2, 3, 5] differ from [B, Hq, Lq, Dv] = [1, 2, 3, 6]");
  EXPECT_EQ(refusal({}, left, forward.out.view()).substr(0, 18), "[jvp] tangent.out:");
  const Problem half = make_problem({1, 2, 1, 3, 4, 5, 6}, DType::bf16, 1);
  EXPECT_EQ(jvp(half.query.view(), half.key.view(), half.value.view(), left, {}, {out.view(), {}})
                .message(),
            "[jvp] query: dtype bf16 is not one of f32, f64");
  EXPECT_EQ(
      double_backward(p.query.view(), p.key.view(), p.value.view(), left, {}, {}, {}).message(),
      "[double_backward] dout: rank 0, expected 4 for [B, Hq, Lq, Dv]");
  for (std::int64_t n = 0; n < out.count(); ++n) EXPECT_TRUE(std::isnan(out.at(n)));
}

}  // namespace
}  // namespace poise::test
