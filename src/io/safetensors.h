// safetensors files: a JSON header and one block of data, read as views, written atomically.
//
// dtypes F16 BF16 F32 F64 BOOL I32 I64 become tensors, the format's other whole-byte types are
// listed only. The data must be covered exactly: no hole, no overlap, nothing after the last
// tensor. The format does not align tensors; one that is misaligned in memory is copied.
// Source: github.com/huggingface/safetensors, README section "Format".
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/contents.h"

namespace poise::io {

// The format's own bound on the JSON header.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

// One tensor of the header, without a view; dtype is absent where poise has none.
struct ListedTensor {
  Entry entry;
  std::optional<DType> dtype;
};

// The header of a whole file, checked against its size; tensors in the order of their data, nothing
// copied and no data read. Errors: as parse_safetensors().
Error list_safetensors(std::span<const std::byte> bytes, const std::string& source,
                       std::vector<ListedTensor>* tensors,
                       std::map<std::string, std::string>* metadata);

// Parses a whole file; entries in the order of their data. `bytes` must outlive *contents.
// Errors: bad_file, the sentence starts with "[read] <source>: ".
Error parse_safetensors(std::span<const std::byte> bytes, const std::string& source,
                        Contents* contents);

struct NamedTensor {
  std::string name;
  ConstTensor tensor;
};

// Writes the tensors, any strides, widest dtype first and by name within it, so that all are
// aligned; the header is padded to a multiple of 8. Errors, nothing written: bad_value (a name that
// is empty, `__metadata__`, not UTF-8, with NUL, or given twice; metadata that is not UTF-8),
// bad_layout (null data, negative extents), bad_file (the system's reason).
Error write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata);

}  // namespace poise::io
