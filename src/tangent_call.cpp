// Forward mode by chunks of query rows, each a task by itself; absent rows get zeros.
// The contract is in tangent_call.h.
#include "tangent_call.h"

#include <algorithm>

#include "absent_rows.h"
#include "float_control.h"
#include "plan.h"
#include "task_inputs.h"

namespace poise {
namespace {

struct Call {
  const TangentProblem& checked;
  const TangentPlan& plan;
  char* memory;
};

void run_chunk(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const TangentProblem& c = call.checked;
  const Problem& p = c.problem;
  const std::int64_t chunk = index % call.plan.chunks, heads = index / call.plan.chunks;
  const std::int64_t head = heads % p.q_heads, b = heads / p.q_heads;
  TangentTask task{};
  task.problem = task_inputs(p, b, head, 1);
  const std::int64_t begin = chunk * call.plan.kernel->task_rows;
  const std::int64_t end = std::min(begin + call.plan.kernel->task_rows, p.q_len);
  task.problem.row_begin = begin;
  task.problem.row_end = std::min(end, p.q_length(b));
  task.out = plane_of<ConstPlane>(c.forward.out, b, head);
  task.row_max = column_of(c.forward.row_max, b, head);
  task.row_sum = column_of(c.forward.row_sum, b, head);
  task.lse = column_of(c.forward.lse, b, head);
  task.dquery = plane_of<ConstPlane>(c.direction.query, b, head);
  task.dkey = plane_of<ConstPlane>(c.direction.key, b, head / p.group);
  task.dvalue = plane_of<ConstPlane>(c.direction.value, b, head / p.group);
  task.dout = plane_of(&c.tangent.out, b, head);
  task.dlse = column_of(&c.tangent.lse, b, head);
  task.workspace = call.memory + slot * call.plan.slot_bytes;
  if (begin < task.problem.row_end) call.plan.kernel->run(task);
  const std::int64_t absent = std::max(begin, task.problem.row_end);
  write_zero_rows(task.dout, 0, absent, end, p.value_dim, p.dtype);
  write_zero_rows({task.dlse.data, task.dlse.stride, 1, 0}, 0, absent, end, 1, p.numbers);
}

}  // namespace

TangentPlan make_tangent_plan(const Problem& problem, const Kernels& kernels, int threads) {
  TangentPlan plan;
  plan.kernel = problem.dtype == DType::f64 ? &kernels.f64.tangent : &kernels.f32.tangent;
  plan.chunks = (problem.q_len + plan.kernel->task_rows - 1) / plan.kernel->task_rows;
  plan.tasks = problem.batch * problem.q_heads * plan.chunks;
  const double dims =
      3 * static_cast<double>(problem.head_dim) + 2 * static_cast<double>(problem.value_dim);
  plan.slots = threads_worth_waking(2 * dims * count_visible_pairs(problem),
                                    static_cast<double>(plan.tasks), threads);
  plan.slot_bytes = aligned(plan.kernel->workspace_bytes(problem.head_dim, problem.value_dim));
  return plan;
}

void run_jvp(const TangentProblem& checked, const TangentPlan& plan, Executor& executor,
             char* memory) {
  Call call{checked, plan, memory};
  executor.run(plan.tasks, run_chunk, &call);
}

}  // namespace poise
