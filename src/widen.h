// Elements of any floating dtype as double, one at a time: for code that reads rather than
// computes.
//
// In: a view and an offset in elements. Out: the value, widened exactly (every f16, bf16 and f32 is
// a double). Kernels widen whole vectors themselves; nothing here narrows.
#pragma once

#include <poise/tensor.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace poise {

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
inline double widen(f16 half) {
  const int exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  double magnitude = 0;
  if (exponent == 31)
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  return half.bits >> 15 != 0 ? -magnitude : magnitude;
}

// bfloat16 is the upper half of a float.
inline double widen(bf16 half) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{half.bits} << 16));
}

// The element at `offset` of a view of f32, f64, f16 or bf16.
inline double element(const ConstTensor& tensor, std::int64_t offset) {
  switch (tensor.dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(tensor.data)[offset]);
    case DType::f64:
      return static_cast<const double*>(tensor.data)[offset];
    case DType::f16:
      return widen(static_cast<const f16*>(tensor.data)[offset]);
    case DType::bf16:
      return widen(static_cast<const bf16*>(tensor.data)[offset]);
    case DType::boolean:
    case DType::i32:
    case DType::i64:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace poise
