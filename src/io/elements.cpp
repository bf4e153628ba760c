// Packing strided elements and widening 16-bit floats.
//
// In: views. Out: bytes or float32 numbers of their own. Not here: how one number is widened
// (kernels/half.h).
#include "io/elements.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "io/contents.h"
#include "kernels/half.h"

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
    (*widened)[i] = tensor.dtype == DType::f16 ? widen_f16(bits) : widen_bf16(bits);
  }
  return {};
}

}  // namespace poise::io
