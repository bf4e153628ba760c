// Sizes of arrays without overflow, and views on their bytes.
//
// The product of extents is taken over those that are not 0, so that [0, 2^40, 2^40] is refused as
// well: its strides would overflow although it holds nothing.
#include "io/contents.h"

#include <algorithm>
#include <utility>

namespace poise::io {
namespace {

bool aligned(const std::byte* data, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0;
}

ConstTensor view_of(const Entry& entry, DType dtype, bool fortran_order, const std::byte* data) {
  ConstTensor t;
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<int>(entry.shape.size());
  std::int64_t step = 1;
  for (int i = 0; i < t.rank; ++i) {
    const auto axis = static_cast<std::size_t>(fortran_order ? i : t.rank - 1 - i);
    t.extents[axis] = entry.shape[axis];
    t.strides[axis] = step;
    step *= std::max<std::int64_t>(entry.shape[axis], 1);
  }
  return t;
}

}  // namespace

std::optional<std::int64_t> array_bytes(const std::vector<std::int64_t>& shape,
                                        std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes))
      return std::nullopt;
  }
  return empty ? 0 : bytes;
}

void add_entry(Entry entry, std::optional<DType> dtype, bool fortran_order,
               std::span<const std::byte> data, Contents* contents) {
  if (dtype && entry.shape.size() <= static_cast<std::size_t>(kMaxRank)) {
    const std::byte* start = data.data();
    // An empty span may carry a null pointer; a tensor without elements needs no real address, but
    // a rank-0 view with null data would read as "no tensor given".
    if (data.empty() || !aligned(start, size_bytes(*dtype))) {
      std::vector<std::byte>& copy =
          contents->buffers.emplace_back(std::max<std::size_t>(data.size(), 1));
      std::copy(data.begin(), data.end(), copy.begin());
      start = copy.data();
    }
    entry.tensor = view_of(entry, *dtype, fortran_order, start);
  }
  contents->entries.push_back(std::move(entry));
}

}  // namespace poise::io
