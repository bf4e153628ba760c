// Every rule about what a call may be given, and every sentence that says no.
// In: the views and options of a public call. Out: an Error, or a Problem that the planner and the
// kernels can trust without looking again: sizes agree, numbers are in range, addresses exist,
// nothing written overlaps anything else.
// What must not happen here: a write to any tensor, an allocation on the success path, a read of
// query, key, value, mask or bias data.
// The rules are those of docs/semantics.md; the proof that views are disjoint lives in overlap.h.
#pragma once

#include <poise/attention.h>
#include <poise/error.h>
#include <poise/gradient.h>
#include <poise/tangent.h>

#include <cstdint>

namespace poise {

// Open ends of the range of visible keys, relative to the row; kernels add a row to them.
inline constexpr std::int64_t kOpenLower = INT64_MIN / 4;
inline constexpr std::int64_t kOpenUpper = INT64_MAX / 4;

// Largest number of threads a call or POISE_THREADS may ask for.
inline constexpr int kMaxThreads = 4096;

// A call that has passed every rule: sizes, and optional tensors resolved to full broadcast views.
struct Problem {
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, group = 1;  // group = q_heads / kv_heads
  std::int64_t q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;
  DType dtype = DType::f32;    // of query, key, value, out: f32, f64, f16 or bf16
  DType numbers = DType::f32;  // of everything accumulated, and of scales, sinks and slopes: f64
                               // for f64, else f32
  ConstTensor query, key, value;
  Tensor out;
  ConstTensor mask, bias;  // [B, Hq, Lq, Lk], stride 0 on broadcast axes; absent = not given()
  bool causal = false;     // key j is visible when j <= i + diagonal(b)
  std::int64_t window_left = -1, window_right = -1;  // -1 = open
  double softcap = 0;                                // 0 = off; rounded to the accumulation type
  bool has_alibi = false;
  double scale_value = 0;  // the scale of every head unless scale_per_head is given
  Options options;         // as given
  Extras extras;           // as given

  // Numbers per head and batch, read through the caller's views and rounded to the accumulation
  // type. sink is -inf when there is none, slope 0 without ALiBi.
  double scale(std::int64_t head) const;
  double sink(std::int64_t head) const;
  double slope(std::int64_t b, std::int64_t head) const;
  std::int64_t kv_length(std::int64_t b) const;
  std::int64_t q_length(std::int64_t b) const;
  // The one diagonal of batch b: explicit, else 0 for top_left, else kv_length(b) - q_len. Any
  // int64: who adds to it must not overflow.
  std::int64_t diagonal(std::int64_t b) const;
  // Causal and window together: key j is visible to row i by position when
  // i + lower(b) <= j <= i + upper(b). kOpenLower and kOpenUpper where nothing limits.
  std::int64_t lower(std::int64_t b) const;
  std::int64_t upper(std::int64_t b) const;
};

Error check_forward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                    const Tensor& out, const Options& options, const Extras& extras,
                    Problem* problem);

// Query, key and value by themselves and beside each other; fills the sizes and the views.
Error check_inputs(const char* call, const ConstTensor& query, const ConstTensor& key,
                   const ConstTensor& value, bool with_data, Problem* problem);

// A checked backward call. problem.out is an output of forward, read here.
struct BackwardProblem {
  Problem problem;
  Forward forward;
  OutGradient gradient;
  Gradients gradients;
  Tensor dbias;  // [B, Hq, Lq, Lk], stride 0 on the axes it is summed over; absent = not wanted
  Stats* stats = nullptr;  // null also where their level is off
  // Of double_backward(): the gradients above are then those of backward's own along it.
  Direction direction;
  Tensor out_tangent, lse_tangent;
};

Error check_backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                     const Forward& forward, const OutGradient& gradient,
                     const Gradients& gradients, const Options& options, Stats* stats,
                     BackwardProblem* checked);

// A checked forward-mode call.
struct TangentProblem {
  Problem problem;
  Forward forward;
  Direction direction;
  Tangent tangent;
};

Error check_jvp(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                const Forward& forward, const Direction& direction, const Tangent& tangent,
                const Options& options, TangentProblem* checked);

// Tangents that are not wanted stay absent in *checked.
Error check_double_backward(const ConstTensor& query, const ConstTensor& key,
                            const ConstTensor& value, const Forward& forward,
                            const OutGradient& gradient, const Direction& cotangent,
                            const SecondGradients& gradients, const Options& options,
                            BackwardProblem* checked);

// The rules that need no data: for explain(), where pointers may be null. The problem's per-batch
// and per-head tensors are dropped from its options, so that nothing reads them.
Error check_explain(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                    const Options& options, Problem* problem);

// Sizes of a set of rows that merge() and finish() work on.
struct RowsProblem {
  std::int64_t batch = 0, heads = 0, q_len = 0, value_dim = 0;
  DType dtype = DType::f32;  // of every tensor of the call: f32 or f64
};

// merge() of (out, lse) pairs: the result may lie exactly over a or b, not partly.
Error check_merge(const ConstTensor& out_a, const ConstTensor& lse_a, const ConstTensor& out_b,
                  const ConstTensor& lse_b, const Tensor& out, const Tensor& lse,
                  RowsProblem* problem);

// merge() of states: `whole` is read and written, `part` only read.
Error check_merge(const State& whole, const State& part, RowsProblem* problem);

// finish(): lse may be absent.
Error check_finish(const State& state, const Tensor& out, const Tensor& lse, RowsProblem* problem);

}  // namespace poise
