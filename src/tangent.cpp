// jvp() and double_backward(): check -> plan -> run, in memory of the thread.
//
// In: the caller's views. Out: an Error, or tangents and second gradients. A double backward call
// is a forward-mode call along the cotangent, then a backward call that moves along it. What must
// not happen here: arithmetic on tensor elements (kernels), a rule about the input
// (check_tangent.cpp).
#include <poise/tangent.h>

#include "backward_call.h"
#include "backward_plan.h"
#include "call.h"
#include "check.h"
#include "cpu.h"
#include "executor.h"
#include "float_control.h"
#include "isa/dispatch.h"
#include "plan.h"
#include "scratch.h"
#include "tangent_call.h"

namespace poise {
namespace {

// A contiguous view of scratch memory in the problem's own dtype.
Tensor scratch_view(const Problem& p, char* data, std::initializer_list<std::int64_t> extents) {
  return p.numbers == DType::f64 ? view(reinterpret_cast<double*>(data), extents)
                                 : view(reinterpret_cast<float*>(data), extents);
}

std::int64_t row_bytes(const Problem& p, std::int64_t columns) {
  return aligned(bytes_of(p.batch * p.q_heads * p.q_len, bytes_of(columns, size_bytes(p.numbers))));
}

}  // namespace

Error jvp(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
          const Forward& forward, const Direction& direction, const Tangent& tangent,
          const Options& options) {
  const FloatControl control;
  if (Error error = environment_error()) return error;
  TangentProblem checked;
  if (Error error = check_jvp(query, key, value, forward, direction, tangent, options, &checked))
    return error;
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const TangentPlan plan = make_tangent_plan(checked.problem, *kernels, allowed_threads(options));
  Executor& executor = choose_executor(options, plan.slots);
  const std::int64_t bytes = bytes_of(executor.slots(), plan.slot_bytes);
  const Scratch scratch(bytes);
  if (scratch.data() == nullptr) return out_of_memory("jvp", bytes);
  run_jvp(checked, plan, executor, scratch.data());
  return {};
}

Error double_backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                      const Forward& forward, const OutGradient& gradient,
                      const Direction& cotangent, const SecondGradients& gradients,
                      const Options& options) {
  const FloatControl control;
  if (Error error = environment_error()) return error;
  BackwardProblem checked;
  if (Error error = check_double_backward(query, key, value, forward, gradient, cotangent,
                                          gradients, options, &checked))
    return error;
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const Problem& p = checked.problem;
  const int threads = allowed_threads(options);
  const TangentPlan first = make_tangent_plan(p, *kernels, threads);
  const BackwardPlan second = make_backward_plan(p, *kernels, threads, Derivative::second);
  Executor& first_executor = choose_executor(options, first.slots);
  Executor& second_executor = choose_executor(options, second.slots);
  const BackwardLayout layout = lay_out(checked, second, second_executor.slots());
  const std::int64_t out_bytes = checked.out_tangent.given() ? 0 : row_bytes(p, p.value_dim);
  const std::int64_t lse_bytes = checked.lse_tangent.given() ? 0 : row_bytes(p, 1);
  const std::int64_t bytes =
      out_bytes + lse_bytes +
      std::max(layout.bytes(), bytes_of(first_executor.slots(), first.slot_bytes));
  const Scratch scratch(bytes);
  if (scratch.data() == nullptr) return out_of_memory("double_backward", bytes);
  char* memory = scratch.data();
  if (!checked.out_tangent.given())
    checked.out_tangent = scratch_view(p, memory, {p.batch, p.q_heads, p.q_len, p.value_dim});
  memory += out_bytes;
  if (!checked.lse_tangent.given())
    checked.lse_tangent = scratch_view(p, memory, {p.batch, p.q_heads, p.q_len});
  memory += lse_bytes;
  const TangentProblem tangents{p, forward, cotangent, {checked.out_tangent, checked.lse_tangent}};
  run_jvp(tangents, first, first_executor, memory);
  return run_backward(checked, layout, second_executor, memory);
}

}  // namespace poise
