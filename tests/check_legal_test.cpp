// Odd calls that are legal, and what a checked Problem says about them.
// In: valid calls at the edges of docs/semantics.md (zero extents, any strides, broadcasting,
// interleaved buffers, extreme diagonals). Out: no refusal, and the numbers kernels will use.
#include "check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace poise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A call on one float buffer per tensor; sizes are chosen by each test.
struct Call {
  std::vector<float> memory = std::vector<float>(4096, 0.5F);
  ConstTensor query = view(const_memory(), {2, 4, 3, 8});
  ConstTensor key = view(const_memory() + 256, {2, 2, 5, 8});
  ConstTensor value = view(const_memory() + 512, {2, 2, 5, 6});
  Tensor out = view(memory.data() + 1024, {2, 4, 3, 6});
  Options options;
  Extras extras;
  Problem problem;

  const float* const_memory() const { return memory.data(); }
  std::string refusal() {
    return check_forward(query, key, value, out, options, extras, &problem).message();
  }
};

TEST(check, zero_extents_are_legal) {
  for (int axis = 0; axis < 5; ++axis) {
    SCOPED_TRACE(axis);
    const std::int64_t b = axis == 0 ? 0 : 2, hq = axis == 1 ? 0 : 4, lq = axis == 2 ? 0 : 3,
                       lk = axis == 3 ? 0 : 5, dv = axis == 4 ? 0 : 6;
    Call call;
    call.query = view(call.const_memory(), {b, hq, lq, 8});
    call.key = view(call.const_memory() + 256, {b, 2, lk, 8});
    call.value = view(call.const_memory() + 512, {b, 2, lk, dv});
    call.out = view(call.memory.data() + 1024, {b, hq, lq, dv});
    EXPECT_EQ(call.refusal(), "");
  }
}

TEST(check, null_data_is_legal_without_elements) {
  Call call;
  call.query = view(static_cast<const float*>(nullptr), {2, 4, 0, 8});
  call.out = view(static_cast<float*>(nullptr), {2, 4, 0, 6});
  EXPECT_EQ(call.refusal(), "");
}

TEST(check, no_query_heads_go_with_any_key_heads) {
  for (const std::int64_t kv_heads : {0, 2}) {
    Call call;
    call.query.extents[1] = call.out.extents[1] = 0;
    call.key.extents[1] = call.value.extents[1] = kv_heads;
    EXPECT_EQ(call.refusal(), "");
    EXPECT_EQ(call.problem.group, 1);
  }
}

TEST(check, head_dim_zero_needs_a_scale_only_when_there_are_rows) {
  Call call;
  call.query.extents[3] = call.key.extents[3] = 0;
  EXPECT_NE(call.refusal(), "");
  call.options.scale = 0;
  EXPECT_EQ(call.refusal(), "");
  call.options.scale.reset();
  call.query.extents[2] = call.out.extents[2] = 0;
  EXPECT_EQ(call.refusal(), "");
}

TEST(check, views_may_repeat_and_reverse_inputs) {
  Call call;
  call.key.strides = {0, 0, 0, 0};
  call.query.data = call.const_memory() + 191;
  call.query.strides = {-96, -24, -8, -1};
  EXPECT_EQ(call.refusal(), "");
}

TEST(check, tensors_interleaved_in_one_buffer_are_apart) {
  // [B, L, 4, H, D]: query, key, value and out of one token lie beside each other.
  Call call;
  constexpr std::int64_t kB = 2, kL = 5, kH = 3, kD = 8, kToken = 4 * kH * kD;
  const auto part = [&](std::ptrdiff_t index) {
    return view(call.memory.data() + index * kH * kD, {kB, kH, kL, kD},
                {kL * kToken, kD, kToken, 1});
  };
  call.query = part(0);
  call.key = part(1);
  call.value = part(2);
  call.out = part(3);
  EXPECT_EQ(call.refusal(), "");
  call.out = part(2);
  EXPECT_EQ(call.refusal(), "[forward] out: overlaps value");
}

TEST(check, an_output_may_fill_unused_rows_of_an_input_cache) {
  // A padded cache [B, H, 16, D] whose rows 0 ... 4 are keys and 5 ... 7 receive the output.
  Call call;
  call.key = view(call.const_memory(), {2, 2, 5, 8}, {256, 128, 8, 1});
  call.value = view(call.const_memory() + 2048, {2, 2, 5, 8});
  call.query = view(call.const_memory() + 3072, {2, 2, 3, 8});
  call.out = view(call.memory.data() + 40, {2, 2, 3, 8}, {256, 128, 8, 1});
  EXPECT_EQ(call.refusal(), "");
  call.out = view(call.memory.data() + 39, {2, 2, 3, 8}, {256, 128, 8, 1});
  EXPECT_EQ(call.refusal(), "[forward] out: overlaps key");
}

TEST(check, masks_resolve_to_full_views_with_stride_zero_on_broadcast_axes) {
  std::vector<unsigned char> bytes(120, 1);
  const auto* mask = reinterpret_cast<const bool*>(bytes.data());
  Call call;
  const auto strides_of = [&](std::initializer_list<std::int64_t> extents) {
    call.options.mask = view(mask, extents);
    EXPECT_EQ(call.refusal(), "");
    EXPECT_EQ(call.problem.mask.extents, (std::array<std::int64_t, 4>{2, 4, 3, 5}));
    return call.problem.mask.strides;
  };
  using Strides = std::array<std::int64_t, 4>;
  EXPECT_EQ(strides_of({2, 4, 3, 5}), (Strides{60, 15, 5, 1}));
  EXPECT_EQ(strides_of({2, 1, 1, 5}), (Strides{5, 0, 0, 1}));
  EXPECT_EQ(strides_of({3, 1}), (Strides{0, 0, 1, 0}));
  EXPECT_EQ(strides_of({5}), (Strides{0, 0, 0, 1}));
  EXPECT_EQ(strides_of({}), (Strides{0, 0, 0, 0}));
}

TEST(check, an_absent_mask_and_bias_stay_absent) {
  Call call;
  EXPECT_EQ(call.refusal(), "");
  EXPECT_FALSE(call.problem.mask.given());
  EXPECT_FALSE(call.problem.bias.given());
}

TEST(check, the_default_scale_is_rounded_to_the_accumulation_type) {
  Call call;
  EXPECT_EQ(call.refusal(), "");
  EXPECT_EQ(call.problem.scale(3), static_cast<double>(static_cast<float>(1 / std::sqrt(8.0))));
  call.options.scale = -0.1;
  EXPECT_EQ(call.refusal(), "");
  EXPECT_EQ(call.problem.scale(0), static_cast<double>(-0.1F));
}

TEST(check, numbers_per_head_and_batch_are_read_through_strides) {
  const std::vector<float> numbers = {1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1};
  Call call;
  call.options.scale_per_head = view(numbers.data(), {4}, {2});
  call.options.alibi_slopes = view(numbers.data(), {2, 4}, {8, 2});
  const float sinks[] = {-std::numeric_limits<float>::infinity(), 2};
  call.options.sinks = view(sinks, {4}, {0});
  EXPECT_EQ(call.refusal(), "");
  EXPECT_EQ(call.problem.scale(2), 3);
  EXPECT_EQ(call.problem.slope(1, 3), 8);
  EXPECT_EQ(call.problem.sink(1), -kInfinity);
  call.options.alibi_slopes = view(numbers.data(), {4}, {2});
  EXPECT_EQ(call.refusal(), "");
  EXPECT_EQ(call.problem.slope(1, 3), 4);
}

TEST(check, the_diagonal_is_explicit_else_named_else_from_the_end) {
  Call call;
  const std::int32_t lengths[] = {4, 1};
  const std::int64_t explicit_diagonals[] = {9, INT64_MIN};
  const auto diagonal = [&](std::int64_t b) {
    EXPECT_EQ(call.refusal(), "");
    return call.problem.diagonal(b);
  };
  EXPECT_EQ(diagonal(0), 2);  // Lk - Lq, without causal too
  call.options.kv_lengths = view(lengths, {2});
  EXPECT_EQ(diagonal(0), 1);
  EXPECT_EQ(diagonal(1), -2);
  call.options.causal = Causal::bottom_right();
  EXPECT_EQ(diagonal(1), -2);
  call.options.causal = Causal::top_left();
  EXPECT_EQ(diagonal(1), 0);
  call.options.causal = Causal::offset(-7);
  EXPECT_EQ(diagonal(1), -7);
  call.options.diagonal = -7;  // the same number twice is no contradiction
  EXPECT_EQ(diagonal(0), -7);
  call.options.causal = Causal::top_left();
  call.options.diagonal.reset();
  call.options.diagonals = view(explicit_diagonals, {2});
  EXPECT_EQ(diagonal(0), 9);
  EXPECT_EQ(diagonal(1), INT64_MIN);
}

TEST(check, causal_and_window_become_one_range_that_cannot_overflow) {
  Call call;
  const auto range = [&] {
    EXPECT_EQ(call.refusal(), "");
    return std::pair(call.problem.lower(0), call.problem.upper(0));
  };
  using Range = std::pair<std::int64_t, std::int64_t>;
  call.options.diagonal = 3;
  EXPECT_EQ(range(), Range(kOpenLower, kOpenUpper));
  call.options.window_left = 2;
  EXPECT_EQ(range(), Range(1, kOpenUpper));
  call.options.window_right = 4;
  EXPECT_EQ(range(), Range(1, 7));
  call.options.causal = Causal::top_left();
  EXPECT_EQ(range(), Range(1, 3));
  call.options.window_left = call.options.window_right = INT64_MAX;
  EXPECT_EQ(range(), Range(kOpenLower, 3));
  call.options.causal = Causal::none();
  EXPECT_EQ(range(), Range(kOpenLower, kOpenUpper));
  call.options.diagonal = INT64_MIN;
  EXPECT_EQ(range(), Range(kOpenLower, -1));  // INT64_MIN + INT64_MAX
}

TEST(check, costs_far_less_than_a_tiny_call) {
  std::vector<float> memory(4 * 4 * 16 * 8, 0.5F);
  const auto at = [&](std::ptrdiff_t index) { return memory.data() + index * 512; };
  const ConstTensor query = view(at(0), {1, 4, 16, 8}), key = view(at(1), {1, 4, 16, 8}),
                    value = view(at(2), {1, 4, 16, 8});
  const Tensor out = view(at(3), {1, 4, 16, 8});
  // The quickest of many is what the code costs; the rest is the machine's business. A sanitized or
  // unoptimised build stays below this too.
  auto best = std::chrono::nanoseconds::max();
  for (int repeat = 0; repeat < 2000; ++repeat) {
    Problem problem;
    const auto start = std::chrono::steady_clock::now();
    const Error error = check_forward(query, key, value, out, {}, {}, &problem);
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    ASSERT_FALSE(error);
  }
  EXPECT_LT(best.count(), 10000);
  RecordProperty("best_ns", static_cast<int>(best.count()));
}

}  // namespace
}  // namespace poise
