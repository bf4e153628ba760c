// Closed forms of the softmax of a row of given spread, and what theory expects of a head.
//
// In: numbers and a HeadStats. Out: thresholds, constants, bounds, and the three predictions of the
// spread beside its measurement. Nothing here reads a tensor (moments.cpp does) or judges
// (verdicts_*.cpp do). Sources are named at each declaration; derivations: docs/health.md.
#include <poise/health.h>
#include <poise/theory.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "wording.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// "Looks like" means: within a tenth of what the assumption says, and this many standard errors.
constexpr double kTolerance = 0.1;
constexpr double kStandardErrors = 4.5;

// The first part of "independent elements of mean 0 and variance 1" that these moments contradict,
// as a sentence; empty when none does.
std::string contradiction(const InputMoments& m, double head_dim) {
  const auto error = [](double rows) { return kStandardErrors / std::sqrt(std::max(1.0, rows)); };
  const auto q_rows = static_cast<double>(m.q_rows), k_rows = static_cast<double>(m.k_rows);
  const auto batches = static_cast<double>(std::max<std::int64_t>(1, m.batches));
  // The variance of n elements has standard error sqrt((kurtosis + 2) / n).
  const auto variance_allowance = [&](double rows, double excess) {
    return kTolerance + error(rows * head_dim / std::max(1.0, excess + 2));
  };
  const auto variance = [](const char* which, double value) {
    return std::string(which) + " elements have variance " + number(value) + ", not 1";
  };
  const auto mean = [](const char* which, double value) {
    return std::string(which) + " has components of mean up to " + number(value) + ", not 0";
  };
  if (std::fabs(m.q_variance - 1) > variance_allowance(q_rows, m.q_excess_kurtosis))
    return variance("q", m.q_variance);
  if (std::fabs(m.k_variance - 1) > variance_allowance(k_rows, m.k_excess_kurtosis))
    return variance("k", m.k_variance);
  if (m.q_max_abs_mean > kTolerance + error(q_rows / batches)) return mean("q", m.q_max_abs_mean);
  if (m.k_max_abs_mean > kTolerance + error(k_rows / batches)) return mean("k", m.k_max_abs_mean);
  const double rows_per_batch = std::min(q_rows, k_rows) / batches;
  if (m.mean_adjacent_correlation > kTolerance + error(rows_per_batch) / 2)
    return "neighbouring components are correlated, by " + number(m.mean_adjacent_correlation) +
           " on average";
  if (std::fabs(m.alignment - 1) > kTolerance + error(rows_per_batch))
    return "q and k share directions: alignment " + number(m.alignment) + ", not 1";
  return {};
}

// phi(x)^2 Phi(x)^(n - 2) of the standard normal.
double trace_integrand(double x, double n) {
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  const double distribution = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return density * density * std::pow(distribution, n - 2);
}

}  // namespace

DotMoments dot_moments(std::int64_t head_dim, const double* q_mean, const double* k_mean,
                       const double* q_covariance, const double* k_covariance,
                       const double* cross_covariance) {
  DotMoments m;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    m.mean += q_mean[i] * k_mean[i] + cross_covariance[i * head_dim + i];
    for (std::int64_t j = 0; j < head_dim; ++j) {
      const std::int64_t at = i * head_dim + j, mirrored = j * head_dim + i;
      m.variance +=
          q_covariance[at] * k_covariance[at] + cross_covariance[at] * cross_covariance[mirrored] +
          q_mean[i] * k_covariance[at] * q_mean[j] + k_mean[i] * q_covariance[at] * k_mean[j] +
          2 * k_mean[i] * cross_covariance[at] * q_mean[j];
    }
  }
  return m;
}

double saturation_threshold(double keys) { return std::sqrt(2 * std::log(keys)); }

double mean_trace_constant(std::int64_t keys) {
  // The trapezoid rule is exact to rounding on an analytic integrand that vanishes at both ends; at
  // |x| = 12 the squared density is below 1e-63. 2400 steps of 0.01 resolve the peak of any n.
  constexpr double kEnd = 12, kStep = 0.01;
  constexpr int kSteps = 2400;
  const auto n = static_cast<double>(keys);
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) sum += trace_integrand(-kEnd + kStep * i, n);
  return n * (n - 1) * sum * kStep;
}

double entropy_lower_bound(double keys, double variance) {
  const double sigma = std::sqrt(keys * variance);
  const double beta = std::exp(-sigma * std::sqrt(keys / (keys - 1)));
  const double others = 1 + (keys - 1) * beta;
  return std::log(others) + sigma * std::sqrt(keys * (keys - 1)) * beta / others;
}

JacobianBounds jacobian_bounds(double keys, double largest_p1p, double trace) {
  return {largest_p1p, std::min(0.5, 2 * largest_p1p), trace / std::sqrt(keys - 1), trace};
}

double kl_of_spread(double sigma) { return sigma * sigma / 2; }

Expectation expect(const HeadStats& head, std::int64_t head_dim) {
  Expectation e;
  const auto d = static_cast<double>(head_dim);
  const InputMoments& m = head.inputs;
  e.iid = d;
  e.moments_known = m.q_rows > 0 && std::isfinite(m.q_second_moment * m.k_variance_centred);
  e.norms = e.moments_known ? d * m.q_second_moment * m.k_variance_centred : kNaN;
  e.full = e.moments_known ? e.norms * m.alignment : kNaN;
  if (e.moments_known) {
    e.norm_factor = e.norms / e.iid;
    e.alignment_factor = m.alignment;
  }
  const bool has_spread = head.scores.sigma.count() > 0 && head.scale != 0;
  e.measured = has_spread ? head.scores.sum_variance / static_cast<double>(head.measured_rows) /
                                (head.scale * head.scale)
                          : kNaN;
  if (!e.moments_known) {
    e.assumption = m.q_rows > 0 ? "The moments of q and k are not finite."
                                : "The moments of q and k were not measured.";
    return e;
  }
  const std::string against = contradiction(m, d);
  e.assumption_holds = against.empty();
  e.assumption = e.assumption_holds
                     ? "Elements of q and k look independent, with mean 0 and variance 1."
                     : "The textbook assumption fails: " + against + ".";
  return e;
}

}  // namespace poise
