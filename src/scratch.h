// Memory for the length of one call: workspaces, row tallies, states of the materialised outputs.
//
// Each thread keeps its last block for its next call, so that repeated calls touch warm pages and
// no allocator. A nested call on the same thread (an executor that runs other work inside run())
// finds the block taken and gets one of its own. What must not happen here: an exception, or a
// block kept that is larger than kKeptBytes.
#pragma once

#include <cstdint>

namespace poise {

class Scratch {
 public:
  // Largest block a thread keeps between calls.
  static constexpr std::int64_t kKeptBytes = std::int64_t{64} << 20;

  explicit Scratch(std::int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Aligned to 64 bytes; null when the allocation failed.
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  bool own_ = false;  // freed at the end rather than kept
};

}  // namespace poise
