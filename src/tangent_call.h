// A checked forward-mode call on its way: chunks of rows, each by itself.
//
// In: a TangentProblem, kernels, an executor, memory. Out: its tangents. What must not happen here:
// arithmetic on tensor elements (kernels), a rule about the input (check_tangent.cpp).
#pragma once

#include <poise/executor.h>

#include <cstdint>

#include "check.h"
#include "kernels/kernels.h"

namespace poise {

struct TangentPlan {
  const TangentKernel* kernel = nullptr;
  std::int64_t chunks = 0;  // of task_rows queries, per head
  std::int64_t tasks = 0;   // batch * q_heads * chunks
  int slots = 1;
  std::int64_t slot_bytes = 0;  // a multiple of kWorkspaceAlignment
};

// `threads`: how many may be used, at least 1. Cost: O(B), no allocation.
TangentPlan make_tangent_plan(const Problem& problem, const Kernels& kernels, int threads);

// `memory`: slot_bytes for every slot of the executor, aligned to kWorkspaceAlignment.
void run_jvp(const TangentProblem& checked, const TangentPlan& plan, Executor& executor,
             char* memory);

}  // namespace poise
