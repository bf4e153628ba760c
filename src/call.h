// A checked and planned call on its way: its memory, its tasks, and what comes after them.
//
// In: a Problem, its plan, an executor, memory. Out: every output of the call. What must not happen
// here: arithmetic on tensor elements (kernels), a rule about the input (check.cpp), a tile size
// (plan.cpp), an allocation other than those of Stats.
#pragma once

#include <poise/error.h>
#include <poise/executor.h>

#include <cstdint>

#include "check.h"
#include "plan.h"

namespace poise {

// The plans of a call and the pieces of its memory, in the order they lie.
struct CallLayout {
  TaskPlan plan;
  TaskPlan row_plan;  // of the L x L outputs
  bool statistics = false, matrices = false;
  int slots = 1;
  std::int64_t workspace_bytes = 0;  // of all slots
  std::int64_t record_bytes = 0;     // states of splits, and the parts each unit still waits for
  std::int64_t order_bytes = 0;      // row tallies
  std::int64_t state_bytes = 0;      // row_max and row_sum for the L x L outputs

  std::int64_t bytes() const { return workspace_bytes + record_bytes + order_bytes + state_bytes; }
};

// How `slots` tasks at a time of this problem use memory.
CallLayout lay_out(const Problem& problem, const TaskPlan& plan, int slots);

// `memory`: layout.bytes(), aligned to kWorkspaceAlignment.
Error run_call(const Problem& problem, const CallLayout& layout, Executor& executor, char* memory);

// The sentence of `call` for memory that could not be had.
Error out_of_memory(const char* call, std::int64_t bytes);

}  // namespace poise
