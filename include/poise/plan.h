// The memory of repeated calls, sized once and used by every one of them.
//
//   poise::Plan plan;
//   if (auto error = poise::Plan::make(q, k, v, out, options, {}, &plan)) ...
//   for (...) plan.attention(q, k, v, out, options);   // no allocation after the first call
//
// attention() itself keeps a block per thread, so a Plan pays where the host wants to own the
// memory, to know its size, or to have it ready before the first call.
#pragma once

#include <poise/attention.h>

#include <cstdint>

namespace poise {

class Plan {
 public:
  // Sizes the workspace for a call like this one. Tensors are looked at as attention() looks at
  // them, and no element of query, key, value, mask or bias is read. The plan serves every call
  // with the same shapes, dtypes, options and extras, and with fewer keys or shorter lengths than
  // these: a cache of keys that grows is planned at its full length.
  // Errors: those of attention(), and bad_value for a null `plan`. Cost: O(B), no allocation.
  static Error make(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                    const Tensor& out, const Options& options, const Extras& extras, Plan* plan);

  // Bytes of workspace: O(L * (D + Dv)), never Lq * Lk; a multiple of 64. 0 before make().
  std::int64_t workspace_bytes() const { return bytes_; }

  // Memory of the caller to work in: workspace_bytes() long, aligned to 64, and his as long as the
  // plan is used. Null returns to memory of the plan's own, which the first call allocates.
  // Error: bad_value when it is not aligned.
  Error use_workspace(void* memory);

  // attention() in the plan's memory, with the same bits. One call at a time. Allocates nothing but
  // the plan's own workspace, once, and what Stats, if asked for, hold.
  // Errors: those of attention(); bad_value when the call needs more workspace than planned.
  Error attention(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                  const Tensor& out, const Options& options = {}, const Extras& extras = {});

  Plan() = default;
  Plan(Plan&& other) noexcept;
  Plan& operator=(Plan&& other) noexcept;
  ~Plan();

 private:
  std::int64_t bytes_ = 0;
  void* own_ = nullptr;      // allocated by the first call
  void* callers_ = nullptr;  // not owned
};

}  // namespace poise
