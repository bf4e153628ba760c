// How far gradients may be from the definition, derived pair by pair from the numbers that are
// rounded, and the comparison of a run with it.
//
// In: a problem and the definition's gradients in float64. Out: the first gradient that is too far
// off, in words. First-order error analysis as in bounds.h (u = unit roundoff, A = |dout| . |value|
// of a pair, M = |dout| . |out| of its row; logit, weight and written are the row's bounds there):
//   d logit   p (weight |dP - mean + dlse| + u (5 + sqrt Dv) (A + M + |dlse|) + |dout|_1 written)
//   d score   cap' of that + |d score| (2 logit / softcap + u (4 + 6 |x|)), x = score / softcap
// and a sum of n products adds u (4 + sqrt n) times the sum of their sizes. What exp cuts off comes
// on top.
#pragma once

#include <string>

#include "support/bounds.h"
#include "support/gradient_run.h"

namespace poise::test {

// What gradients of a problem are compared with; worth keeping when several runs are.
struct ExpectedGradients {
  // from_lse: P is computed from a rounded lse, and that much further from the definition.
  explicit ExpectedGradients(const GradientProblem& problem, bool from_lse = false);

  ReferenceGradients<double> reference;
  // Bounds of what they are named after, before a 16-bit gradient is rounded.
  std::vector<double> dquery, dkey, dvalue, dlogits, dsinks, dscale, dslopes;
};

// "dk[17] is 1.5, expected 1 within 0.01" for the first element of any gradient that is too far
// from the definition; empty when none is. A NaN is expected where the definition has one.
std::string disagreement(const GradientProblem& g, const GradientOutputs& got,
                         const ExpectedGradients& expected);
std::string disagreement(const GradientProblem& g, const GradientOutputs& got);

}  // namespace poise::test
