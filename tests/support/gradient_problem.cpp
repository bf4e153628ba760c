// Drawing dout and dlse; the loss; central differences.
//
// In: problems. Out: numbers. The loss is taken in long double, so that a difference of two of them
// keeps ten digits.
#include "support/gradient_problem.h"

#include <cmath>
#include <cstdio>

namespace poise::test {
namespace {

// Two differences, of one step and of two, whose errors of second order cancel.
long double without_second_order(long double near, long double far) { return (4 * near - far) / 3; }

}  // namespace

GradientProblem gradient_problem(Problem problem, std::uint64_t seed, bool with_dlse,
                                 bool strided) {
  const Shape& s = problem.shape;
  Rng rng(seed);
  auto drawn = [&](DType dtype, const Extents& extents) {
    TensorBuffer tensor(dtype, extents);
    tensor.fill([&] { return rng.normal(); });
    return strided ? tensor.copied(kLayouts[rng.integer(0, std::size(kLayouts) - 1)]) : tensor;
  };
  GradientProblem g;
  g.dout = drawn(problem.dtype, {s.batch, s.q_heads, s.q_len, s.value_dim});
  if (with_dlse) g.dlse = drawn(problem.number_dtype(), {s.batch, s.q_heads, s.q_len});
  g.problem = std::move(problem);
  return g;
}

GradientProblem gradient_problem_of(const Draw& draw) {
  return gradient_problem(problem_of(draw), static_cast<std::uint64_t>(draw.seed) + 2,
                          draw.way % 2 == 1, draw.layouts > 1);
}

std::vector<NamedGradient> named_gradients(const GradientProblem& g,
                                           const ReferenceGradients<double>& gradients) {
  const Shape& s = g.problem.shape;
  Extents bias;
  for (int axis = 0; axis < g.problem.bias.view().rank; ++axis)
    bias.push_back(g.problem.bias.extent(axis));
  return {{"dweights", &gradients.dweights, {s.batch, s.q_heads, s.q_len, s.kv_len}},
          {"dlogits", &gradients.dlogits, {s.batch, s.q_heads, s.q_len, s.kv_len}},
          {"dquery", &gradients.dquery, {s.batch, s.q_heads, s.q_len, s.head_dim}},
          {"dkey", &gradients.dkey, {s.batch, s.kv_heads, s.kv_len, s.head_dim}},
          {"dvalue", &gradients.dvalue, {s.batch, s.kv_heads, s.kv_len, s.value_dim}},
          {"dbias", &gradients.dbias, bias},
          {"dsinks", &gradients.dsinks, {s.q_heads}},
          {"dscale", &gradients.dscale, {s.q_heads}},
          {"dslopes", &gradients.dslopes, {s.batch, s.q_heads}}};
}

long double loss_of(const GradientProblem& g) {
  const ReferenceResult<long double> r = reference_of<long double>(g.problem);
  long double loss = 0;
  for (std::size_t n = 0; n < r.out.size(); ++n)
    loss += r.out[n] * static_cast<long double>(g.dout.at(static_cast<std::int64_t>(n)));
  if (g.dlse.given())
    for (std::size_t n = 0; n < r.lse.size(); ++n)
      if (std::isfinite(r.lse[n]))
        loss += r.lse[n] * static_cast<long double>(g.dlse.at(static_cast<std::int64_t>(n)));
  return loss;
}

std::vector<double> numeric_gradient(TensorBuffer& x, const std::function<long double()>& loss) {
  std::vector<double> gradient;
  for (std::int64_t n = 0; n < x.count(); ++n) {
    const double at = x.at(n);
    if (!std::isfinite(at)) {
      gradient.push_back(0);
      continue;
    }
    auto difference = [&](double step) {
      const double above = at + step, below = at - step;
      x.set(n, above);
      const long double loss_above = loss();
      x.set(n, below);
      const long double loss_below = loss();
      return (loss_above - loss_below) / static_cast<long double>(above - below);
    };
    gradient.push_back(static_cast<double>(
        without_second_order(difference(kNumericStep), difference(2 * kNumericStep))));
    x.set(n, at);
  }
  return gradient;
}

std::vector<double> numeric_tangent(
    const std::function<std::vector<long double>(double step)>& results) {
  const std::vector<long double> back_2 = results(-2 * kNumericStep), back = results(-kNumericStep),
                                 ahead = results(kNumericStep), ahead_2 = results(2 * kNumericStep);
  constexpr auto kStep = static_cast<long double>(kNumericStep);
  std::vector<double> tangent;
  for (std::size_t n = 0; n < ahead.size(); ++n)
    tangent.push_back(static_cast<double>(without_second_order(
        (ahead[n] - back[n]) / (2 * kStep), (ahead_2[n] - back_2[n]) / (4 * kStep))));
  return tangent;
}

std::string first_miss(const std::string& name, const std::vector<double>& got,
                       const std::vector<double>& expected, double tolerance) {
  if (got.size() != expected.size())
    return name + " has " + std::to_string(got.size()) + " elements, expected " +
           std::to_string(expected.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    if (std::fabs(got[n] - expected[n]) <= tolerance * (1 + std::fabs(expected[n]))) continue;
    char text[100];
    std::snprintf(text, sizeof text, "[%zu]: %.12g, expected %.12g", n, got[n], expected[n]);
    return name + text;
  }
  return {};
}

}  // namespace poise::test
