// A forward and a backward call of one problem, both measured into the same Stats.
//
// In: a GradientProblem, a request, who runs it. Out: the error, the Stats, dq, dk and dv. Only the
// public API of poise is called here.
#pragma once

#include <poise/gradient.h>

#include "support/gradient_problem.h"

namespace poise::test {

struct MeasuredCall {
  Error error;
  Stats stats;
  TensorBuffer dq, dk, dv;
};

struct HowToMeasure {
  bool fresh_stats = false;  // backward gets Stats that forward has not filled
  bool from_lse = false;     // backward gets lse in place of row_max and row_sum
  Executor* executor = nullptr;
  int threads = 1;
};

MeasuredCall measured_call(const GradientProblem& g, const StatsRequest& request,
                           const HowToMeasure& how = {});

}  // namespace poise::test
