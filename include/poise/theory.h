// What theory expects of the scores before any is computed: the moments of q and k that set the
// spread of q . k, and closed forms for the softmax of a row of given spread.
//
// Independent elements of mean 0 and variance 1 give Var(q . k) = D exactly (Bienayme; Vaswani et
// al. 2017, footnote 4). Of any other q and k, within-row variance is tr(Mq Sigma_k), with
// Mq = E[q q^T] and Sigma_k the covariance of the keys: the part of the variance that the softmax
// sees, at O(L D^2) instead of O(L^2 D). health.h, Expectation, sets the two beside the
// measurement.
#pragma once

#include <poise/error.h>
#include <poise/stats.h>
#include <poise/tensor.h>

#include <cstdint>

namespace poise {

// Measures HeadStats::inputs of every query head (its kv head is h / (Hq / Hkv)).
//   query [B, Hq, Lq, D], key [B, Hkv, Lk, D]: f32, f64, f16 or bf16, any strides; q_lengths,
//   kv_lengths [B] i32 or i64, optional: later rows and keys are not touched.
// *stats: of the same heads, `inputs` is overwritten and nothing else; when it has no heads yet it
//   gets Hq of them and head_dim, kv_heads.
// Promise: without masks, D * q_second_moment * k_variance_centred * alignment is the mean
//   within-row variance of q . k, to rounding. Batches with fewer than 2 keys are left out, as
//   their rows are from the statistics. NaN or infinity in q or k shows in the moments.
// Errors ([measure_inputs]): bad_shape, bad_dtype, bad_layout, bad_value, out_of_memory.
// Cost: B (Hq Lq + Hkv Lk / 2) D^2 multiply-adds in double on the calling thread; allocates
//   (Lq + Lk) D + D^2 doubles. Thread-safe for distinct *stats.
Error measure_inputs(const ConstTensor& query, const ConstTensor& key, Stats* stats,
                     const ConstTensor& q_lengths = {}, const ConstTensor& kv_lengths = {});

// Mean and variance of q . k over pairs that are drawn together, as those of a trained head's own
// token are: jointly Gaussian, with means, covariances and C = Cov(q, k), all D x D row-major.
//   mean = mu_q . mu_k + tr C
//   variance = tr(Sigma_q Sigma_k) + tr(C C) + mu_q^T Sigma_k mu_q + mu_k^T Sigma_q mu_k
//              + 2 mu_k^T C mu_q
// Over all pairs of one unmasked matrix C drops out: each query meets every key. Derived.
struct DotMoments {
  double mean = 0, variance = 0;
};
DotMoments dot_moments(std::int64_t head_dim, const double* q_mean, const double* k_mean,
                       const double* q_covariance, const double* k_covariance,
                       const double* cross_covariance);

// sqrt(2 ln n): the standard deviation of scores at which a row of n >= 1 keys freezes onto its
// maximum as n grows (random-energy model; Giorlandino & Goldt 2505.24333).
double saturation_threshold(double keys);

// c_n = n (n - 1) * integral of phi(x)^2 Phi(x)^(n - 2): without any scale, iid Gaussian q and k
// give a mean Jacobian trace of c_n / sqrt(D), within 1.1 % for D >= 64, n >= 2. The median falls
// exponentially in sqrt(D), so this mean says nothing about the typical row. Derived.
double mean_trace_constant(std::int64_t keys);

// A lower bound on the entropy, in nats, of any softmax over n >= 2 logits whose variance
// (divided by n) is `variance` (Zhai et al. 2303.06296, Theorem 3.1).
double entropy_lower_bound(double keys, double variance);

// Bounds on the norms of J = diag(p) - p p^T from what a row's statistics hold. Derived.
struct JacobianBounds {
  double spectral_low, spectral_high;    // max p(1 - p) <= |J|_2 <= min(1/2, 2 max p(1 - p))
  double frobenius_low, frobenius_high;  // tr J / sqrt(n - 1) <= |J|_F <= tr J
};
// keys >= 2, largest_p1p = max over keys of p(1 - p), trace = tr J.
JacobianBounds jacobian_bounds(double keys, double largest_p1p, double trace);

// KL from uniform, in nats, of a row of very many keys with scores of standard deviation sigma well
// below saturation: sigma^2 / 2. Finite rows have less: 5 % at n = 64, sigma = 1.
double kl_of_spread(double sigma);

}  // namespace poise
