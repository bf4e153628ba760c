// Overlap of strided views against brute force: every pair of small random boxes, byte by byte.
// The law that must never break is soundness: what is called apart shares no byte. That the answer
// is also exact on these boxes is checked, so that real layouts are not refused for nothing.
#include "overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <set>
#include <vector>

namespace poise {
namespace {

// Offsets of all bytes of a view, relative to `origin`, once per element that touches them.
std::vector<std::ptrdiff_t> bytes_of(const ConstTensor& view, const std::byte* origin) {
  std::vector<std::ptrdiff_t> bytes;
  std::array<std::int64_t, kMaxRank> index{};
  for (int axis = 0; axis < view.rank; ++axis)
    if (view.extent(axis) == 0) return bytes;
  for (;;) {
    std::int64_t at = 0;
    for (int axis = 0; axis < view.rank; ++axis)
      at += index[static_cast<std::size_t>(axis)] * view.stride(axis);
    const std::ptrdiff_t first =
        static_cast<const std::byte*>(view.data) - origin + at * size_bytes(view.dtype);
    for (std::ptrdiff_t byte = 0; byte < size_bytes(view.dtype); ++byte)
      bytes.push_back(first + byte);
    int axis = view.rank - 1;
    for (; axis >= 0; --axis) {
      auto& i = index[static_cast<std::size_t>(axis)];
      if (++i < view.extent(axis)) break;
      i = 0;
    }
    if (axis < 0) return bytes;
  }
}

bool brute_overlap(const ConstTensor& a, const ConstTensor& b, const std::byte* origin) {
  const auto a_bytes = bytes_of(a, origin);
  const std::set<std::ptrdiff_t> known(a_bytes.begin(), a_bytes.end());
  const auto b_bytes = bytes_of(b, origin);
  return std::any_of(b_bytes.begin(), b_bytes.end(),
                     [&](std::ptrdiff_t byte) { return known.count(byte) != 0; });
}

bool brute_overlap_itself(const ConstTensor& view, const std::byte* origin) {
  auto bytes = bytes_of(view, origin);
  std::sort(bytes.begin(), bytes.end());
  return std::adjacent_find(bytes.begin(), bytes.end()) != bytes.end();
}

// Random boxes around the middle of a small buffer that is never read.
class Boxes {
 public:
  explicit Boxes(unsigned seed) : random_(seed) {}

  const std::byte* origin() const { return buffer_.data(); }

  ConstTensor box() {
    static constexpr std::array<DType, 4> kDTypes = {DType::boolean, DType::bf16, DType::f32,
                                                     DType::f64};
    ConstTensor view;
    view.dtype = kDTypes[static_cast<std::size_t>(number(0, 3))];
    view.rank = static_cast<int>(number(0, 4));
    for (int axis = 0; axis < view.rank; ++axis) {
      view.extents[static_cast<std::size_t>(axis)] = number(0, 9) == 0 ? 0 : number(1, 4);
      view.strides[static_cast<std::size_t>(axis)] = number(-12, 12);
    }
    view.data = origin() + buffer_.size() / 2 + number(-64, 64);
    return view;
  }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937 random_;
  std::array<std::byte, 8192> buffer_{};
};

TEST(overlap, equals_brute_force_on_random_pairs_of_boxes) {
  Boxes boxes(1);
  int apart = 0, meeting = 0;
  for (int round = 0; round < 20000; ++round) {
    const ConstTensor a = boxes.box(), b = boxes.box();
    const bool truth = brute_overlap(a, b, boxes.origin());
    ASSERT_EQ(may_overlap(a, b), truth) << "round " << round;
    ASSERT_EQ(may_overlap(b, a), truth) << "round " << round;
    ++(truth ? meeting : apart);
  }
  EXPECT_GT(apart, 2000);
  EXPECT_GT(meeting, 2000);
}

TEST(overlap, equals_brute_force_within_random_boxes) {
  Boxes boxes(2);
  int apart = 0, meeting = 0;
  for (int round = 0; round < 20000; ++round) {
    const ConstTensor view = boxes.box();
    const bool truth = brute_overlap_itself(view, boxes.origin());
    ASSERT_EQ(may_overlap_itself(view), truth) << "round " << round;
    ++(truth ? meeting : apart);
  }
  EXPECT_GT(apart, 2000);
  EXPECT_GT(meeting, 2000);
}

TEST(overlap, interleaved_large_views_are_decided_within_the_step_limit) {
  // [B, L, 3, H, D] with a pitch between batches that is no multiple of a token.
  const auto* base = reinterpret_cast<const float*>(std::uintptr_t{1} << 40);
  constexpr std::int64_t kL = 100003, kH = 64, kD = 96, kToken = 3 * kH * kD;
  const auto part = [&](std::ptrdiff_t offset) {
    return view(base + offset, {64, kH, kL, kD}, {kL * kToken + 17, kD, kToken, 1});
  };
  EXPECT_FALSE(may_overlap(part(0), part(kH * kD)));
  EXPECT_FALSE(may_overlap(part(kH * kD), part(0)));
  EXPECT_FALSE(may_overlap_itself(part(0)));
  EXPECT_TRUE(may_overlap(part(0), part(kH * kD - 1)));
}

TEST(overlap, an_undecided_search_counts_as_overlapping) {
  // Even addresses against odd ones, by strides without order: apart, but not in 4096 steps.
  const auto* base = reinterpret_cast<const bool*>(std::uintptr_t{1} << 40);
  const auto tangled = [&](std::ptrdiff_t offset) {
    return view(base + offset, {997, 991, 983, 977}, {2002, 2006, 2014, 2018});
  };
  EXPECT_TRUE(may_overlap(tangled(0), tangled(1)));
}

TEST(overlap, byte_offsets_report_arithmetic_past_int64) {
  std::int64_t low = 0, high = 0;
  const auto offsets = [&](std::int64_t extent, std::int64_t stride) {
    ConstTensor line = view(static_cast<const float*>(nullptr), {extent}, {stride});
    return byte_offsets(line, &low, &high);
  };
  EXPECT_TRUE(offsets(3, -2));
  EXPECT_EQ(low, -16);
  EXPECT_EQ(high, 4);
  EXPECT_TRUE(offsets(0, INT64_MAX));
  EXPECT_EQ(low, high);
  EXPECT_TRUE(offsets(1, INT64_MAX));
  EXPECT_FALSE(offsets(2, INT64_MAX));
  EXPECT_FALSE(offsets(2, INT64_MIN));
  EXPECT_FALSE(offsets(INT64_MAX, 2));
  EXPECT_FALSE(offsets(2, INT64_MAX / 4));  // the offset fits, its last byte does not
}

TEST(overlap, byte_range_reports_addresses_outside_the_address_space) {
  ByteRange range;
  const auto* low = reinterpret_cast<const float*>(std::uintptr_t{64});
  EXPECT_TRUE(byte_range(view(low, {17}, {-1}), &range));
  EXPECT_EQ(range.begin, 0U);
  EXPECT_FALSE(byte_range(view(low, {18}, {-1}), &range));
  const auto* high = reinterpret_cast<const float*>(UINTPTR_MAX - 63);
  EXPECT_FALSE(byte_range(view(high, {17}), &range));
}

}  // namespace
}  // namespace poise
