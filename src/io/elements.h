// Elements out of strided views: packed for files, widened for arithmetic.
//
// In: any ConstTensor. Out: its elements in row-major order. Nothing is rounded here: f16 and bf16
// to float32 is exact, and no narrowing conversion exists.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace poise::io {

// The elements in row-major order, as bytes. Errors: bad_layout (null data with elements, negative
// extents, rank outside 0 ... kMaxRank, a size beyond int64); `who` names the tensor in the
// sentence.
Error pack(const ConstTensor& tensor, const std::string& who, std::vector<std::byte>* packed);

// f16, bf16 or f32 as float32, row-major, as kernels/half.h widens one. Errors: bad_dtype (any
// other), bad_layout as pack(). Cost: a packed copy, then one pass.
Error widen(const ConstTensor& tensor, std::vector<float>* widened);

}  // namespace poise::io
