// Means over independent units with their standard errors, and a straight line through points.
//
// In: one number per unit. Out: Estimates. The sums are Welford's, so that a small scatter around a
// large mean is not lost. Must not happen here: numbers that depend on one another taken for units.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lab/result.h"

namespace poise::lab {

class Mean {
 public:
  void add(double x) {
    ++count_;
    const double off = x - mean_;
    mean_ += off / static_cast<double>(count_);
    squares_ += off * (x - mean_);
  }
  std::int64_t count() const { return count_; }
  double value() const { return mean_; }
  double error() const {
    if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
    const auto n = static_cast<double>(count_);
    return std::sqrt(squares_ / (n - 1) / n);
  }
  Estimate estimate() const { return {mean_, error()}; }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

// Least-squares slope of ln y against ln x, with the error that those of y leave it. At least two
// different x; all x and y above 0.
inline Estimate log_log_slope(const std::vector<double>& x, const std::vector<Estimate>& y) {
  double centre = 0, spread = 0, slope = 0, variance = 0;
  for (const double v : x) centre += std::log(v) / static_cast<double>(x.size());
  for (const double v : x) spread += std::pow(std::log(v) - centre, 2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double weight = (std::log(x[i]) - centre) / spread;
    slope += weight * std::log(y[i].value);
    variance += std::pow(weight * y[i].error / y[i].value, 2);
  }
  return {slope, std::sqrt(variance)};
}

}  // namespace poise::lab
