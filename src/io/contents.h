// What a tensor file holds, whichever its format: entries, metadata, and the buffers they need.
//
// Readers fill a Contents from bytes; the bytes (a memory map or the caller's buffer) must outlive
// it, because tensors are views into them wherever the data is stored plainly and aligned. Data
// that is compressed or misaligned is copied once into `buffers`. Sizes are checked here, in one
// place, before anything is allocated.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace poise::io {

enum class Format : std::uint8_t { npy, npz, safetensors };

constexpr const char* name(Format format) {
  switch (format) {
    case Format::npy:
      return "npy";
    case Format::npz:
      return "npz";
    case Format::safetensors:
      return "safetensors";
  }
  return "?";
}

struct Entry {
  std::string name;                 // npz: without ".npy"; npy: empty
  std::string dtype;                // as the file spells it: "<f4", "F16"
  std::vector<std::int64_t> shape;  // extents, any rank
  std::int64_t size_bytes = 0;      // of the elements, decoded
  std::int64_t begin = 0, end = 0;  // where the file keeps them: bytes [begin, end)
  bool deflated = false;            // [begin, end) is a compressed npz member, header included
  // Absent when poise cannot look at it: rank above kMaxRank, or a dtype poise does not have.
  std::optional<ConstTensor> tensor;
};

struct Contents {
  Format format = Format::npy;
  std::vector<Entry> entries;  // npz: order of the archive; safetensors: order of the data
  std::map<std::string, std::string> metadata;  // safetensors `__metadata__`
  std::vector<std::vector<std::byte>> buffers;  // decoded or realigned data behind the tensors
};

// One dtype as a file spells it. `dtype` is absent where poise has none: listed, not viewed.
struct StoredType {
  const char* spelling;
  std::int64_t size_bytes;
  std::optional<DType> dtype;
};

// Bytes of an array of that shape; nullopt when the product of the extents that are not 0, times
// element_bytes, does not fit int64. Extents must not be negative.
std::optional<std::int64_t> array_bytes(const std::vector<std::int64_t>& shape,
                                        std::int64_t element_bytes);

// Sets entry.tensor to a view of `data` (size_bytes long, already checked) and appends the entry.
// Data that is not aligned to its dtype is copied into contents->buffers.
void add_entry(Entry entry, std::optional<DType> dtype, bool fortran_order,
               std::span<const std::byte> data, Contents* contents);

}  // namespace poise::io
