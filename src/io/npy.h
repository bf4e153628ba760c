// NumPy's .npy files: one array, read as a view, written atomically.
//
// Versions 1, 2 and 3; C and Fortran order (as strides); dtypes f2 f4 f8 b1 i4 i8 become tensors,
// other plain numbers (u1, c8, ...) are listed only. Refused: big-endian data, Python objects
// (a pickle is never read), structured and text dtypes, headers above 64 KiB, truncated files,
// trailing bytes.
// Source: the format description in NumPy's documentation, numpy.lib.format.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "io/contents.h"

namespace poise::io {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// Parses a whole .npy file into one Entry with an empty name. `bytes` must outlive *contents.
// Errors: bad_file, the sentence starts with "[read] <source>: ".
Error parse_npy(std::span<const std::byte> bytes, const std::string& source, Contents* contents);

// Writes the tensor, any strides, as a version 1 file in C order. Errors, nothing written:
// bad_dtype (bf16: npy has none), bad_layout (null data, negative extents), bad_file (the system's
// reason). Cost: one contiguous copy of the tensor.
Error write_npy(const std::string& path, const ConstTensor& tensor);

}  // namespace poise::io
