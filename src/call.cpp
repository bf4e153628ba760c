// From a plan to outputs: tasks run in any order, statistics are folded in a fixed one, splits of a
// unit are joined by whichever task of it ends last. The contract is in call.h.
#include "call.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <string>

#include "absent_rows.h"
#include "float_control.h"
#include "row_order.h"
#include "task_inputs.h"

namespace poise {
namespace {

// One call on its way: what every task needs, and where it leaves what comes after the kernels.
struct Call {
  const Problem& problem;
  const CallLayout& layout;
  char* workspace = nullptr;        // slot_bytes per slot
  char* records = nullptr;          // plan.splits records per unit
  std::int32_t* waiting = nullptr;  // parts of each unit that have not ended
  RowOrder* statistics = nullptr;   // null = none wanted
  Tensor row_max{}, row_sum{};      // the softmax state that materialised outputs need
};

ForwardTask forward_task(const Call& call, const TaskPlan& plan, const TaskIndex& index, int slot) {
  const Problem& p = call.problem;
  const std::int64_t b = index.b, head = index.first_head;
  ForwardTask task = task_inputs(p, b, head, index.heads);
  task.out = plane_of<Plane>(p.out, b, head);
  task.row_begin = index.row_begin;
  task.row_end = std::min(index.row_end, index.heads * p.q_length(b));
  task.key_begin = index.split_begin * kSplit;
  task.key_end = std::min(index.split_end * kSplit, task.kv_len);
  task.lse = column_of(p.extras.lse, b, head);
  task.lse_without_sink = column_of(p.extras.lse_without_sink, b, head);
  task.max_score = column_of(p.extras.max_score, b, head);
  task.row_max = column_of(&call.row_max, b, head);
  task.row_sum = column_of(&call.row_sum, b, head);
  task.accumulator = plane_of(p.extras.accumulator, b, head);
  task.workspace = call.workspace + slot * std::max(call.layout.plan.slot_bytes, plan.slot_bytes);
  return task;
}

void want_statistics(const Call& call, int slot, ForwardTask* task) {
  if (call.statistics == nullptr) return;
  const StatsRequest& request = call.problem.extras.stats->request;
  task->level = static_cast<TallyLevel>(request.level);
  task->every = request.every;
  task->stand_in_bias = request.stand_in_bias;
  task->histogram_low = request.histogram_low;
  task->histogram_inverse_width = 1 / request.histogram_width;
  std::copy(request.tracked.begin(), request.tracked.end(), task->tracked_keys);
  task->tallies = call.statistics->tallies(slot);
  task->histogram = call.statistics->histogram(slot);
}

// Runs one part of a unit. True when it was the last one, which joins them all.
bool run_part(const Call& call, const TaskIndex& at, int slot, ForwardTask& task) {
  const TaskPlan& plan = call.layout.plan;
  task.records = call.records + at.unit * plan.splits * plan.record_bytes;
  if (task.row_begin < task.row_end && task.key_begin < task.key_end) plan.forward->forward(task);
  if (call.statistics != nullptr) call.statistics->keep_histogram(at.unit, slot);
  return std::atomic_ref(call.waiting[at.unit]).fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void forward_step(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const TaskPlan& plan = call.layout.plan;
  const TaskIndex at = task_at(plan, index);
  ForwardTask task = forward_task(call, plan, at, slot);
  want_statistics(call, slot, &task);
  const bool rows = task.row_begin < task.row_end;
  if (plan.parts == 1) {
    if (rows) plan.forward->forward(task);
  } else {
    if (!run_part(call, at, slot, task)) return;
    if (rows) plan.forward->join(task);
    if (call.statistics != nullptr) call.statistics->recall_histogram(at.unit, slot);
  }
  if (call.statistics != nullptr) call.statistics->finish(at.unit, slot, task.tally_count);
  const std::int64_t absent = std::max(at.row_begin, task.row_end);
  if (absent < at.row_end)
    write_absent_rows(task, absent / at.heads, at.row_end / at.heads, call.problem.dtype,
                      call.problem.numbers);
}

void materialise_step(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const Extras& extras = call.problem.extras;
  const TaskPlan& plan = call.layout.row_plan;
  const TaskIndex at = task_at(plan, index);
  MaterialiseTask task{};
  task.problem = forward_task(call, plan, at, slot);
  task.scores = plane_of(extras.scores, at.b, at.first_head);
  task.capped = plane_of(extras.capped, at.b, at.first_head);
  task.logits = plane_of(extras.logits, at.b, at.first_head);
  task.weights = plane_of(extras.weights, at.b, at.first_head);
  task.kv_total = call.problem.kv_len;
  if (task.problem.row_begin < task.problem.row_end) plan.kernel->materialise(task);
  write_absent_rows(task, std::max(at.row_begin, task.problem.row_end), at.row_end,
                    call.problem.numbers);
}

bool wants_statistics(const Problem& p) {
  return p.extras.stats != nullptr && p.extras.stats->request.level != StatsLevel::off;
}

bool wants_matrices(const Problem& p) {
  return p.extras.scores != nullptr || p.extras.capped != nullptr || p.extras.logits != nullptr ||
         p.extras.weights != nullptr;
}

// A contiguous [B, Hq, Lq] view of scratch memory.
Tensor scratch_rows(const Problem& p, char* data) {
  return p.numbers == DType::f64
             ? view(reinterpret_cast<double*>(data), {p.batch, p.q_heads, p.q_len})
             : view(reinterpret_cast<float*>(data), {p.batch, p.q_heads, p.q_len});
}

}  // namespace

Error out_of_memory(const char* call, std::int64_t bytes) {
  return Error(ErrorCode::out_of_memory, "[" + std::string(call) +
                                             "] workspace: " + std::to_string(bytes) +
                                             " bytes could not be allocated");
}

CallLayout lay_out(const Problem& problem, const TaskPlan& plan, int slots) {
  CallLayout layout;
  layout.plan = plan;
  layout.slots = slots;
  layout.statistics = wants_statistics(problem);
  layout.matrices = wants_matrices(problem);
  std::int64_t slot_bytes = plan.slot_bytes;
  if (layout.matrices) {
    layout.row_plan = make_row_plan(problem, *plan.kernels, plan.threads);
    slot_bytes = std::max(slot_bytes, layout.row_plan.slot_bytes);
    const std::int64_t rows = problem.batch * problem.q_heads * problem.q_len;
    layout.state_bytes = 2 * aligned(bytes_of(rows, size_bytes(problem.numbers)));
  }
  layout.workspace_bytes = bytes_of(slots, slot_bytes);
  if (plan.parts > 1)
    layout.record_bytes = bytes_of(plan.units, bytes_of(plan.splits, plan.record_bytes)) +
                          aligned(bytes_of(plan.units, sizeof(std::int32_t)));
  if (layout.statistics) layout.order_bytes = aligned(RowOrder::bytes(plan, slots));
  return layout;
}

Error run_call(const Problem& p, const CallLayout& layout, Executor& executor, char* memory) {
  const TaskPlan& plan = layout.plan;
  Call call{.problem = p, .layout = layout, .workspace = memory};
  memory += layout.workspace_bytes;
  if (plan.parts > 1) {
    call.records = memory;
    call.waiting =
        reinterpret_cast<std::int32_t*>(memory + plan.units * plan.splits * plan.record_bytes);
    std::fill_n(call.waiting, plan.units, static_cast<std::int32_t>(plan.parts));
    memory += layout.record_bytes;
  }
  std::optional<RowOrder> statistics;
  if (p.extras.stats != nullptr) p.extras.stats->heads.clear();
  if (layout.statistics) {
    try {
      statistics.emplace(p, plan, layout.slots, memory);
    } catch (const std::bad_alloc&) {
      return out_of_memory("forward", p.q_heads * static_cast<std::int64_t>(sizeof(HeadStats)));
    }
    call.statistics = &*statistics;
    memory += layout.order_bytes;
  }
  if (p.extras.row_max != nullptr) call.row_max = *p.extras.row_max;
  if (p.extras.row_sum != nullptr) call.row_sum = *p.extras.row_sum;
  if (layout.matrices) {
    if (!call.row_max.given()) call.row_max = scratch_rows(p, memory);
    if (!call.row_sum.given()) call.row_sum = scratch_rows(p, memory + layout.state_bytes / 2);
  }

  executor.run(plan.tasks, forward_step, &call);
  if (layout.matrices) executor.run(layout.row_plan.tasks, materialise_step, &call);
  if (statistics && statistics->failed())
    return out_of_memory("forward", static_cast<std::int64_t>(sizeof(HeadStats)));
  return {};
}

}  // namespace poise
