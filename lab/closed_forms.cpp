// Integrals over normal and chi-squared densities by the trapezoidal rule, which converges
// exponentially for smooth integrands that vanish at both ends.
// In: sizes. Out: numbers. Must not happen here: a table of results.
#include "lab/closed_forms.h"

#include <poise/theory.h>

#include <cmath>
#include <numbers>

namespace poise::lab {
namespace {

template <class Integrand>
double integral(double low, double high, int parts, const Integrand& f) {
  const double step = (high - low) / parts;
  double sum = (f(low) + f(high)) / 2;
  for (int i = 1; i < parts; ++i) sum += f(low + i * step);
  return sum * step;
}

double phi(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double Phi(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

}  // namespace

double median_gap(std::int64_t keys) {
  constexpr double kReach = 12;
  constexpr int kParts = 2400, kHalvings = 50;
  const auto n = static_cast<double>(keys);
  const auto probability_above = [&](double gap) {
    return integral(-kReach, kReach, kParts,
                    [&](double x) { return n * phi(x) * std::pow(Phi(x - gap), n - 1); });
  };
  double low = 0, high = kReach;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (probability_above(middle) > 0.5 ? low : high) = middle;
  }
  return (low + high) / 2;
}

UnscaledTrace::UnscaledTrace(std::int64_t keys)
    : c_(mean_trace_constant(keys)), g_(median_gap(keys)) {}
double UnscaledTrace::mean(double head_dim) const { return c_ / std::sqrt(head_dim); }
double UnscaledTrace::median(double head_dim) const {
  return 2 * std::exp(-g_ * std::sqrt(head_dim));
}

double share_of_scaled_scores_within(double bound, std::int64_t head_dim) {
  // y = ln(|q|^2 / D), whose density is that of the chi-squared distribution times |q|^2.
  const double half = static_cast<double>(head_dim) / 2;
  const double norm = half * std::log(half) - std::lgamma(half);
  const double width = std::sqrt(2 / static_cast<double>(head_dim));
  return integral(-60 * width, 12 * width, 20000, [&](double y) {
    const double density = std::exp(norm + half * (y - std::exp(y)));
    return density * std::erf(bound * std::exp(-y / 2) / std::numbers::sqrt2);
  });
}

}  // namespace poise::lab
