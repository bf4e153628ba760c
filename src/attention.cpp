// attention(): check -> plan -> run -> finalize.
//
// In: the caller's views. Out: rows of out and what extras ask for, written by kernels task by
// task; then statistics folded head by head, then the L x L outputs if any. What must not happen
// here: arithmetic on tensor elements (kernels), a rule about the input (check.cpp), a tile size
// (plan.cpp).
#include <poise/attention.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "check.h"
#include "cpu.h"
#include "elements.h"
#include "executor.h"
#include "float_control.h"
#include "isa/dispatch.h"
#include "plan.h"
#include "row_order.h"
#include "scratch.h"

namespace poise {
namespace {

// The plane of one head of a [B, H, rows, columns] view.
template <class PlaneType, class View>
PlaneType plane_of(const View& view, std::int64_t b, std::int64_t head) {
  PlaneType plane{};
  if (!view.given() || view.data == nullptr) return plane;
  using Byte = std::conditional_t<std::is_same_v<View, ConstTensor>, const char, char>;
  plane.data = static_cast<Byte*>(view.data) +
               (b * view.stride(0) + head * view.stride(1)) * size_bytes(view.dtype);
  plane.row_stride = view.stride(2);
  plane.col_stride = view.stride(3);
  return plane;
}

Plane plane_of(const Tensor* view, std::int64_t b, std::int64_t head) {
  return view == nullptr ? Plane{} : plane_of<Plane>(*view, b, head);
}

// The rows of one head of a [B, H, rows] view.
Column column_of(const Tensor* view, std::int64_t b, std::int64_t head) {
  if (view == nullptr || view->data == nullptr) return {};
  return {static_cast<char*>(view->data) +
              (b * view->stride(0) + head * view->stride(1)) * size_bytes(view->dtype),
          view->stride(2)};
}

// One call on its way: what every task needs, and where it leaves what comes after the kernels.
struct Call {
  const Problem& problem;
  const Plan& plan;
  char* workspace = nullptr;       // plan.slot_bytes per slot
  RowOrder* statistics = nullptr;  // null = none wanted
  Tensor row_max{}, row_sum{};     // the softmax state that materialised outputs need
};

ForwardTask forward_task(const Call& call, const TaskIndex& index, int slot) {
  const Problem& p = call.problem;
  const std::int64_t b = index.b, head = index.head;
  ForwardTask task{};
  task.query = plane_of<ConstPlane>(p.query, b, head);
  task.key = plane_of<ConstPlane>(p.key, b, head / p.group);
  task.value = plane_of<ConstPlane>(p.value, b, head / p.group);
  task.out = plane_of<Plane>(p.out, b, head);
  task.element = element_of(p.dtype);
  task.row_begin = index.row_begin;
  task.row_end = std::min(index.row_end, p.q_length(b));
  task.kv_len = p.kv_length(b);
  task.head_dim = p.head_dim;
  task.value_dim = p.value_dim;
  task.scale = p.scale(head);
  task.softcap = p.softcap;
  task.lower = p.lower(b);
  task.upper = p.upper(b);
  task.has_alibi = p.has_alibi;
  task.slope = p.slope(b, head);
  task.diagonal = static_cast<double>(p.diagonal(b));
  task.bias = plane_of<ConstPlane>(p.bias, b, head);
  task.bias_element = element_of(p.bias.dtype);
  task.mask = plane_of<ConstPlane>(p.mask, b, head);
  task.sink = p.sink(head);
  task.lse = column_of(p.extras.lse, b, head);
  task.lse_without_sink = column_of(p.extras.lse_without_sink, b, head);
  task.max_score = column_of(p.extras.max_score, b, head);
  task.row_max = column_of(&call.row_max, b, head);
  task.row_sum = column_of(&call.row_sum, b, head);
  task.accumulator = plane_of(p.extras.accumulator, b, head);
  task.workspace = call.workspace + slot * call.plan.slot_bytes;
  return task;
}

template <class T>
void put_rows(const Column& column, std::int64_t begin, std::int64_t end, T x) {
  if (column.data == nullptr) return;
  for (std::int64_t i = begin; i < end; ++i) static_cast<T*>(column.data)[i * column.stride] = x;
}

template <class T>
void put_rows(const Plane& plane, std::int64_t begin, std::int64_t end, std::int64_t columns, T x) {
  if (plane.data == nullptr) return;
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      static_cast<T*>(plane.data)[i * plane.row_stride + j * plane.col_stride] = x;
}

// Zero rows of out, whatever its elements: 0 is all bits zero in every format.
void put_zero_rows(const Plane& out, std::int64_t begin, std::int64_t end, std::int64_t columns,
                   DType dtype) {
  if (size_bytes(dtype) == 2)
    put_rows(out, begin, end, columns, std::uint16_t{0});
  else if (dtype == DType::f64)
    put_rows(out, begin, end, columns, 0.0);
  else
    put_rows(out, begin, end, columns, 0.0F);
}

// Rows at and after q_lengths, beside out: lse -inf, an empty state.
template <class T>
void write_absent_rows(const ForwardTask& task, std::int64_t begin, std::int64_t end) {
  const T none = -std::numeric_limits<T>::infinity();
  put_rows(task.accumulator, begin, end, task.value_dim, T(0));
  put_rows(task.lse, begin, end, none);
  put_rows(task.lse_without_sink, begin, end, none);
  put_rows(task.max_score, begin, end, none);
  put_rows(task.row_max, begin, end, none);
  put_rows(task.row_sum, begin, end, T(0));
}

template <class T>
void write_absent_rows(const MaterialiseTask& task, std::int64_t begin, std::int64_t end) {
  put_rows(task.scores, begin, end, task.kv_total, T(0));
  put_rows(task.capped, begin, end, task.kv_total, T(0));
  put_rows(task.logits, begin, end, task.kv_total, -std::numeric_limits<T>::infinity());
  put_rows(task.weights, begin, end, task.kv_total, T(0));
}

template <class Task>
void write_absent(DType numbers, const Task& task, std::int64_t begin, std::int64_t end) {
  if (numbers == DType::f64)
    write_absent_rows<double>(task, begin, end);
  else
    write_absent_rows<float>(task, begin, end);
}

void forward_step(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const TaskIndex at = task_at(call.plan, index);
  ForwardTask task = forward_task(call, at, slot);
  const std::int64_t absent = std::max(at.row_begin, task.row_end);
  if (call.statistics != nullptr) {
    const StatsRequest& request = call.problem.extras.stats->request;
    task.level = static_cast<TallyLevel>(request.level);
    task.every = request.every;
    task.stand_in_bias = request.stand_in_bias;
    task.histogram_low = request.histogram_low;
    task.histogram_inverse_width = 1 / request.histogram_width;
    task.tallies = call.statistics->tallies(slot);
    task.histogram = call.statistics->histogram(slot);
  }
  if (task.row_begin < task.row_end) call.plan.kernel->forward(task);
  if (call.statistics != nullptr) call.statistics->finish(index, slot, task.tally_count);
  put_zero_rows(task.out, absent, at.row_end, task.value_dim, call.problem.dtype);
  write_absent(call.problem.numbers, task, absent, at.row_end);
}

void materialise_step(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const Extras& extras = call.problem.extras;
  const TaskIndex at = task_at(call.plan, index);
  MaterialiseTask task{};
  task.problem = forward_task(call, at, slot);
  task.scores = plane_of(extras.scores, at.b, at.head);
  task.capped = plane_of(extras.capped, at.b, at.head);
  task.logits = plane_of(extras.logits, at.b, at.head);
  task.weights = plane_of(extras.weights, at.b, at.head);
  task.kv_total = call.problem.kv_len;
  const std::int64_t absent = std::max(at.row_begin, task.problem.row_end);
  if (task.problem.row_begin < task.problem.row_end) call.plan.kernel->materialise(task);
  write_absent(call.problem.numbers, task, absent, at.row_end);
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

Error out_of_memory(std::int64_t bytes) {
  return Error(ErrorCode::out_of_memory,
               "[forward] workspace: " + std::to_string(bytes) + " bytes could not be allocated");
}

Error run(const Problem& p, const Plan& plan, Executor& executor) {
  const bool matrices = wants_matrices(p);
  const std::int64_t workspace = plan.slot_bytes * executor.slots();
  const std::int64_t order = wants_statistics(p) ? RowOrder::bytes(plan, executor.slots()) : 0;
  const std::int64_t state = p.batch * p.q_heads * p.q_len * size_bytes(p.numbers);
  const std::int64_t total = workspace + order + (matrices ? 2 * state : 0);
  const Scratch scratch(total);
  if (scratch.data() == nullptr) return out_of_memory(total);

  Call call{.problem = p, .plan = plan, .workspace = scratch.data()};
  std::optional<RowOrder> statistics;
  if (p.extras.stats != nullptr) p.extras.stats->heads.clear();
  if (wants_statistics(p)) {
    try {
      statistics.emplace(p, plan, executor.slots(), scratch.data() + workspace);
    } catch (const std::bad_alloc&) {
      return out_of_memory(p.q_heads * static_cast<std::int64_t>(sizeof(HeadStats)));
    }
    call.statistics = &*statistics;
  }
  if (p.extras.row_max != nullptr) call.row_max = *p.extras.row_max;
  if (p.extras.row_sum != nullptr) call.row_sum = *p.extras.row_sum;
  if (matrices) {
    char* states = scratch.data() + workspace + order;
    if (!call.row_max.given()) call.row_max = scratch_rows(p, states);
    if (!call.row_sum.given()) call.row_sum = scratch_rows(p, states + state);
  }

  executor.run(plan.tasks, forward_step, &call);
  if (matrices) executor.run(plan.tasks, materialise_step, &call);
  if (statistics && statistics->failed())
    return out_of_memory(static_cast<std::int64_t>(sizeof(HeadStats)));
  return {};
}

Executor& choose_executor(const Options& options, const Plan& plan) {
  if (options.executor != nullptr) return *options.executor;
  return plan.slots == 1 ? serial_executor() : tbb_executor(plan.slots);
}

}  // namespace

Error attention(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                const Tensor& out, const Options& options, const Extras& extras) {
  const FloatControl control;
  if (Error error = environment_error()) return error;
  Problem problem;
  if (Error error = check_forward(query, key, value, out, options, extras, &problem)) return error;
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const Plan plan = make_plan(problem, *kernels, allowed_threads(options));
  return run(problem, plan, choose_executor(options, plan));
}

}  // namespace poise
