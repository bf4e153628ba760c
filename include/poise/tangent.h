// Derivatives of attention along a direction, and second derivatives, without the L x L matrix.
//
// jvp() is forward mode: how out and lse move when query, key and value do. double_backward() is
// reverse mode over backward(): the gradients of a loss made of dq, dk and dv, as gradient
// penalties and influence functions need them. Both work in f32 and f64, with masks, bias, causal,
// window, lengths, grouped heads, softcap, ALiBi, sinks, dropout and scales per head; bias, sinks,
// scales and slopes stand still. docs/semantics.md, "Backward", is the contract.
#pragma once

#include <poise/attention.h>
#include <poise/error.h>
#include <poise/gradient.h>
#include <poise/tensor.h>

namespace poise {

// Shapes, dtype of query, key and value, any strides. An absent tensor stands still.
struct Direction {
  ConstTensor query{};  // [B, Hq, Lq, D]
  ConstTensor key{};    // [B, Hkv, Lk, D]
  ConstTensor value{};  // [B, Hkv, Lk, Dv]
};

// How out and lse move: d/dt at t = 0 of attention(query + t direction.query, ...).
struct Tangent {
  Tensor out{};  // [B, Hq, Lq, Dv], query's dtype
  Tensor lse{};  // [B, Hq, Lq], absent = not wanted; of the lse that includes the sink, 0 in a row
                 // without keys
};

// Forward mode.
//   query, key, value, options, forward: a forward call and what it left.
// Errors: bad_shape, bad_dtype (f16 and bf16 too), bad_layout, bad_value, bad_alias, out_of_memory;
//   nothing is written before every check has passed.
// Cost: up to 5 products of 2 D or 2 Dv flops per visible pair; workspace per thread O(D + Dv).
// Bits: the same for any thread count, batch composition and chunking of queries.
// Accuracy: rms error at most 1.1 times that of the plain materialised computation.
Error jvp(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
          const Forward& forward, const Direction& direction, const Tangent& tangent,
          const Options& options = {});

// Where second gradients go; absent = not computed. Every tensor is overwritten.
struct SecondGradients {
  Tensor query{};  // [B, Hq, Lq, D]
  Tensor key{};    // [B, Hkv, Lk, D]
  Tensor value{};  // [B, Hkv, Lk, Dv]
  Tensor dout{};   // [B, Hq, Lq, Dv]
  Tensor dlse{};   // [B, Hq, Lq]
};

// Reverse mode over backward(). `cotangent` holds the gradients of a loss with respect to dq, dk
// and dv of that call; out come its gradients with respect to query, key, value, dout and dlse.
// Equal to the derivative of backward() along the cotangent (the Hessian is symmetric), and for
// dout and dlse to jvp() along it.
// Errors, bits, accuracy: as jvp(); dk and dv as backward() sums them. Cost: jvp() and up to 10
//   products more; memory O(L (D + Dv)).
Error double_backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                      const Forward& forward, const OutGradient& gradient,
                      const Direction& cotangent, const SecondGradients& gradients,
                      const Options& options = {});

}  // namespace poise
