// The definition's tangents and second derivatives, against central differences of its outputs and
// of its gradients.
//
// Nothing here runs a kernel. Seeds are fixed, so that two runs do the same.
// ctest-labels: fast laws
#include "reference_tangent.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "support/drawn_law.h"
#include "support/gradient_problem.h"
#include "support/moved.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr DrawLimits kTiny{
    .max_rows = 8, .max_q_len = 5, .max_kv_len = 9, .max_dim = 4, .poison = false};
constexpr DrawLimits kSmall{
    .max_rows = 24, .max_q_len = 9, .max_kv_len = 20, .max_dim = 7, .poison = false};

TensorBuffer moved_by(const TensorBuffer& from, const TensorBuffer& direction, double step) {
  TensorBuffer to = from.copied(Layout::contiguous);
  if (direction.given())
    for (std::int64_t n = 0; n < to.count(); ++n) to.set(n, from.at(n) + step * direction.at(n));
  return to;
}

template <class T>
ReferenceTangent<T> tangent_of(const Problem& p, const Moved& moved) {
  return reference_jvp<T>(p.query.view(), p.key.view(), p.value.view(), p.call_options(),
                          moved.direction());
}

template <class T>
ReferenceSecondGradients<T> second_gradients_of(const GradientProblem& g, const Moved& moved) {
  const Problem& p = g.problem;
  return reference_double_backward<T>(p.query.view(), p.key.view(), p.value.view(),
                                      p.call_options(), g.dout.view(), g.dlse.view(),
                                      moved.direction());
}

std::string broken_by_moving(const Draw& draw) {
  Problem p = problem_of(draw);
  for (TensorBuffer* tensor : {&p.query, &p.key, &p.value})
    for (std::int64_t n = 0; n < tensor->count(); ++n)
      tensor->set(n, on_grid(tensor->at(n), 0x1p-20));
  const Moved moved(p, draw.way, static_cast<std::uint64_t>(draw.seed) + 4);
  const ReferenceTangent<double> tangent = tangent_of<double>(p, moved);
  auto result_at = [&](double step) {
    Problem q = p;
    q.query = moved_by(p.query, moved.query, step);
    q.key = moved_by(p.key, moved.key, step);
    q.value = moved_by(p.value, moved.value, step);
    return reference_of<long double>(q);
  };
  const std::string found = first_miss(
      "out", tangent.out, numeric_tangent([&](double step) { return result_at(step).out; }), 1e-8);
  if (!found.empty()) return found;
  const auto lse_at = [&](double step) {
    std::vector<long double> lse = result_at(step).lse;
    for (long double& x : lse)
      if (!std::isfinite(x)) x = 0;  // a row without keys stays one
    return lse;
  };
  return first_miss("lse", tangent.lse, numeric_tangent(lse_at), 1e-8);
}

TEST(reference_tangent, jvp_equals_finite_difference) {
  check_draws(broken_by_moving, DType::f64, kSmall, 200, 41);
}

// sum of cotangent * gradient over query, key and value, in long double.
long double loss_of_gradients(const GradientProblem& g, const Moved& cotangent) {
  const ReferenceGradients<long double> gradients = reference_gradients_of<long double>(g);
  const std::pair<const TensorBuffer&, const std::vector<long double>&> terms[] = {
      {cotangent.query, gradients.dquery},
      {cotangent.key, gradients.dkey},
      {cotangent.value, gradients.dvalue}};
  long double loss = 0;
  for (const auto& [factor, gradient] : terms)
    for (std::int64_t n = 0; n < factor.count(); ++n)
      loss += static_cast<long double>(factor.at(n)) * gradient[static_cast<std::size_t>(n)];
  return loss;
}

std::string broken_by_differences(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  // draw.way's lowest bit says whether dlse is given.
  const Moved cotangent(g.problem, draw.way / 2, static_cast<std::uint64_t>(draw.seed) + 5);
  const ReferenceSecondGradients<double> second = second_gradients_of<double>(g, cotangent);
  const struct {
    const char* name;
    const std::vector<double>& gradient;
    TensorBuffer& moved;
  } parameters[] = {{"query", second.query, g.problem.query},
                    {"key", second.key, g.problem.key},
                    {"value", second.value, g.problem.value},
                    {"dout", second.dout, g.dout},
                    {"dlse", second.dlse, g.dlse}};
  for (const auto& [name, gradient, moved] : parameters) {
    if (!moved.given()) continue;
    const std::vector<double> expected =
        numeric_gradient(moved, [&] { return loss_of_gradients(g, cotangent); });
    const std::string found = first_miss(name, gradient, expected, 1e-7);
    if (!found.empty()) return found;
  }
  return {};
}

TEST(reference_tangent, double_backward_equals_finite_difference_of_backward) {
  check_draws(broken_by_differences, DType::f64, kTiny, 60, 42);
}

// The same numbers when T is wider or narrower, and the two ways to the tangent are one.
std::string broken_by_types(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const Moved moved(g.problem, draw.way / 2, static_cast<std::uint64_t>(draw.seed) + 5);
  const ReferenceSecondGradients<double> second = second_gradients_of<double>(g, moved);
  const ReferenceTangent<double> tangent = tangent_of<double>(g.problem, moved);
  if (second.dout != tangent.out || second.dlse != tangent.lse)
    return "the gradients of dout and dlse are not the tangents of out and lse";
  const auto lists = [](const auto& all) {
    return std::array{&all.query, &all.key, &all.value, &all.dout, &all.dlse};
  };
  auto compare = [&](const auto& other, double tolerance) {
    const auto expected = lists(second);
    const auto got = lists(other);
    std::string found;
    for (std::size_t n = 0; n < got.size() && found.empty(); ++n)
      found =
          first_miss("second gradient " + std::to_string(n),
                     std::vector<double>(got[n]->begin(), got[n]->end()), *expected[n], tolerance);
    return found;
  };
  const std::string found = compare(second_gradients_of<long double>(g, moved), 1e-10);
  // Spread 30 makes second derivatives of a thousand from differences that f32 does not resolve.
  if (!found.empty() || draw.spread == 4) return found;
  return compare(second_gradients_of<float>(g, moved), 2e-2);
}

TEST(reference_tangent, a_wider_type_changes_no_digit_that_counts) {
  check_draws(broken_by_types, DType::f32, kSmall, 100, 43);
}

// NaN and infinity in keys nobody sees and in rows that see nobody, in every tensor and direction.
std::string broken_by_masked_nan(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  Problem& p = g.problem;
  Moved moved(p, 0, static_cast<std::uint64_t>(draw.seed) + 6);
  const ReferenceSecondGradients<double> before = second_gradients_of<double>(g, moved);
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
    set_row(g.dlse, row, 1);
  }
  for (std::size_t key = 0; key < key_seen.size(); ++key) {
    if (key_seen[key]) continue;
    for (TensorBuffer* tensor : {&p.key, &moved.key, &p.value, &moved.value})
      set_row(*tensor, static_cast<std::int64_t>(key), tensor->extent(3));
  }
  const ReferenceSecondGradients<double> after = second_gradients_of<double>(g, moved);
  if (after.query != before.query) return "query";
  if (after.key != before.key) return "key";
  if (after.value != before.value) return "value";
  if (after.dout != before.dout) return "dout";
  return after.dlse != before.dlse ? "dlse" : "";
}

TEST(reference_tangent, nan_behind_a_mask_reaches_no_tangent_and_no_second_gradient) {
  check_draws(broken_by_masked_nan, DType::f64, kSmall, 300, 44);
}

}  // namespace
}  // namespace poise::test
