// A problem with the gradients of a loss with respect to out and lse, and numbers to hold its
// gradients against.
//
// In: a Problem or a Draw. Out: dout and dlse drawn beside it, the definition's loss and gradients,
// and central differences of any function of a tensor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference_gradient.h"
#include "reference_tangent.h"
#include "support/drawn_problem.h"

namespace poise::test {

struct GradientProblem {
  Problem problem;
  TensorBuffer dout;  // [B, Hq, Lq, Dv], of the problem's dtype
  TensorBuffer dlse;  // [B, Hq, Lq], of its number dtype, or absent
};

// A seed draws standard normal elements and, when `strided`, an order of memory for each tensor.
GradientProblem gradient_problem(Problem problem, std::uint64_t seed, bool with_dlse, bool strided);

// Draw::way decides whether dlse is given; layouts are those of the draw.
GradientProblem gradient_problem_of(const Draw& draw);

// `out`: see reference_backward().
template <class T>
ReferenceGradients<T> reference_gradients_of(const GradientProblem& g,
                                             const ConstTensor& out = {}) {
  const Problem& p = g.problem;
  return reference_backward<T>(p.query.view(), p.key.view(), p.value.view(), p.call_options(),
                               g.dout.view(), g.dlse.view(), out);
}

// Every gradient with its name and shape, in the order they depend on one another.
struct NamedGradient {
  const char* name;
  const std::vector<double>* values;
  Extents shape;
};
std::vector<NamedGradient> named_gradients(const GradientProblem& g,
                                           const ReferenceGradients<double>& gradients);

// sum of out dout + sum of lse dlse over the rows with a finite lse, by the definition in long
// double.
long double loss_of(const GradientProblem& g);

// d loss / d x for every element of an f64 tensor x, by central differences of two step sizes whose
// leading errors cancel. 0 where the element is not finite. x is back at its values afterwards.
std::vector<double> numeric_gradient(TensorBuffer& x, const std::function<long double()>& loss);

// How results move along a direction, from results at steps -2, -1, 1, 2 times kNumericStep.
inline constexpr double kNumericStep = 0x1p-17;
std::vector<double> numeric_tangent(
    const std::function<std::vector<long double>(double step)>& results);

// "dkey[7]: 0.25, expected 0.5" for the first element further than tolerance (1 + |expected|) from
// its expectation; empty when none is.
std::string first_miss(const std::string& name, const std::vector<double>& got,
                       const std::vector<double>& expected, double tolerance);

}  // namespace poise::test
