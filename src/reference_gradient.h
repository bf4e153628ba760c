// The definition of attention's gradients in plain code: every backward pass is compared with it.
//
// In: the tensors and Options of attention(), already checked, and the gradients of a loss with
// respect to out and lse. Out: its gradients with respect to everything that has one, materialised.
// Built on ReferenceResult; T is the type all arithmetic runs in, with the same three uses as
// there. Never from a rounded lse, never optimised: docs/semantics.md, "Backward", line by line.
#pragma once

#include "reference.h"

namespace poise {

// Row-major arrays. A masked pair contributes to none of them, whatever its key, value or query
// hold; rows and keys beyond the lengths have gradient 0. A row that is NaN or sees +inf has NaN
// gradients, and so have the keys it sees and its head's sink, scale and slope: nobody else's.
template <class T>
struct ReferenceGradients {
  ReferenceResult<T> forward;

  std::vector<T> dquery;  // [B, Hq, Lq, D]
  std::vector<T> dkey;    // [B, Hkv, Lk, D], the heads of a group summed in ascending order
  std::vector<T> dvalue;  // [B, Hkv, Lk, Dv], likewise

  // [B, Hq, Lq, Lk]. dweights = dout . value, times dropout's factor, and
  // dlogits = p (dweights - sum p dweights + dlse) with p the weights before dropout, a sink in
  // their denominator: dlogits is the gradient of an additive mask. Both 0 where masked.
  std::vector<T> dweights, dlogits;

  std::vector<T> dbias;   // the bias's own shape, summed over its broadcast axes; empty without one
  std::vector<T> dsinks;  // [Hq] sum over rows of p_sink (dlse - sum p dweights); 0 where the sink
                          // is -inf or none is given
  std::vector<T> dscale;  // [Hq] sum of dscores * dots: defined at scale 0, and of a scale that is
                          // one number the sum over heads
  std::vector<T> dslopes;  // [B, Hq] sum of -dlogits |i + o_b - j|, given slopes or not; of slopes
                           // that are [Hq] the sum over batch
};

// dout [B, Hq, Lq, Dv] and dlse [B, Hq, Lq], any floating dtype and strides. dlse is with respect
// to the lse that includes the sink; an absent tensor is 0. Rows at and after q_lengths are not
// read, rows without keys and sink ignore both. Cost: O(B Hq Lq Lk (D + Dv)) scalar operations;
// eight arrays of B Hq Lq Lk elements and one of dkey and dvalue per query head. Instantiated for
// float, double and long double. Throws std::bad_alloc.
template <class T>
ReferenceGradients<T> reference_backward(const ConstTensor& query, const ConstTensor& key,
                                         const ConstTensor& value, const Options& options,
                                         const ConstTensor& dout, const ConstTensor& dlse = {},
                                         const ConstTensor& out = {});

// What arrives at the logits of one row of what is sent to its weights: |J dP| against |dP|.
// J is the Jacobian of the softmax over the keys, without the sink, as everywhere in statistics:
// dS = p (dP - sum p dP) with p = softmax(logits of the keys) and dP = dweights, so neither the
// sink nor dlse enters. n, |dP| and |dS| leave out finite stand-ins for -inf
// (StatsRequest::stand_in_bias); their weight, if they have any, stays in p and in sum p dP.
struct ReferenceGradientRow {
  std::int64_t batch = 0, row = 0;
  bool nonfinite = false;      // the logits or dP hold a NaN or an infinity
  bool silent = false;         // dP is the same number for all of two keys or more
  bool measured = false;       // n >= 2, and neither of the two
  double keys = 0;             // n
  double sent_squares = 0;     // |dP - mean dP|^2; J 1 = 0, so the mean never counts
  double arrived_squares = 0;  // |dS|^2
  double transmission = 0;     // sqrt(arrived / sent)
  double expected = 0;         // |J|_F^2 / (n - 1): the mean of transmission^2 over iid dP
};

struct ReferenceGradientHead {
  std::vector<ReferenceGradientRow> rows;
  std::int64_t measured_rows = 0, silent_rows = 0, nonfinite_rows = 0;
  double sent_squares = 0, arrived_squares = 0, expected = 0;  // sums over measured rows
  // sqrt(sum of arrived / sum of sent), the value of the head; 0 when nothing is sent.
  double transmission() const;
};

// Rows and sampling are those of reference_statistics().
std::vector<ReferenceGradientHead> reference_gradient_statistics(
    const ReferenceGradients<double>& gradients, const StatsRequest& request,
    std::int64_t lanes = 1);

}  // namespace poise
