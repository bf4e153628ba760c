// Packing strided elements and widening 16-bit floats.
//
// binary16 (IEEE 754-2008): sign, 5 exponent bits with bias 15, 10 fraction bits. bfloat16 is the
// upper half of a float32.
#include "io/elements.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "io/contents.h"

namespace poise::io {
namespace {

// Copies the sub-tensor that starts at `element` (an offset in elements) and returns the next byte
// to write. Recursion depth is the rank, at most kMaxRank.
std::byte* copy_axis(const ConstTensor& t, int axis, std::int64_t element, std::byte* out) {
  const std::int64_t size = size_bytes(t.dtype);
  const auto* base = static_cast<const std::byte*>(t.data);
  if (axis == t.rank) {
    std::memcpy(out, base + element * size, static_cast<std::size_t>(size));
    return out + size;
  }
  const std::int64_t extent = t.extent(axis), stride = t.stride(axis);
  if (axis == t.rank - 1 && stride == 1) {
    std::memcpy(out, base + element * size, static_cast<std::size_t>(extent * size));
    return out + extent * size;
  }
  for (std::int64_t i = 0; i < extent; ++i) out = copy_axis(t, axis + 1, element + i * stride, out);
  return out;
}

}  // namespace

Error pack(const ConstTensor& tensor, const std::string& who, std::vector<std::byte>* packed) {
  const auto bad = [&](const std::string& why) { return Error(ErrorCode::bad_layout, who + why); };
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    return bad(": rank " + std::to_string(tensor.rank) + " is not in 0 ... " +
               std::to_string(kMaxRank));
  std::vector<std::int64_t> shape;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.extent(axis) < 0)
      return bad(": extent " + std::to_string(tensor.extent(axis)) + " of axis " +
                 std::to_string(axis) + " is negative");
    shape.push_back(tensor.extent(axis));
  }
  const std::optional<std::int64_t> bytes = array_bytes(shape, size_bytes(tensor.dtype));
  if (!bytes) return bad(": the product of its extents does not fit int64");
  if (*bytes > 0 && tensor.data == nullptr) return bad(": data is null");
  packed->resize(static_cast<std::size_t>(*bytes));
  if (*bytes > 0) copy_axis(tensor, 0, 0, packed->data());
  return {};
}

float widen(bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

float widen(f16 value) {
  constexpr std::uint32_t kFractionBits = 10, kFloatFractionBits = 23;
  constexpr std::uint32_t kShift = kFloatFractionBits - kFractionBits;
  constexpr std::uint32_t kBiasDifference = 127 - 15;
  constexpr std::uint32_t kSpecialExponent = 31, kFloatSpecialExponent = 255;
  constexpr float kSubnormalUnit = 0x1p-24f;  // value of the lowest fraction bit at exponent 0
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> kFractionBits) & kSpecialExponent;
  const std::uint32_t fraction = value.bits & ((1u << kFractionBits) - 1);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * kSubnormalUnit;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide =
      exponent == kSpecialExponent ? kFloatSpecialExponent : exponent + kBiasDifference;
  return std::bit_cast<float>(sign | wide << kFloatFractionBits | fraction << kShift);
}

Error widen(const ConstTensor& tensor, std::vector<float>* widened) {
  if (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16 && tensor.dtype != DType::f32)
    return {ErrorCode::bad_dtype, std::string("[widen] tensor: dtype ") + name(tensor.dtype) +
                                      " is none of f16, bf16 and f32"};
  std::vector<std::byte> packed;
  if (Error error = pack(tensor, "[widen] tensor", &packed)) return error;
  const auto size = static_cast<std::size_t>(size_bytes(tensor.dtype));
  widened->resize(packed.size() / size);
  for (std::size_t i = 0; i < widened->size(); ++i) {
    const std::byte* element = packed.data() + i * size;
    if (tensor.dtype == DType::f32) {
      std::memcpy(&(*widened)[i], element, size);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, element, size);
    (*widened)[i] = tensor.dtype == DType::f16 ? widen(f16{bits}) : widen(bf16{bits});
  }
  return {};
}

}  // namespace poise::io
