// The geometry of overlap.h: an exact search for a common element with a step limit; a search that
// runs out of steps answers "overlaps", which is the safe side.
#include "overlap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

namespace poise {
namespace {

// Sums of two byte extents do not fit int64 when a caller's strides are wild.
using Wide = __int128;

// Steps of one search, about 20 microseconds. Real layouts need fewer than a hundred; whatever
// needs more counts as overlapping.
constexpr int kSearchSteps = 4096;

// One term x * stride of an address difference, x in [low, high]; stride > 0, in bytes.
struct Term {
  std::int64_t stride, low, high;
};

constexpr std::size_t kMaxTerms = 2 * kMaxRank;

constexpr Wide floor_divide(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr Wide ceil_divide(Wide a, Wide b) { return -floor_divide(-a, b); }

// Terms by descending stride, and what the terms from k on can add up to.
class Knapsack {
 public:
  void add(std::int64_t stride, std::int64_t low, std::int64_t high) {
    for (std::size_t k = 0; k < count_; ++k)
      if (terms_[k].stride == stride) {
        terms_[k].low += low;
        terms_[k].high += high;
        return;
      }
    std::size_t k = count_++;
    for (; k > 0 && terms_[k - 1].stride < stride; --k) terms_[k] = terms_[k - 1];
    terms_[k] = {stride, low, high};
  }

  // Adds every axis of `view` with more than one index, x in [0, n] times `sign`.
  void add_axes(const ConstTensor& view, int sign) {
    for (int axis = 0; axis < view.rank; ++axis) {
      const std::int64_t last = view.extent(axis) - 1;
      if (last < 1 || view.stride(axis) == 0) continue;
      const std::int64_t stride = std::abs(view.stride(axis)) * size_bytes(view.dtype);
      add(stride, sign < 0 ? -last : 0, sign < 0 ? 0 : last);
    }
  }

  std::size_t count() const { return count_; }
  Term& term(std::size_t k) { return terms_[k]; }

  // Whether every stride passes all that smaller ones reach together, as in any layout of a dense
  // tensor: then only all x = 0 gives 0. Cheap, and almost always the answer.
  bool nested() const {
    Wide reach = 0;
    for (std::size_t k = count_; k-- > 0;) {
      if (terms_[k].stride <= reach) return false;
      reach += static_cast<Wide>(terms_[k].high) * terms_[k].stride;
    }
    return true;
  }

  // Whether terms from `first` on may add up to something in [low, high].
  bool may_reach(std::size_t first, Wide low, Wide high) {
    least_[count_] = most_[count_] = 0;
    for (std::size_t k = count_; k-- > first;) {
      least_[k] = least_[k + 1] + static_cast<Wide>(terms_[k].low) * terms_[k].stride;
      most_[k] = most_[k + 1] + static_cast<Wide>(terms_[k].high) * terms_[k].stride;
    }
    steps_left_ = kSearchSteps;
    return walk(first, low, high);
  }

 private:
  bool walk(std::size_t k, Wide low, Wide high) {
    if (k == count_) return low <= 0 && 0 <= high;
    const Term& term = terms_[k];
    const Wide first = std::max<Wide>(term.low, ceil_divide(low - most_[k + 1], term.stride));
    const Wide last = std::min<Wide>(term.high, floor_divide(high - least_[k + 1], term.stride));
    for (Wide x = first; x <= last; ++x) {
      if (--steps_left_ < 0) return true;
      if (walk(k + 1, low - x * term.stride, high - x * term.stride)) return true;
    }
    return false;
  }

  std::array<Term, kMaxTerms> terms_{};
  std::array<Wide, kMaxTerms + 1> least_{}, most_{};
  std::size_t count_ = 0;
  int steps_left_ = 0;
};

bool has_elements(const ConstTensor& view) {
  for (int axis = 0; axis < view.rank; ++axis)
    if (view.extent(axis) == 0) return false;
  return true;
}

}  // namespace

bool byte_offsets(const ConstTensor& view, std::int64_t* low, std::int64_t* high) {
  *low = *high = 0;
  if (!has_elements(view)) return true;
  const std::int64_t size = size_bytes(view.dtype);
  std::int64_t first = 0, last = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.extent(axis) - 1, view.stride(axis), &reach) ||
        __builtin_mul_overflow(reach, size, &reach))
      return false;
    std::int64_t* side = reach < 0 ? &first : &last;
    if (__builtin_add_overflow(*side, reach, side)) return false;
  }
  if (__builtin_add_overflow(last, size, &last)) return false;
  *low = first;
  *high = last;
  return true;
}

bool byte_range(const ConstTensor& view, ByteRange* range) {
  std::int64_t low = 0, high = 0;
  if (!byte_offsets(view, &low, &high)) return false;
  *range = {};
  if (low == high) return true;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return !__builtin_add_overflow(address, low, &range->begin) &&
         !__builtin_add_overflow(address, high, &range->end);
}

bool may_overlap_itself(const ConstTensor& view) {
  if (!has_elements(view)) return false;
  for (int axis = 0; axis < view.rank; ++axis)
    if (view.extent(axis) > 1 && view.stride(axis) == 0) return true;
  // Indices i and j meet when sum (i_k - j_k) s_k = 0 with some i_k != j_k: terms of both signs,
  // the first nonzero one positive by symmetry. Axes of one stride merge to an interval that may
  // be 0 in two ways, so they are told apart first.
  Knapsack sums;
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t last = view.extent(axis) - 1;
    if (last < 1) continue;
    const std::int64_t stride = std::abs(view.stride(axis));
    for (int other = 0; other < axis; ++other)
      if (view.extent(other) > 1 && std::abs(view.stride(other)) == stride) return true;
    sums.add(stride, -last, last);
  }
  if (sums.nested()) return false;
  for (std::size_t lead = 0; lead < sums.count(); ++lead) {
    sums.term(lead).low = 1;
    if (sums.may_reach(lead, 0, 0)) return true;
  }
  return false;
}

bool may_overlap(const ConstTensor& a, const ConstTensor& b) {
  ByteRange a_range, b_range;
  if (!byte_range(a, &a_range) || !byte_range(b, &b_range)) return true;
  if (!intersects(a_range, b_range)) return false;
  // Bytes of a start at a_range.begin + X, bytes of b at b_range.begin + Y, and two elements meet
  // when -size(a) < a - b < size(b).
  Knapsack difference;
  difference.add_axes(a, +1);
  difference.add_axes(b, -1);
  const Wide apart = static_cast<Wide>(b_range.begin) - static_cast<Wide>(a_range.begin);
  return difference.may_reach(0, apart - size_bytes(a.dtype) + 1, apart + size_bytes(b.dtype) - 1);
}

}  // namespace poise
