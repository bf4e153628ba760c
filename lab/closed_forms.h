// What theory says of softmax rows whose scores are iid normal, beyond poise/theory.h.
//
// In: sizes. Out: numbers, by quadrature to at least eight digits. All derived; the tests compare
// them with measurements. Must not happen here: a fit to a measurement.
#pragma once

#include <cstdint>

namespace poise::lab {

// g_n: the median of the gap between the largest and the second largest of n >= 2 standard normals:
// P(gap > g) = integral of n phi(x) Phi(x - g)^(n - 1). 0.44, 0.28, 0.22 for n = 8, 64, 512.
double median_gap(std::int64_t keys);

// The Jacobian trace of rows that are not scaled, of n >= 2 keys and wide heads. Such a row is
// one-hot up to its second weight, exp(-|q| gap), and |q| is nearly sqrt(D).
class UnscaledTrace {
 public:
  explicit UnscaledTrace(std::int64_t keys);
  double mean(double head_dim) const;    // c_n / sqrt(D) (theory.h)
  double median(double head_dim) const;  // 2 exp(-g_n sqrt(D))

 private:
  double c_, g_;
};

// P(|q . k| / sqrt(D) < bound) for standard normal q and k of D components: given q, normal with
// variance |q|^2 / D.
double share_of_scaled_scores_within(double bound, std::int64_t head_dim);

}  // namespace poise::lab
