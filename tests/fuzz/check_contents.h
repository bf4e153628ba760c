// What must hold for every file that a reader accepts, whatever bytes it was given.
//
// In: the bytes, what the reader made of them. Out: an abort (which a fuzzer records and a test
// reports) when a promise of src/io/contents.h or open.h is broken. Every element is read, so that
// a sanitizer sees a view that leaves its memory.
#pragma once

#include <poise/tensor.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <vector>

#include "io/contents.h"
#include "io/elements.h"
#include "io/npz.h"

namespace poise::test {

inline void require(bool holds) {
  if (!holds) std::abort();
}

// `inflation`: how many times the size of the file the decoded data may take.
inline void check_contents(std::span<const std::byte> bytes, const io::Contents& contents,
                           std::size_t inflation) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  for (const io::Entry& entry : contents.entries) {
    require(0 <= entry.begin && entry.begin <= entry.end && entry.end <= size);
    require(entry.deflated || entry.end - entry.begin == entry.size_bytes);
    if (!entry.tensor) continue;
    require(entry.tensor->given());
    require(entry.tensor->rank == static_cast<int>(entry.shape.size()));
    std::vector<std::byte> packed;
    require(!io::pack(*entry.tensor, "tensor", &packed));
    require(static_cast<std::int64_t>(packed.size()) == entry.size_bytes);
  }
  std::size_t buffered = 0;
  for (const std::vector<std::byte>& buffer : contents.buffers) buffered += buffer.size();
  // An empty array holds a buffer of one byte.
  require(buffered <= inflation * bytes.size() + contents.entries.size());
}

inline void check_npz_contents(std::span<const std::byte> bytes, const io::Contents& contents) {
  // Decoded, and once more where the npy header misaligns the data.
  check_contents(bytes, contents, 2 * static_cast<std::size_t>(io::kMaxInflation));
}

}  // namespace poise::test
