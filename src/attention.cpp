// attention() and Plan: check -> plan -> run, in memory of the thread, the plan or the caller.
//
// In: the caller's views. Out: an Error, or outputs written by run_call(). What must not happen
// here: arithmetic on tensor elements (kernels), a rule about the input (check.cpp), a tile size
// (plan.cpp).
#include <poise/attention.h>
#include <poise/plan.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "call.h"
#include "check.h"
#include "check_view.h"
#include "cpu.h"
#include "executor.h"
#include "float_control.h"
#include "isa/dispatch.h"
#include "plan.h"
#include "scratch.h"

namespace poise {
namespace {

// A call that has passed every check, and who will run it.
struct ReadyCall {
  Problem problem;
  CallLayout layout;
  Executor* executor = nullptr;
};

Error make_ready(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                 const Tensor& out, const Options& options, const Extras& extras,
                 ReadyCall* ready) {
  if (Error error = environment_error()) return error;
  if (Error error = check_forward(query, key, value, out, options, extras, &ready->problem))
    return error;
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const TaskPlan plan = make_plan(ready->problem, *kernels, allowed_threads(options));
  ready->executor = &choose_executor(options, plan.slots);
  ready->layout = lay_out(ready->problem, plan, ready->executor->slots());
  return {};
}

}  // namespace

Error attention(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                const Tensor& out, const Options& options, const Extras& extras) {
  const FloatControl control;
  ReadyCall call;
  if (Error error = make_ready(query, key, value, out, options, extras, &call)) return error;
  const Scratch scratch(call.layout.bytes());
  if (scratch.data() == nullptr) return out_of_memory("forward", call.layout.bytes());
  return run_call(call.problem, call.layout, *call.executor, scratch.data());
}

Error Plan::make(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                 const Tensor& out, const Options& options, const Extras& extras, Plan* plan) {
  if (plan == nullptr)
    return refuse(ErrorCode::bad_value, {"plan", "plan"}, "null, expected a Plan to fill", {});
  ReadyCall call;
  if (Error error = make_ready(query, key, value, out, options, extras, &call)) return error;
  Plan made;
  made.bytes_ = call.layout.bytes();
  *plan = std::move(made);
  return {};
}

Plan::Plan(Plan&& other) noexcept
    : bytes_(std::exchange(other.bytes_, 0)),
      own_(std::exchange(other.own_, nullptr)),
      callers_(std::exchange(other.callers_, nullptr)) {}

Plan& Plan::operator=(Plan&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(own_, other.own_);
  std::swap(callers_, other.callers_);
  return *this;
}

Plan::~Plan() { std::free(own_); }

Error Plan::use_workspace(void* memory) {
  if (reinterpret_cast<std::uintptr_t>(memory) % kWorkspaceAlignment != 0)
    return refuse(ErrorCode::bad_value, {"plan", "memory"},
                  "not aligned to " + text(kWorkspaceAlignment) + " bytes", {});
  callers_ = memory;
  return {};
}

Error Plan::attention(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                      const Tensor& out, const Options& options, const Extras& extras) {
  const FloatControl control;
  ReadyCall call;
  if (Error error = make_ready(query, key, value, out, options, extras, &call)) return error;
  if (call.layout.bytes() > bytes_)
    return refuse(ErrorCode::bad_value, {"plan", "workspace"},
                  text(bytes_) + " bytes, expected at least " + text(call.layout.bytes()) +
                      " for this call: the plan was made for another one",
                  {});
  void* memory = callers_;
  if (memory == nullptr) {
    if (own_ == nullptr)
      own_ = std::aligned_alloc(static_cast<std::size_t>(kWorkspaceAlignment),
                                static_cast<std::size_t>(workspace_bytes()));
    memory = own_;
  }
  if (memory == nullptr) return out_of_memory("forward", bytes_);
  return run_call(call.problem, call.layout, *call.executor, static_cast<char*>(memory));
}

}  // namespace poise
