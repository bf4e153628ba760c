// The definition of attention in plain code: everything else in the project is compared with it.
//
// In: the same tensors and Options as attention(), already checked. Out: every quantity of the
// call, materialised. T is the type all arithmetic runs in: double is the definition, long double
// judges f64 kernels, float is "the plain, materialised computation" of the accuracy rule.
// Never optimised, no tiles, no tricks: docs/semantics.md line by line.
#pragma once

#include <poise/attention.h>

#include <cstdint>
#include <vector>

namespace poise {

// All arrays are row-major over [B, Hq, Lq], with Lk or Dv as a last axis where named.
template <class T>
struct ReferenceResult {
  std::int64_t batch = 0, q_heads = 0, q_len = 0, kv_len = 0, value_dim = 0;

  // The options as they apply: the diagonal and lengths of each batch, the scale and sink (-inf =
  // none) of each head.
  std::vector<std::int64_t> diagonals, kv_lengths, q_lengths;
  std::vector<T> scales, sinks;
  T softcap = 0;  // 0 = off

  std::vector<T> out;  // [..., Dv]
  std::vector<T> lse;  // natural log, sink included; -inf without keys and sink
  std::vector<T> lse_without_sink;
  std::vector<T> max_score;             // +inf if a visible logit is, else NaN if one is, else the
                                        // largest; -inf without keys
  std::vector<T> row_max, row_sum;      // sink included; -inf and 0 without keys and sink
  std::vector<T> dots, scores, capped;  // [..., Lk], masked keys too; 0 beyond the lengths
  std::vector<T> logits;                // [..., Lk], -inf at masked keys and beyond the lengths
  std::vector<T> weights;               // [..., Lk], 0 there; before dropout
  std::vector<T> dropout;  // [..., Lk], what weights are multiplied by: 0 or 1/(1 - p); empty
                           // without dropout
  std::vector<T> bias;     // [..., Lk], 0 where none is given or the key is not visible

  std::int64_t row_index(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return (b * q_heads + h) * q_len + i;
  }
  T kept(std::size_t at) const { return dropout.empty() ? T(1) : dropout[at]; }
  // The weight that multiplies a value, and that Extras::weights shows.
  T weight_after_dropout(std::size_t at) const { return weights[at] * kept(at); }
};

// query [B, Hq, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv]; any dtype, any strides.
// Cost: O(B Hq Lq Lk (D + Dv)) scalar operations and six arrays of B Hq Lq Lk elements, seven with
// dropout.
// Instantiated for float, double and long double. Throws std::bad_alloc.
template <class T>
ReferenceResult<T> reference_attention(const ConstTensor& query, const ConstTensor& key,
                                       const ConstTensor& value, const Options& options);

// What one row's softmax looks like, from its materialised logits in two passes. The formulas and
// units are those of HeadStats; p is over the keys, without the sink.
struct ReferenceRow {
  std::int64_t batch = 0, row = 0;
  bool nonfinite = false;      // a visible logit is NaN or +inf, or a score that counts infinite;
                               // nothing below is filled
  double visible = 0;          // visible keys, stand-ins for -inf included
  double stand_ins = 0;        // of these, keys whose bias is at or below stand_in_bias
  double max = 0, second = 0;  // of the logits; second is -inf with one key
  std::int64_t argmax = -1;    // first key at the maximum
  double lse = 0;              // nats, without the sink
  double sink_weight = 0;
  double score_mean = 0, score_variance = 0, score_min = 0, score_max = 0;  // less stand-ins
  double logit_mean = 0, logit_variance = 0, logit_min = 0, logit_max = 0;  // less stand-ins
  double dot_min = 0, dot_max = 0;                                          // less stand-ins
  double entropy = 0, kl = 0;
  double top1 = 0, rest = 0;  // rest = 1 - top1, summed without cancellation
  double sum_squares = 0, trace = 0, frobenius = 0, gain = 0;
  double temperature_variance = 0;  // Var_p of the logits
  double scale_covariance = 0;      // Cov_p of the logits and of how they move with ln scale

  // The row without the k-th tracked key.
  struct Without {
    double weight = 0;  // of the key itself
    bool something_left = false;
    double top1 = 0, entropy = 0, trace = 0, sigma = 0;
  };
  Without without[kTrackedKeys];

  double keys() const { return visible - stand_ins; }  // the n of every formula
  bool measured() const { return !nonfinite && keys() >= 2; }
};

// One head: rows in order of batch and query, and their sums in HeadStats' own fields. Sketches and
// InputMoments stay empty: a test takes quantiles from the rows.
struct ReferenceHead {
  std::vector<ReferenceRow> rows;
  HeadStats sums;
};

// Statistics of every head at level full. Takes only rows whose index / lanes is a multiple of
// request.every, as kernels of `lanes` rows per vector do.
std::vector<ReferenceHead> reference_statistics(const ReferenceResult<double>& result,
                                                const StatsRequest& request,
                                                std::int64_t lanes = 1);

}  // namespace poise
