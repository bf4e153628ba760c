// backward(): check -> plan -> run, in memory of the thread.
//
// In: the caller's views. Out: an Error, or gradients written by run_backward(). What must not
// happen here: arithmetic on tensor elements (kernels), a rule about the input
// (check_backward.cpp), a cut of the work (backward_plan.cpp).
#include <poise/gradient.h>

#include "backward_call.h"
#include "backward_plan.h"
#include "call.h"
#include "check.h"
#include "cpu.h"
#include "executor.h"
#include "float_control.h"
#include "isa/dispatch.h"
#include "scratch.h"

namespace poise {

Error backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
               const Forward& forward, const OutGradient& gradient, const Gradients& gradients,
               const Options& options, Stats* stats) {
  const FloatControl control;
  if (Error error = environment_error()) return error;
  BackwardProblem checked;
  if (Error error =
          check_backward(query, key, value, forward, gradient, gradients, options, stats, &checked))
    return error;
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const BackwardPlan plan =
      make_backward_plan(checked.problem, *kernels, allowed_threads(options), Derivative::first);
  Executor& executor = choose_executor(options, plan.slots);
  const BackwardLayout layout = lay_out(checked, plan, executor.slots());
  const Scratch scratch(layout.bytes());
  if (scratch.data() == nullptr) return out_of_memory("backward", layout.bytes());
  return run_backward(checked, layout, executor, scratch.data());
}

}  // namespace poise
