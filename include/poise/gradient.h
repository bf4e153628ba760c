// Scaled dot-product attention, backward: the gradients of every option, without the L x L matrix.
//
//   P = exp(logits - row_max) / row_sum        dP = dout value^T
//   d logits = P (dP - delta + dlse)           delta = sum_c dout out, per row
//   d scores = d logits (4 e / (1 + e)^2, e = exp(-2 |scores / softcap|), where scores are capped)
//   dq = scale d scores key      dk = scale d scores^T query      dv = P^T dout
//
// docs/semantics.md, "Backward", is the contract; src/reference_gradient.cpp the same in plain
// code.
#pragma once

#include <poise/attention.h>
#include <poise/error.h>
#include <poise/stats.h>
#include <poise/tensor.h>

namespace poise {

// What backward takes from the forward call of the same inputs and options. row_max and row_sum are
// Extras::row_max and Extras::row_sum: from them P has forward's own rounding. Who has only kept
// lse gives that instead: exp(logit - lse) rounds lse once more, which costs up to |lse| * 2^-24
// (f64 2^-53) of relative error in P.
struct Forward {
  ConstTensor out{};      // [B, Hq, Lq, Dv], query's dtype
  ConstTensor row_max{};  // [B, Hq, Lq], f32 (f64 for f64 inputs)
  ConstTensor row_sum{};  // [B, Hq, Lq]
  ConstTensor lse{};      // [B, Hq, Lq], sink included; instead of row_max and row_sum
};

// The gradient of a loss with respect to what forward handed out.
struct OutGradient {
  ConstTensor dout{};  // [B, Hq, Lq, Dv], query's dtype, any strides
  ConstTensor dlse{};  // [B, Hq, Lq], f32 (f64 for f64 inputs); absent = 0. Against the lse that
                       // includes the sink; ignored on rows without keys and sink
};

// Where gradients go; an absent tensor is not computed. dq, dk and dv have query's dtype, the
// others f32 (f64 for f64 inputs). Rows beyond the lengths, masked keys and rows without keys get
// zeros. Every tensor is overwritten.
struct Gradients {
  Tensor dq{};     // [B, Hq, Lq, D]
  Tensor dk{};     // [B, Hkv, Lk, D], summed over the group's heads in order
  Tensor dv{};     // [B, Hkv, Lk, Dv]
  Tensor dbias{};  // the bias's own shape, summed over the axes it broadcasts; 0 where masked. Also
                   // without Options::bias: then any shape that broadcasts to [B, Hq, Lq, Lk]
  Tensor dsinks{};   // [Hq]; 0 for a head without a sink
  Tensor dscale{};   // [1], or [Hq] per head: of d scores * dots, so defined at scale 0
  Tensor dslopes{};  // [Hq] or [B, Hq], as alibi_slopes
};

// Computes gradients.
//   query, key, value, options: those of the forward call.
//   stats: null, or where the gradient statistics of every head go (HeadStats::gradient, stats.h):
//     the Stats that forward filled with the same heads, whose other members stay as they are, or
//     one without heads, which gets heads of which nothing else is measured. Its request says which
//     rows and keys count; at level off nothing is measured or written. Without forward's level
//     full no transmission is expected. Changes no bit of any gradient. Cost: a few operations per
//     pair beside its products (docs/performance.md).
// Errors: bad_shape, bad_dtype, bad_layout, bad_value (of stats: other heads, scales or softcap
//   than this call's, or a request out of range), bad_alias, out_of_memory; nothing is written
//   before every check has passed.
// Cost: 5 products, 2 (3 D + 2 Dv) flops per visible pair; dbias recomputes two of them. Memory
//   O(L (D + Dv)) per thread, never Lq * Lk. Thread-safe as long as outputs of concurrent calls do
//   not overlap.
// Bits: the same for any thread count and batch composition; those of statistics, which add up the
//   batches, for any thread count. A chunk of the queries gives the bits of its rows of dq; dk and
//   dv are sums over queries, which chunks would cut elsewhere.
// Accuracy: rms error at most 1.1 times that of the plain materialised computation in the same
//   dtype that starts from the same out (f16, bf16: 1.5 times). An out of 16 bits puts its rounding
//   into d logits: docs/semantics.md, "Accuracy".
// Source: Dao et al. 2022 (2205.14135), algorithm 4; Dao 2023 (2307.08691).
Error backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
               const Forward& forward, const OutGradient& gradient, const Gradients& gradients,
               const Options& options = {}, Stats* stats = nullptr);

}  // namespace poise
