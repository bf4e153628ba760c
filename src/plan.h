// How a checked call is cut into tasks: a pure, printable value.
// In: a Problem, the kernels of the chosen instruction set, the threads allowed. Out: a Plan, from
// which any task can be computed by its index, in any order, by any thread.
// What must not happen here: a look at the machine, at time or at tensor data other than the
// per-batch lengths and diagonals; any influence of the cut on the bits (the order of additions is
// fixed by kBlock and kSplit alone).
#pragma once

#include "check.h"
#include "kernels/kernels.h"

#include <cstdint>

namespace poise {

// Rows [row_begin, row_end) of one head.
struct TaskIndex {
  std::int64_t b, head;
  std::int64_t row_begin, row_end;
};

struct Plan {
  const Kernels* kernels = nullptr;
  const KernelSet* kernel = nullptr;  // of the problem's dtype
  std::int64_t batch = 0, q_heads = 0, q_len = 0;
  std::int64_t task_queries = 1;     // rows per task (the last of a head may have fewer)
  std::int64_t row_blocks = 0;       // tasks per head
  std::int64_t tasks = 0;            // batch * q_heads * row_blocks
  bool last_rows_first = false;      // within a head, tasks start from the last rows
  int threads = 1;                   // allowed
  int slots = 1;                     // used; 1 = the calling thread alone
  std::int64_t slot_bytes = 0;       // workspace of a slot, a multiple of kWorkspaceAlignment
  std::int64_t workspace_bytes = 0;  // slots * slot_bytes
  std::int64_t splits = 0;           // of the key axis of the longest sequence
  double visible_pairs = 0;          // (query, key) pairs that positions and lengths leave
  double all_pairs = 0;              // B * Hq * Lq * Lk
  double flops = 0;                  // 2 (D + Dv) per visible pair
};

inline constexpr std::int64_t kWorkspaceAlignment = 64;

// `threads`: how many may be used, at least 1. Cost: O(B), no allocation.
Plan make_plan(const Problem& problem, const Kernels& kernels, int threads);

// Task `index` in [0, plan.tasks).
TaskIndex task_at(const Plan& plan, std::int64_t index);

}  // namespace poise
