// Scaled dot-product attention, forward: the problem, its options, what else it can hand out.
//
//   dots    = query . key                              logits  = capped + alibi + bias
//   scores  = scale * dots                             weights = softmax(logits over visible keys)
//   capped  = softcap * tanh(scores / softcap)         out     = weights . value
//
// docs/semantics.md is the contract in full; src/reference.cpp is the same in plain code.
#pragma once

#include <poise/error.h>
#include <poise/executor.h>
#include <poise/stats.h>
#include <poise/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace poise {

// Which keys a query may see by position: key j is visible to query i when j <= i + diagonal.
// There is no default alignment, since Lq != Lk makes top_left and bottom_right different masks.
class Causal {
 public:
  enum class Kind : std::uint8_t { none, top_left, bottom_right, offset };

  constexpr Causal() = default;
  static constexpr Causal none() { return {}; }
  static constexpr Causal top_left() { return Causal(Kind::top_left, 0); }          // diagonal 0
  static constexpr Causal bottom_right() { return Causal(Kind::bottom_right, 0); }  // n_b - Lq
  static constexpr Causal offset(std::int64_t diagonal) { return Causal(Kind::offset, diagonal); }

  constexpr Kind kind() const { return kind_; }
  constexpr std::int64_t diagonal() const { return diagonal_; }  // meaningful for Kind::offset

 private:
  constexpr Causal(Kind kind, std::int64_t diagonal) : kind_(kind), diagonal_(diagonal) {}
  Kind kind_ = Kind::none;
  std::int64_t diagonal_ = 0;
};

// Dropout of weights after the softmax: each is set to 0 with the given probability, else
// multiplied by 1/(1 - probability), rounded to the type of the computation. lse, row_max, row_sum,
// max_score and statistics are those of the call without dropout; out, accumulator and weights are
// not.
//
// Whether a weight is kept depends on (seed, offset) and on its place alone, so the mask is the
// same in forward and backward and for any threads, batches or chunks. With b, h, i and j counted
// from this struct's offsets and Philox as Philox4x32-10 of Salmon et al. 2011 (SC'11), 32-bit
// words:
//   key  = the first two words of Philox(counter = (offset, offset >> 32, 0, 0),
//                                        key = (seed, seed >> 32))
//   u    = word j % 4 of Philox(counter = (j / 4, i, h, b), key)
//   kept = u >= floor(probability * 2^32)
// A dropped key stays visible: NaN in its value still shows, as 0 * NaN.
struct Dropout {
  double probability = 0;         // in [0, 1); 0 = off, at no cost
  std::uint64_t seed = 0;         // one per training run, say
  std::uint64_t offset = 0;       // another one for every call that is to draw anew
  std::int64_t batch_offset = 0;  // where the call's first batch, query head, query and key stand
  std::int64_t head_offset = 0;   // in a longer problem of whose mask it draws a part; >= 0, the
  std::int64_t query_offset = 0;  // last batch, head and query below 2^32, the last key below 2^34
  std::int64_t key_offset = 0;
};

// Everything that changes the result. The scale, sinks and slopes are f32 (f64 for f64 inputs). f16
// and bf16 inputs are widened exactly and computed in f32; out is rounded to nearest even.
//
// One diagonal o_b per call and batch serves causal, window and ALiBi alike: `diagonal` or
// `diagonals` if given, else Causal::offset's number, else 0 for Causal::top_left, else n_b - Lq
// with n_b = kv_lengths[b] if given and Lk otherwise.
struct Options {
  Causal causal{};
  std::optional<double> scale{};   // absent = 1/sqrt(D); 0 and negatives are values; finite
  ConstTensor scale_per_head{};    // [Hq], instead of `scale`
  double softcap = 0;              // 0 = off; finite, >= 0
  ConstTensor mask{};              // bool, true = may attend; broadcast from the right to
                                   // [B, Hq, Lq, Lk]
  ConstTensor bias{};              // f32, f64, f16 or bf16, added after softcap, -inf = masked;
                                   // broadcasts like mask; both may be given
  std::int64_t window_left = -1;   // >= 0 keeps j >= i + o_b - window_left; -1 = open
  std::int64_t window_right = -1;  // >= 0 keeps j <= i + o_b + window_right; -1 = open
  std::optional<std::int64_t> diagonal{};  // explicit o for every batch, with or without causal
  ConstTensor diagonals{};                 // i32 or i64 [B], explicit o_b
  ConstTensor kv_lengths{};                // i32 or i64 [B], 0 ... Lk; later keys do not exist
  ConstTensor q_lengths{};                 // i32 or i64 [B], 0 ... Lq; later rows: out 0, lse -inf
  ConstTensor alibi_slopes{};              // [Hq] or [B, Hq]; logit += -slope * |i + o_b - j|
  ConstTensor sinks{};           // [Hq], an extra logit in the denominator only; -inf = none
  Dropout dropout{};             // after the softmax; off by default
  int threads = 0;               // 0 = default_threads(); ignored when executor is given
  Executor* executor = nullptr;  // null = oneTBB with `threads` threads
};

// What a call hands out besides `out`. Asking for any of it changes no bit of out, lse, row_max or
// row_sum. Pointers name views on the caller's memory; dtype f32, f64 for f64 inputs.
struct Extras {
  Stats* stats = nullptr;       // overwritten; level and sampling come from stats->request
  const Tensor* lse = nullptr;  // [B, Hq, Lq] natural log of the denominator, sink included;
                                // -inf in a row without keys and sink
  const Tensor* lse_without_sink = nullptr;  // [B, Hq, Lq]
  const Tensor* max_score = nullptr;  // [B, Hq, Lq] largest visible logit, sink excluded; -inf
                                      // without keys
  const Tensor* row_max = nullptr;    // [B, Hq, Lq] softmax state, sink included: what merge() and
  const Tensor* row_sum = nullptr;    // [B, Hq, Lq] backward take; row_sum 0 = no keys
  const Tensor* accumulator = nullptr;  // [B, Hq, Lq, Dv] sum of exp(logit - row_max) * value,
                                        // each times what dropout makes of a weight
  const Tensor* scores = nullptr;       // [B, Hq, Lq, Lk] materialised; scores and capped cover
  const Tensor* capped = nullptr;       //   masked keys too (0 at keys and rows beyond the lengths)
  const Tensor* logits = nullptr;       //   -inf at masked keys
  const Tensor* weights = nullptr;      //   0 at masked keys and in rows without keys; dropped
                                        //   and scaled as they multiply the values
};

// Computes attention.
//   query [B, Hq, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv], out [B, Hq, Lq, Dv]; one
//   dtype (f32, f64, f16, bf16) for all four, any strides; query head h reads kv head h / (Hq /
//   Hkv).
// Errors: bad_shape, bad_dtype, bad_layout, bad_value, bad_alias, out_of_memory; nothing is written
//   before every check has passed.
// Cost: 2 * B * Hq * Lq * Lk * (D + Dv) flops for what the masks leave visible; workspace per
//   thread O(L * D), never Lq * Lk (unless scores, capped, logits or weights are asked for).
//   Thread-safe as long as outputs of concurrent calls do not overlap.
// Bits: the same for any thread count, batch composition, chunking of queries and set of extras.
// Accuracy: exp within (1.25 |t| + 3) * 2^-24; rms error at most 1.1 times that of the plain
//   materialised computation in the same dtype.
// Source: Vaswani et al. 2017 (1706.03762); online softmax: Milakov & Gimelshein 2018 (1805.02867).
Error attention(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                const Tensor& out, const Options& options = {}, const Extras& extras = {});

// Joins two partial results over disjoint keys of the same queries: (out, lse) pairs as attention
// returns them, a then b. out [B, Hq, Lq, Dv], lse [B, Hq, Lq]. Within rounding of the whole;
// merge(empty, x) = x and merge(empty, empty) = empty (out 0, lse -inf). A sink must have joined at
// most one of them. The result may be written over a or b.
Error merge(const ConstTensor& out_a, const ConstTensor& lse_a, const ConstTensor& out_b,
            const ConstTensor& lse_b, const Tensor& out, const Tensor& lse);

// The softmax state of a set of rows: views on Extras::row_max, row_sum and accumulator.
struct State {
  Tensor row_max;      // [B, Hq, Lq]
  Tensor row_sum;      // [B, Hq, Lq]
  Tensor accumulator;  // [B, Hq, Lq, Dv]
};

// Joins state `part` into `whole` by the merge the kernels use: parts of kSplit keys each, merged
// in ascending order, give the bits of the undivided call.
Error merge(const State& whole, const State& part);

// out = accumulator / row_sum and lse = row_max + log(row_sum), with the bits of attention(). out
// has the state's dtype, or f16 or bf16 from an f32 state; lse may be an absent tensor.
Error finish(const State& state, const Tensor& out, const Tensor& lse);

// Keys per block and per split of the key axis, at absolute multiples of the sequence's positions.
// Constants, so that no bit depends on sizes, threads or ranks.
inline constexpr std::int64_t kBlock = 128;
inline constexpr std::int64_t kSplit = 512;

// What attention() would do with this call, in words: kernel, instruction set, tiles, tasks,
// threads, workspace, flops, and why. Reads no tensor data, so null pointers are fine. Writes the
// text to *text.
Error explain(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
              const Options& options, std::string* text);

}  // namespace poise
