// Views on the caller's memory: data, dtype, extents, strides. poise never owns a tensor.
//
// Legend of the letters in every docstring of poise:
//   B batch · Hq query heads · Hkv key/value heads (Hq = group * Hkv) · Lq queries · Lk keys
//   D head_dim of query and key · Dv head_dim of value
// Strides count elements, may be zero or negative, and need not be ordered; `data` points at the
// element with all indices 0. An inner stride of 1 is the fast path, any other is still correct.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace poise {

enum class DType : std::uint8_t { f32, f64, f16, bf16, boolean, i32, i64 };

// IEEE 754 binary16 and bfloat16 as bit patterns; arithmetic happens in float32.
struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

// Bytes of one element. boolean is one byte, 0 = false, anything else = true.
constexpr std::int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::boolean:
      return "bool";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "?";
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};

inline constexpr int kMaxRank = 4;
// Of a view with another number of strides than extents. Calls refuse it, and ranks above kMaxRank.
inline constexpr int kNoRank = -1;

// `Data` is `void` for tensors poise writes and `const void` for those it only reads.
template <class Data>
struct BasicTensor {
  Data* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;  // 0 with null data = no tensor given
  std::array<std::int64_t, kMaxRank> extents{};
  std::array<std::int64_t, kMaxRank> strides{};  // in elements

  constexpr bool given() const { return rank != 0 || data != nullptr; }
  constexpr std::int64_t extent(int axis) const { return extents[static_cast<std::size_t>(axis)]; }
  constexpr std::int64_t stride(int axis) const { return strides[static_cast<std::size_t>(axis)]; }

  // The same elements with two axes exchanged: blhd memory seen as bhld is transposed(1, 2).
  constexpr BasicTensor transposed(int a, int b) const {
    BasicTensor t = *this;
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    t.extents[i] = extents[j];
    t.extents[j] = extents[i];
    t.strides[i] = strides[j];
    t.strides[j] = strides[i];
    return t;
  }

  constexpr operator BasicTensor<const void>() const {
    return {data, dtype, rank, extents, strides};
  }
};

using Tensor = BasicTensor<void>;
using ConstTensor = BasicTensor<const void>;

namespace detail {
template <class View, class T>
constexpr View contiguous_view(T* data, DType dtype, std::initializer_list<std::int64_t> extents) {
  View t;
  t.data = data;
  t.dtype = dtype;
  int axes = 0;
  for (std::int64_t e : extents)
    if (axes < kMaxRank) t.extents[static_cast<std::size_t>(axes++)] = e;
  t.rank = static_cast<int>(extents.size());
  std::int64_t step = 1;
  for (int a = axes - 1; a >= 0; --a) {
    t.strides[static_cast<std::size_t>(a)] = step;
    // An extent of 0 would zero the outer strides; overflow is left for the call's check to refuse.
    const std::int64_t e = t.extents[static_cast<std::size_t>(a)];
    if (__builtin_mul_overflow(step, e > 0 ? e : 1, &step)) step = INT64_MAX;
  }
  return t;
}

template <class View>
constexpr View with_strides(View t, std::initializer_list<std::int64_t> strides) {
  int a = 0;
  for (std::int64_t s : strides)
    if (a < kMaxRank) t.strides[static_cast<std::size_t>(a++)] = s;
  if (strides.size() != static_cast<std::size_t>(t.rank)) t.rank = kNoRank;
  return t;
}
}  // namespace detail

// A contiguous (row-major) view: view(pointer, {B, H, L, D}).
template <class T>
constexpr Tensor view(T* data, std::initializer_list<std::int64_t> extents) {
  return detail::contiguous_view<Tensor>(data, DTypeOf<T>::value, extents);
}
template <class T>
constexpr ConstTensor view(const T* data, std::initializer_list<std::int64_t> extents) {
  return detail::contiguous_view<ConstTensor>(data, DTypeOf<T>::value, extents);
}

// A strided view, one stride for each extent: view(pointer, {B, H, L, D}, {strides in elements}).
template <class T>
constexpr Tensor view(T* data, std::initializer_list<std::int64_t> extents,
                      std::initializer_list<std::int64_t> strides) {
  return detail::with_strides(view(data, extents), strides);
}
template <class T>
constexpr ConstTensor view(const T* data, std::initializer_list<std::int64_t> extents,
                           std::initializer_list<std::int64_t> strides) {
  return detail::with_strides(view(data, extents), strides);
}

}  // namespace poise
