// How a checked call is cut into tasks: a pure, printable value.
// In: a Problem, the kernels of the chosen instruction set, the threads allowed. Out: a TaskPlan,
// from which any task can be computed by its index, in any order, by any thread. What must not
// happen here: a look at the machine, at time or at tensor data other than the per-batch lengths
// and diagonals; any influence of the cut on the bits (the order of additions is fixed by kBlock
// and kSplit alone).
#pragma once

#include "check.h"
#include "kernels/kernels.h"

#include <cstdint>

namespace poise {

// A unit of work: some rows of neighbouring query heads that share a key head (kernels.h,
// ForwardTask, says how rows count). A task is a unit, or a range of splits of one.
struct TaskIndex {
  std::int64_t unit, part;
  std::int64_t b, first_head, heads;
  std::int64_t row_begin, row_end;
  std::int64_t split_begin, split_end;  // of the longest sequence
};

struct TaskPlan {
  const Kernels* kernels = nullptr;
  const KernelSet* kernel = nullptr;       // of the problem's dtype
  const ForwardKernel* forward = nullptr;  // the shape chosen for the number of rows
  std::int64_t batch = 0, kv_heads = 0, group = 1, q_len = 0;
  std::int64_t heads = 1;            // query heads that share a task's lanes
  std::int64_t head_sets = 0;        // per key head: ceil(group / heads)
  std::int64_t row_blocks = 0;       // of task_rows rows, per set of heads
  std::int64_t units = 0;            // batch * kv_heads * head_sets * row_blocks
  std::int64_t parts = 1;            // ranges of splits that a unit is cut into
  std::int64_t tasks = 0;            // units * parts
  bool last_rows_first = false;      // within a set of heads, units start from the last rows
  int threads = 1;                   // allowed
  int slots = 1;                     // used; 1 = the calling thread alone
  std::int64_t slot_bytes = 0;       // workspace of a slot, a multiple of kWorkspaceAlignment
  std::int64_t record_bytes = 0;     // state of one split of a unit; 0 when units are not cut
  std::int64_t workspace_bytes = 0;  // slots * slot_bytes + units * splits * record_bytes
  std::int64_t splits = 0;           // of the key axis of the longest sequence
  double visible_pairs = 0;          // (query, key) pairs that positions and lengths leave
  double all_pairs = 0;              // B * Hq * Lq * Lk
  double flops = 0;                  // 2 (D + Dv) per visible pair

  std::int64_t set_count() const { return kv_heads * head_sets; }  // sets of heads per batch
};

// Pieces of a call's memory begin at multiples of this.
inline constexpr std::int64_t kWorkspaceAlignment = 64;
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Views may repeat rows by strides of 0 and claim any number of them for free: sizes of memory stop
// at what no machine has, rather than pass the range of int64.
inline constexpr std::int64_t kTooManyBytes = std::int64_t{1} << 58;
constexpr std::int64_t bytes_of(std::int64_t count, std::int64_t bytes) {
  std::int64_t product = 0;
  const bool passes = __builtin_mul_overflow(count, bytes, &product);
  return passes || product > kTooManyBytes ? kTooManyBytes : product;
}

// `threads`: how many may be used, at least 1. Cost: O(B), no allocation.
TaskPlan make_plan(const Problem& problem, const Kernels& kernels, int threads);

// The same cut with one head per task and whole units, as the L x L outputs need it.
TaskPlan make_row_plan(const Problem& problem, const Kernels& kernels, int threads);

// Pairs (query, key) of all batches and heads that positions and lengths leave visible. Batches
// that cannot differ are looked at once.
double count_visible_pairs(const Problem& problem);

// Threads that are worth waking for so much work, at most one per task.
int threads_worth_waking(double flops, double tasks, int threads);

// Task `index` in [0, plan.tasks).
TaskIndex task_at(const TaskPlan& plan, std::int64_t index);

// Unit `unit` of [0, plan.units), whole.
TaskIndex unit_at(const TaskPlan& plan, std::int64_t unit);

}  // namespace poise
