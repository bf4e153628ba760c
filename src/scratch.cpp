// The block each thread keeps between its calls, and the one-off blocks beside it.
// The contract is in scratch.h.
#include "scratch.h"

#include <cstdlib>

namespace poise {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

char* allocate(std::int64_t bytes) {
  // aligned_alloc wants a whole number of alignments; sizes that wrap are refused.
  if (bytes < 0 || bytes > INT64_MAX - kAlignmentBytes) return nullptr;
  const std::int64_t size = (bytes + kAlignmentBytes) / kAlignmentBytes * kAlignmentBytes;
  return static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(kAlignmentBytes),
                                               static_cast<std::size_t>(size)));
}

struct KeptBlock {
  char* data = nullptr;
  std::int64_t bytes = 0;
  bool taken = false;

  ~KeptBlock() { std::free(data); }
};

thread_local KeptBlock kept;

}  // namespace

Scratch::Scratch(std::int64_t bytes) {
  if (kept.taken || bytes > kKeptBytes) {
    own_ = true;
    data_ = allocate(bytes);
    return;
  }
  if (bytes > kept.bytes || kept.data == nullptr) {
    std::free(kept.data);
    kept.data = allocate(bytes);
    kept.bytes = kept.data == nullptr ? 0 : bytes;
  }
  kept.taken = kept.data != nullptr;
  own_ = !kept.taken;
  data_ = kept.data;
}

Scratch::~Scratch() {
  if (own_)
    std::free(data_);
  else
    kept.taken = false;
}

}  // namespace poise
