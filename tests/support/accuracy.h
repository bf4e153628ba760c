// The rule of docs/semantics.md, "Accuracy", as checks that tests call for the sizes they choose.
//
// In: dtype, length, spreads; how many floats. Out: GoogleTest failures. Each runs on every
// instruction set of this machine.
#pragma once

#include <poise/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/tensor_buffer.h"

namespace poise::test {

// Standard deviations of the scaled scores.
inline const std::vector<double> kSpreads = {0.05, 0.3, 1, 3, 10, 30};

// The rule: pooled rms error at most this many times that of the plain computation in the same
// dtype (of 16 bits: the second), the largest error at most this many times its largest.
inline constexpr double kRmsRatio = 1.1, kRmsRatio16Bit = 1.5, kLargestRatio = 3;
// The rms of fewer elements is chance: two of them would differ by 10 % more often than not.
inline constexpr std::int64_t kFewestForRms = 256;

// Errors of many elements, pooled.
struct Errors {
  double squares = 0, largest = 0;
  std::int64_t count = 0;

  void add(double error) {
    ++count;
    squares += error * error;
    largest = std::max(largest, std::fabs(error));
  }
};

// `dtype`: of the tensor that is judged. `when` says which in failures.
void expect_within(const Errors& got, const Errors& plain, DType dtype, const std::string& when);

// Numbers as a dtype holds them.
template <class T>
std::vector<double> rounded(const std::vector<T>& values, DType dtype) {
  TensorBuffer tensor(dtype, Extents{static_cast<std::int64_t>(values.size())});
  std::size_t n = 0;
  tensor.fill([&] { return static_cast<double>(values[n++]); });
  return tensor.values();
}

// For each spread by itself, pooled over 16 seeds of up to 64 query rows: the rms error of out and
// lse is at most 1.1 times (f32, f64) or 1.5 times (f16, bf16) that of the plain, materialised
// computation in the same dtype, and the largest error at most 3 times its largest. The truth is
// computed in float64, for f64 in long double. For f16 and bf16 the plain computation is the best
// there is: float32 throughout and one rounding of out.
void check_accuracy(DType dtype, std::int64_t kv_len, const std::vector<double>& spreads,
                    double softcap = 0);

// exp2 within 2 ulp of the exact power and exp within (1.25 |t| + 3) 2^-24 of e^t, at every
// `stride`-th f32 argument t <= 0 of exp down to the cut at 2^-100. Stride 1 are all of them, 1.1
// billion, and with them every argument exp2 can be given: t * log2(e), rounded.
void check_exp_over_floats(std::int64_t stride);

}  // namespace poise::test
