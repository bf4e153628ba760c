// Single values of small tensors (scales, slopes, sinks, lengths, diagonals) by index.
// In: a view that has passed check_layout, with a dtype of the kind asked for. Out: the value,
// widened exactly. For the few numbers per head or batch, never for query, key, value or a mask.
#pragma once

#include <poise/tensor.h>

#include <cstdint>

namespace poise {

// Element (i) of a rank-1 view, (i, j) of a rank-2 view; f32 or f64.
inline double read_number(const ConstTensor& view, std::int64_t i, std::int64_t j = 0) {
  const std::int64_t at = i * view.stride(0) + j * view.stride(1);
  return view.dtype == DType::f64 ? static_cast<const double*>(view.data)[at]
                                  : static_cast<double>(static_cast<const float*>(view.data)[at]);
}

// Element (i) of a rank-1 view; i32 or i64.
inline std::int64_t read_integer(const ConstTensor& view, std::int64_t i) {
  const std::int64_t at = i * view.stride(0);
  return view.dtype == DType::i64 ? static_cast<const std::int64_t*>(view.data)[at]
                                  : static_cast<const std::int32_t*>(view.data)[at];
}

// A caller's double as the accumulation type holds it; infinite when it does not fit.
inline double rounded(double number, DType dtype) {
  return dtype == DType::f64 ? number : static_cast<double>(static_cast<float>(number));
}

}  // namespace poise
