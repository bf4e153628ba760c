// Geometry of strided views: which bytes they touch, and whether two of them share any.
// In: views with non-negative extents. Out: byte ranges and yes/no answers; nothing is read through
// the data pointers.
// The answers are safe, not clever: `true` may mean "could not be proved apart", `false` is a
// proof. What must not happen here: sentences about arguments (check.cpp has them), allocation.
// Method: two boxes meet when sum x_k s_k, x_k in a known interval per stride, hits a known
// interval: a bounded knapsack, walked from the largest stride down, pruned by what the smaller
// strides can still reach. Views of real tensors have nested strides, so a few steps decide.
#pragma once

#include <poise/tensor.h>

#include <cstdint>

namespace poise {

// Bytes [begin, end) from the first to past the last byte of any element; empty without elements.
struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
};

constexpr bool intersects(const ByteRange& a, const ByteRange& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Offsets of the first byte and past the last byte, relative to data; both 0 without elements.
// False when the arithmetic passes int64.
bool byte_offsets(const ConstTensor& view, std::int64_t* low, std::int64_t* high);

// The absolute range. False when byte_offsets is, or the range leaves the address space.
bool byte_range(const ConstTensor& view, ByteRange* range);

// Whether two different indices of one view may name the same bytes. byte_range must hold.
bool may_overlap_itself(const ConstTensor& view);

// Whether two views may share a byte. byte_range must hold for both.
bool may_overlap(const ConstTensor& a, const ConstTensor& b);

}  // namespace poise
