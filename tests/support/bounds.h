// How far a kernel may be from the definition, derived row by row from the numbers it rounds.
//
// In: a problem and its float64 reference. Out: bounds in absolute units, and the comparison of a
// run's outputs with them. The bounds follow first-order error analysis (u = unit roundoff):
//   logit  u ((2 + sqrt D) max_j |scale| sum_d |q_d k_jd| + 2 |score| + terms added)
//   weight relative: 2 (logit + u (1.25 sum p|t| + 19)), exp's documented bound and the sums
// A worst-case chain would have D where sqrt D stands; 2 + sqrt D holds for random signs.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support/problem.h"

namespace poise::test {

// Rows whose f32 dots, scores or logits exceed this are not compared: f32 overflows where float64
// does not.
inline constexpr double kLargestCompared = 3.4e38;

struct RowBounds {
  bool comparable = true;
  double logit = 0;         // of every logit, score and capped score of the row
  double weight = 0;        // relative, of every weight
  double out = 0, lse = 0;  // of the accumulated output and lse
  double written = 0;       // of out as written: 16-bit outputs are rounded once more
};

std::vector<RowBounds> bounds_of(const Problem& problem, const ReferenceResult<double>& reference);

// What a problem's results are compared with; worth keeping when several runs are.
struct Expected {
  explicit Expected(const Problem& problem);
  ReferenceResult<double> reference;
  std::vector<RowBounds> bounds;
};

// Every output that was asked for agrees with the definition: infinities, NaNs and emptiness
// exactly.
testing::AssertionResult agrees(const Problem& problem, const Outputs& outputs,
                                const Expected& expected);
testing::AssertionResult agrees(const Problem& problem, const Outputs& outputs);

// out and lse of two runs of one problem by different means agree within twice the bounds.
testing::AssertionResult agree(const Problem& problem, const Outputs& a, const Outputs& b,
                               const Expected& expected);
testing::AssertionResult agree(const Problem& problem, const Outputs& a, const Outputs& b);

}  // namespace poise::test
