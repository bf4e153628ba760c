// A checked and planned backward call on its way: its memory, its rows, and what comes after them.
//
// In: a BackwardProblem, its plan, an executor, memory. Out: every gradient of the call. What must
// not happen here: arithmetic on tensor elements (kernels), a rule about the input
// (check_backward.cpp), an allocation.
#pragma once

#include <poise/executor.h>

#include <cstdint>

#include "backward_plan.h"
#include "check.h"

namespace poise {

// The pieces of a backward call's memory, in the order they lie.
struct BackwardLayout {
  BackwardPlan plan;
  int slots = 1;
  bool rows_wanted = false;         // RowGradient of every query
  bool row_sums_wanted = false;     // and what is summed over them
  std::int64_t slot_bytes = 0;      // of all slots
  std::int64_t whole_bytes = 0;     // a unit for every slot
  std::int64_t shared_bytes = 0;    // every shared unit
  std::int64_t progress_bytes = 0;  // tiles done of every row of the shared units
  std::int64_t row_bytes = 0;       // RowGradient per query
  std::int64_t square_bytes = 0;    // |dk|^2 and |dv|^2 per block
  std::int64_t bias_bytes = 0;      // of all slots, where dbias is wanted: it comes last and alone

  std::int64_t bytes() const;
};

// How `slots` threads use memory.
BackwardLayout lay_out(const BackwardProblem& checked, const BackwardPlan& plan, int slots);

// `memory`: layout.bytes(), aligned to kWorkspaceAlignment.
// Errors: out_of_memory, of statistics.
Error run_backward(const BackwardProblem& checked, const BackwardLayout& layout, Executor& executor,
                   char* memory);

}  // namespace poise
