// The 16-bit formats in plain bits: exact widening, and narrowing to nearest even.
//
// For biases, for the scalar kernels, and as what the vector conversions are compared with. Source
// of the formats: IEEE 754-2019 (binary16), bfloat16 = the upper half of a float32.
#pragma once

#include <stdint.h>
#include <string.h>

namespace poise {

inline float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float widen_bf16(uint16_t bits) { return float_of_bits(static_cast<uint32_t>(bits) << 16); }

inline float widen_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, normal in float32
    const float size = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return float_of_bits(sign | bits_of_float(size));
  }
  const uint32_t wide_exponent = exponent == 0x1fu ? 0xffu : exponent + 112u;
  // A signalling NaN becomes quiet, as the conversion instruction makes it.
  const uint32_t quiet = exponent == 0x1fu && mantissa != 0 ? 0x400000u : 0u;
  return float_of_bits(sign | (wide_exponent << 23) | (mantissa << 13) | quiet);
}

inline uint16_t narrow_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  // A NaN keeps its upper half, made quiet; adding to it could carry into infinity.
  if (x != x) return static_cast<uint16_t>((bits | 0x400000u) >> 16);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline uint16_t narrow_f16(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u)  // NaN, quiet, with the upper bits of its payload
    return static_cast<uint16_t>(sign | 0x7e00u | ((size >> 13) & 0x3ffu));
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
  // What is dropped: 13 bits of a normal result, more of a subnormal one.
  const uint32_t exponent = size >> 23;
  const bool normal = exponent >= 113u;
  const uint32_t drop = normal ? 13u : 126u - exponent;
  if (drop > 24u) return static_cast<uint16_t>(sign);  // below half of the smallest subnormal
  const uint32_t mantissa = normal ? size - (112u << 23) : (size & 0x7fffffu) | 0x800000u;
  const uint32_t half = 1u << (drop - 1u), odd = (mantissa >> drop) & 1u;
  return static_cast<uint16_t>(sign | ((mantissa + half - 1u + odd) >> drop));
}

}  // namespace poise
