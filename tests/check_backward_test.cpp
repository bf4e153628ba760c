// Every refusal of backward(): the exact sentence, its code, and gradients left alone.
// In: one valid call, broken in one way per case. Rules that backward shares with attention() are
// in check_test.cpp; here one case of each kind shows that they apply.
#include <poise/gradient.h>

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/sentences.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kCanary = 1234.5F;

// A valid call with B 2, Hq 4, Hkv 2, Lq 3, Lk 5, D 8, Dv 6 and room for any option and gradient.
struct Call {
  std::vector<float> q = std::vector<float>(2 * 4 * 3 * 8, 0.25F);
  std::vector<float> k = std::vector<float>(2 * 2 * 5 * 8, 0.5F);
  std::vector<float> v = std::vector<float>(2 * 2 * 5 * 6, 0.75F);
  std::vector<float> values = std::vector<float>(2 * 4 * 3 * 6, 0.75F);  // out and dout
  std::vector<float> rows = std::vector<float>(2 * 4 * 3, 1.0F);
  std::vector<float> numbers = std::vector<float>(2 * 4, 0.125F);
  std::vector<float> biases = std::vector<float>(2 * 4 * 3 * 5, 0.125F);
  std::vector<std::int64_t> integers = std::vector<std::int64_t>(8, 2);
  std::vector<float> written = std::vector<float>(2048, kCanary);

  ConstTensor query = view(q.data(), {2, 4, 3, 8});
  ConstTensor key = view(k.data(), {2, 2, 5, 8});
  ConstTensor value = view(v.data(), {2, 2, 5, 6});
  Forward forward{view(values.data(), {2, 4, 3, 6}),
                  view(rows.data(), {2, 4, 3}),
                  view(rows.data(), {2, 4, 3}),
                  {}};
  OutGradient gradient{view(values.data(), {2, 4, 3, 6}), view(rows.data(), {2, 4, 3})};
  Gradients gradients{view(at(0), {2, 4, 3, 8}),   view(at(200), {2, 2, 5, 8}),
                      view(at(400), {2, 2, 5, 6}), view(at(600), {4, 1, 5}),
                      view(at(700), {4}),          view(at(710), {4}),
                      view(at(720), {2, 4})};
  Options options{.alibi_slopes = view(numbers.data(), {2, 4}), .threads = 1};
  Stats stats;
  Stats* wanted = nullptr;

  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  float* at(std::ptrdiff_t place) { return written.data() + place; }
  // Statistics of another forward call with the same sizes.
  void measured_before() {
    wanted = &stats;
    stats.heads.resize(4);
    stats.kv_heads = 2;
    stats.head_dim = 8;
  }
  Error backward() const {
    return poise::backward(query, key, value, forward, gradient, gradients, options, wanted);
  }
  bool untouched() const {
    for (const float element : written)
      if (element != kCanary) return false;
    return true;
  }
};

struct Case {
  ErrorCode code;
  const char* message;
  std::function<void(Call&)> spoil;
};

const std::vector<Case>& cases() {
  using enum ErrorCode;
  static const std::vector<Case> all = {
      // Shared rules, under this call's name.
      {bad_shape, "[backward] query: rank 0, expected 4 for [B, Hq, Lq, D]",
       [](Call& c) { c.query = {}; }},
      {bad_shape, "[backward] key: head_dim 7 differs from query head_dim 8",
       [](Call& c) { c.key.extents[3] = 7; }},
      {bad_layout, "[backward] value: null data for 120 elements",
       [](Call& c) { c.value.data = nullptr; }},
      {bad_shape, "[backward] query: q_heads 3 is not a multiple of key kv_heads 2",
       [](Call& c) { c.query.extents[1] = 3; }},
      {bad_value, "[backward] scale: nan is not a finite f32 number",
       [](Call& c) { c.options.scale = kNaN; }},
      {bad_value,
       "[backward] softcap: -1 is neither 0 (off) nor a finite positive normal f32 number",
       [](Call& c) { c.options.softcap = -1; }},
      {bad_value, "[backward] kv_lengths: batch 1 has 6, expected 0 ... 5",
       [](Call& c) {
         c.integers[1] = 6;
         c.options.kv_lengths = view(c.integers.data(), {2});
       }},
      {bad_value, "[backward] threads: -1 is not in 0 (default) ... 4096",
       [](Call& c) { c.options.threads = -1; }},

      // What forward left.
      {bad_shape, "[backward] out: rank 0, expected 4 for [B, Hq, Lq, Dv]",
       [](Call& c) { c.forward.out = {}; }},
      {bad_dtype, "[backward] out: dtype f16 differs from query dtype f32",
       [](Call& c) { c.forward.out.dtype = DType::f16; }},
      {bad_shape, "[backward] out: extents [2, 4, 3, 5] differ from [B, Hq, Lq, Dv] = [2, 4, 3, 6]",
       [](Call& c) { c.forward.out.extents[3] = 5; }},
      {bad_layout, "[backward] out: null data for 144 elements",
       [](Call& c) { c.forward.out.data = nullptr; }},
      {bad_shape, "[backward] row_max: rank 0, expected 3 for [B, Hq, Lq]",
       [](Call& c) { c.forward.row_max = {}; }},
      {bad_shape, "[backward] row_sum: rank 0, expected 3 for [B, Hq, Lq]",
       [](Call& c) { c.forward.row_sum = {}; }},
      {bad_dtype, "[backward] row_sum: dtype f64 differs from query dtype f32",
       [](Call& c) { c.forward.row_sum.dtype = DType::f64; }},
      {bad_shape, "[backward] row_max: extents [2, 4, 2] differ from [B, Hq, Lq] = [2, 4, 3]",
       [](Call& c) { c.forward.row_max.extents[2] = 2; }},
      {bad_value, "[backward] lse: given together with row_max or row_sum, expected one of the two",
       [](Call& c) { c.forward.lse = c.forward.row_max; }},
      {bad_value, "[backward] lse: given together with row_max or row_sum, expected one of the two",
       [](Call& c) {
         c.forward.lse = c.forward.row_max;
         c.forward.row_max = {};
       }},
      {bad_shape, "[backward] lse: extents [2, 2, 3] differ from [B, Hq, Lq] = [2, 4, 3]",
       [](Call& c) {
         c.forward.lse = c.forward.row_max;
         c.forward.row_max = c.forward.row_sum = {};
         c.forward.lse.extents[1] = 2;
       }},

      // What comes in.
      {bad_shape, "[backward] dout: rank 0, expected 4 for [B, Hq, Lq, Dv]",
       [](Call& c) { c.gradient.dout = {}; }},
      {bad_shape,
       "[backward] dout: extents [2, 4, 3, 8] differ from [B, Hq, Lq, Dv] = [2, 4, 3, 6]",
       [](Call& c) { c.gradient.dout.extents[3] = 8; }},
      {bad_dtype, "[backward] dout: dtype bf16 differs from query dtype f32",
       [](Call& c) { c.gradient.dout.dtype = DType::bf16; }},
      {bad_layout, "[backward] dout: data is not aligned to its elements of 4 bytes",
       [](Call& c) {
         c.gradient.dout.data = reinterpret_cast<const char*>(c.gradient.dout.data) + 2;
       }},
      {bad_shape, "[backward] dlse: extents [2, 4, 1] differ from [B, Hq, Lq] = [2, 4, 3]",
       [](Call& c) { c.gradient.dlse.extents[2] = 1; }},
      {bad_dtype, "[backward] dlse: dtype f64 differs from query dtype f32",
       [](Call& c) { c.gradient.dlse.dtype = DType::f64; }},

      // What goes out.
      {bad_shape, "[backward] dq: rank 3, expected 4 for [B, Hq, Lq, D]",
       [](Call& c) { c.gradients.dq.rank = 3; }},
      {bad_shape, "[backward] dq: extents [2, 4, 3, 6] differ from [B, Hq, Lq, D] = [2, 4, 3, 8]",
       [](Call& c) { c.gradients.dq.extents[3] = 6; }},
      {bad_dtype, "[backward] dk: dtype f64 differs from key dtype f32",
       [](Call& c) { c.gradients.dk.dtype = DType::f64; }},
      {bad_shape, "[backward] dk: extents [2, 4, 5, 8] differ from [B, Hkv, Lk, D] = [2, 2, 5, 8]",
       [](Call& c) { c.gradients.dk.extents[1] = 4; }},
      {bad_layout, "[backward] dv: null data for 120 elements",
       [](Call& c) { c.gradients.dv.data = nullptr; }},
      {bad_shape, "[backward] dv: rank 7, expected 4 for [B, Hkv, Lk, Dv]",
       [](Call& c) { c.gradients.dv.rank = 7; }},
      {bad_dtype, "[backward] dbias: dtype f16 differs from query dtype f32",
       [](Call& c) { c.gradients.dbias.dtype = DType::f16; }},
      {bad_shape,
       "[backward] dbias: shape [3, 1, 5] does not broadcast to [B, Hq, Lq, Lk] = [2, 4, 3, 5]",
       [](Call& c) { c.gradients.dbias.extents[0] = 3; }},
      {bad_shape, "[backward] dbias: extents [4, 1, 5] differ from those of bias, [4, 3, 5]",
       [](Call& c) {
         c.options.bias = view(c.biases.data(), {4, 3, 5});
       }},
      {bad_shape, "[backward] dbias: extents [4, 1, 5] differ from those of bias, [1, 4, 1, 5]",
       [](Call& c) {
         c.options.bias = view(c.biases.data(), {1, 4, 1, 5});
       }},
      {bad_shape, "[backward] dbias: rank 7, expected 0 ... 4 for [B, Hq, Lq, Lk]",
       [](Call& c) {
         c.options.bias = view(c.biases.data(), {4, 3, 5});
         c.gradients.dbias.rank = 7;
       }},
      {bad_shape, "[backward] dbias: rank -2, expected 0 ... 4 for [B, Hq, Lq, Lk]",
       [](Call& c) { c.gradients.dbias.rank = -2; }},
      {bad_shape, "[backward] dsinks: extents [3] differ from [Hq] = [4]",
       [](Call& c) { c.gradients.dsinks.extents[0] = 3; }},
      {bad_dtype, "[backward] dsinks: dtype f64 differs from query dtype f32",
       [](Call& c) { c.gradients.dsinks.dtype = DType::f64; }},
      {bad_shape, "[backward] dscale: extents [2] are neither [1] nor [Hq] = [4]",
       [](Call& c) { c.gradients.dscale.extents[0] = 2; }},
      {bad_shape, "[backward] dscale: rank 2, expected 1 for [1] or [Hq]",
       [](Call& c) {
         c.gradients.dscale = view(c.at(710), {4, 1});
       }},
      {bad_shape, "[backward] dscale: rank 9, expected 1 for [1] or [Hq]",
       [](Call& c) { c.gradients.dscale.rank = 9; }},
      {bad_layout, "[backward] dscale: null data for 4 elements",
       [](Call& c) { c.gradients.dscale.data = nullptr; }},
      {bad_value, "[backward] dslopes: given without alibi_slopes",
       [](Call& c) { c.options.alibi_slopes = {}; }},
      {bad_shape, "[backward] dslopes: extents [2, 3] differ from [B, Hq] of alibi_slopes = [2, 4]",
       [](Call& c) { c.gradients.dslopes.extents[1] = 3; }},
      {bad_shape, "[backward] dslopes: rank 2, expected 1 for [Hq] of alibi_slopes",
       [](Call& c) { c.options.alibi_slopes = view(c.numbers.data(), {4}); }},
      {bad_dtype, "[backward] dslopes: dtype f64 differs from query dtype f32",
       [](Call& c) { c.gradients.dslopes.dtype = DType::f64; }},

      // Who overlaps whom.
      {bad_alias,
       "[backward] dq: strides [0, 24, 8, 1] with extents [2, 4, 3, 8] overlap its own elements",
       [](Call& c) { c.gradients.dq.strides[0] = 0; }},
      {bad_alias,
       "[backward] dbias: strides [5, 0, 0] with extents [4, 1, 5] overlap its own elements",
       [](Call& c) {
         c.gradients.dbias.strides = {5, 0, 0};
       }},
      {bad_alias, "[backward] dk: overlaps dq",
       [](Call& c) {
         c.gradients.dk = view(c.at(100), {2, 2, 5, 8});
       }},
      {bad_alias, "[backward] dslopes: overlaps dscale",
       [](Call& c) {
         c.gradients.dslopes = view(c.at(713), {2, 4});
       }},
      {bad_alias, "[backward] dq: overlaps query",
       [](Call& c) {
         c.query = view(c.at(100), {2, 4, 3, 8});
       }},
      {bad_alias, "[backward] dk: overlaps dout",
       [](Call& c) {
         c.gradient.dout = view(c.at(250), {2, 4, 3, 6});
       }},
      {bad_alias, "[backward] dv: overlaps out",
       [](Call& c) {
         c.forward.out = view(c.at(400), {2, 4, 3, 6});
       }},
      {bad_alias, "[backward] dsinks: overlaps dlse",
       [](Call& c) {
         c.gradient.dlse = view(c.at(680), {2, 4, 3});
       }},
      {bad_alias, "[backward] dscale: overlaps sinks",
       [](Call& c) { c.options.sinks = view(c.at(711), {4}); }},
      {bad_alias, "[backward] dslopes: overlaps alibi_slopes",
       [](Call& c) {
         c.options.alibi_slopes = view(c.at(720), {2, 4});
       }},
      {bad_shape, "[backward] stats: heads 1, expected 4 as in this call, or no heads at all",
       [](Call& c) {
         c.wanted = &c.stats;
         c.stats.heads.resize(1);
       }},
      {bad_value, "[backward] stats: softcap 2, expected 0 as in this call",
       [](Call& c) {
         c.measured_before();
         c.stats.softcap = 2;
       }},
      {bad_value, "[backward] stats: head 0 has scale 0, expected 0.353553 as in this call",
       [](Call& c) { c.measured_before(); }},

      {bad_alias, "[backward] dbias: overlaps bias",
       [](Call& c) {
         c.options.bias = view(c.at(600), {4, 1, 5});
       }},
      {bad_alias, "[backward] dq: overlaps row_sum",
       [](Call& c) {
         c.forward.row_sum = view(c.at(10), {2, 4, 3});
       }},
  };
  return all;
}

TEST(check_backward, a_valid_call_is_computed) {
  Call call;
  EXPECT_EQ(call.backward().message(), "");
  for (const int place : {0, 200, 400, 600, 700, 710, 720})
    EXPECT_NE(*call.at(place), kCanary) << place;
}

TEST(check_backward, every_bad_argument_is_refused_in_one_sentence_and_nothing_is_written) {
  for (const Case& refusal : cases()) {
    SCOPED_TRACE(refusal.message);
    Call call;
    refusal.spoil(call);
    const Error error = call.backward();
    EXPECT_EQ(error.message(), refusal.message);
    EXPECT_EQ(error.code(), refusal.code);
    EXPECT_TRUE(call.untouched());
  }
}

TEST(check_backward, every_sentence_in_the_rules_has_a_case) {
  std::vector<std::string> messages;
  for (const Case& refusal : cases()) messages.emplace_back(refusal.message);
  test::expect_every_sentence("check_backward.cpp", messages);
}

// Views that repeat rows by strides of 0 may claim any number of them, and no size may wrap around.
TEST(check_backward, more_memory_than_there_is_is_refused) {
  for (std::int64_t dim = 1; dim <= 6; ++dim)
    for (int log_rows = 44; log_rows <= 56; ++log_rows) {
      Call call;
      const std::int64_t rows = std::int64_t{1} << log_rows;
      call.query = view(call.q.data(), {2, 4, rows, dim}, {0, 0, 0, 1});
      call.key = view(call.k.data(), {2, 2, 5, dim});
      call.value = view(call.v.data(), {2, 2, 5, dim});
      call.forward.out = call.gradient.dout =
          view(call.values.data(), {2, 4, rows, dim}, {0, 0, 0, 1});
      call.forward.row_max = call.forward.row_sum = call.gradient.dlse =
          view(call.rows.data(), {2, 4, rows}, {0, 0, 0});
      call.gradients.dk.extents[3] = dim;
      call.gradients.dq = call.gradients.dv = {};
      const Error error = call.backward();
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.message();
      EXPECT_TRUE(call.untouched());
    }
}

}  // namespace
}  // namespace poise
