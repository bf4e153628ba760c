// Every refusal of attention() and explain(): the exact sentence, its code, and outputs left alone.
// In: one valid call, broken in one way per case. The last test reads the sources of the rules and
// fails when a sentence exists that no case has produced.
#include <poise/attention.h>

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/sentences.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kCanary = 1234.5F;

// A host executor with as many slots as a case wants.
class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(int slots) : slots_(slots) {}
  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t index = 0; index < count; ++index) task(context, index, 0);
  }
  int slots() const override { return slots_; }

 private:
  int slots_;
};

// A valid call with B 2, Hq 4, Hkv 2, Lq 3, Lk 5, D 8, Dv 6 and room for any option and extra.
struct Call {
  std::vector<float> q = std::vector<float>(2 * 4 * 3 * 8, 0.25F);
  std::vector<float> k = std::vector<float>(2 * 2 * 5 * 8, 0.5F);
  std::vector<float> v = std::vector<float>(2 * 2 * 5 * 6, 0.75F);
  std::vector<float> o = std::vector<float>(2 * 4 * 3 * 6, kCanary);
  std::vector<float> rows = std::vector<float>(2 * 4 * 3, kCanary);
  std::vector<float> more_rows = std::vector<float>(2 * 4 * 3, kCanary);
  std::vector<float> pairs = std::vector<float>(2 * 4 * 3 * 5, kCanary);
  std::vector<float> numbers = std::vector<float>(2 * 4, 0.125F);
  std::vector<double> doubles = std::vector<double>(2 * 4, 0.125);
  std::vector<std::int64_t> integers = std::vector<std::int64_t>(8, 2);
  std::vector<unsigned char> bytes = std::vector<unsigned char>(2 * 4 * 3 * 5, 1);

  ConstTensor query = view(q.data(), {2, 4, 3, 8});
  ConstTensor key = view(k.data(), {2, 2, 5, 8});
  ConstTensor value = view(v.data(), {2, 2, 5, 6});
  Tensor out = view(o.data(), {2, 4, 3, 6});
  Tensor lse = view(rows.data(), {2, 4, 3});
  Tensor row_max = view(more_rows.data(), {2, 4, 3});
  Tensor weights = view(pairs.data(), {2, 4, 3, 5});
  Stats stats;
  FakeExecutor executor{0};
  Options options;
  Extras extras;

  ConstTensor mask(std::initializer_list<std::int64_t> extents) {
    return view(reinterpret_cast<bool*>(bytes.data()), extents);
  }
  Error attention() const { return poise::attention(query, key, value, out, options, extras); }
  bool outputs_untouched() const {
    for (const auto* buffer : {&o, &rows, &more_rows, &pairs})
      for (const float element : *buffer)
        if (element != kCanary) return false;
    return true;
  }
};

struct Case {
  ErrorCode code;
  const char* message;
  std::function<void(Call&)> spoil;
};

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

const std::vector<Case>& tensor_cases() {
  using enum ErrorCode;
  static const std::vector<Case> cases = {
      {bad_shape, "[forward] query: rank 0, expected 4 for [B, Hq, Lq, D]",
       [](Call& c) { c.query = {}; }},
      {bad_shape, "[forward] key: rank 3, expected 4 for [B, Hkv, Lk, D]",
       [](Call& c) { c.key.rank = 3; }},
      {bad_shape, "[forward] value: rank 7, expected 4 for [B, Hkv, Lk, Dv]",
       [](Call& c) { c.value.rank = 7; }},
      // A fifth extent, and another number of strides than extents.
      {bad_shape, "[forward] query: rank 5, expected 4 for [B, Hq, Lq, D]",
       [](Call& c) {
         c.query = view(c.q.data(), {2, 4, 3, 4, 2});
       }},
      {bad_shape, "[forward] key: rank -1, expected 4 for [B, Hkv, Lk, D]",
       [](Call& c) {
         c.key = view(c.k.data(), {2, 2, 5, 8}, {80, 40});
       }},
      {bad_shape, "[forward] out: rank -1, expected 4 for [B, Hq, Lq, Dv]",
       [](Call& c) {
         c.out = view(c.o.data(), {2, 4, 3, 6}, {72, 18, 6, 1, 1});
       }},
      {bad_shape, "[forward] out: rank -1, expected 4 for [B, Hq, Lq, Dv]",
       [](Call& c) { c.out.rank = -1; }},
      {bad_dtype, "[forward] query: dtype i32 is not one of f32, f64, f16, bf16",
       [](Call& c) { c.query.dtype = DType::i32; }},
      {bad_dtype, "[forward] query: dtype ? is not one of f32, f64, f16, bf16",
       [](Call& c) { c.query.dtype = static_cast<DType>(99); }},
      {bad_dtype, "[forward] key: dtype f64 differs from query dtype f32",
       [](Call& c) { c.key.dtype = DType::f64; }},
      {bad_dtype, "[forward] value: dtype bf16 differs from query dtype f32",
       [](Call& c) { c.value.dtype = DType::bf16; }},
      {bad_dtype, "[forward] out: dtype f64 differs from query dtype f32",
       [](Call& c) { c.out.dtype = DType::f64; }},

      {bad_layout, "[forward] query: extent -3 of axis 2 is negative",
       [](Call& c) { c.query.extents[2] = -3; }},
      {bad_layout, "[forward] key: null data for 160 elements",
       [](Call& c) { c.key.data = nullptr; }},
      {bad_layout, "[forward] out: null data for 144 elements",
       [](Call& c) { c.out.data = nullptr; }},
      {bad_layout, "[forward] value: data is not aligned to its elements of 4 bytes",
       [](Call& c) { c.value.data = reinterpret_cast<const char*>(c.v.data()) + 2; }},
      {bad_layout,
       "[forward] query: extents [4611686018427387904, 4, 3, 8] are more elements than int64 "
       "counts",
       [](Call& c) { c.query.extents[0] = kHuge; }},
      {bad_layout,  // zero elements, but a prefix of the product overflows all the same
       "[forward] query: extents [4611686018427387904, 4, 0, 8] are more elements than int64 "
       "counts",
       [](Call& c) {
         c.query = view(c.q.data(), {kHuge, 4, 0, 8});
       }},
      {bad_layout,
       "[forward] query: strides [4611686018427387904, 24, 8, 1] with extents [2, 4, 3, 8] pass "
       "the range of 64-bit byte offsets",
       [](Call& c) { c.query.strides[0] = kHuge; }},
      {bad_layout,  // fits in elements, not in bytes
       "[forward] key: strides [-2305843009213693952, 40, 8, 1] with extents [2, 2, 5, 8] pass "
       "the range of 64-bit byte offsets",
       [](Call& c) { c.key.strides[0] = -(kHuge / 2); }},
      {bad_layout,  // fits in byte offsets, but starts below address 0
       "[forward] key: strides [-1152921504606846976, 40, 8, 1] with extents [2, 2, 5, 8] pass "
       "the range of 64-bit byte offsets",
       [](Call& c) { c.key.strides[0] = -(kHuge / 4); }},

      {bad_shape, "[forward] key: batch 1 differs from query batch 2",
       [](Call& c) { c.key.extents[0] = 1; }},
      {bad_shape, "[forward] key: head_dim 7 differs from query head_dim 8",
       [](Call& c) { c.key.extents[3] = 7; }},
      {bad_shape, "[forward] value: batch 1 differs from query batch 2",
       [](Call& c) { c.value.extents[0] = 1; }},
      {bad_shape, "[forward] value: kv_heads 1 differs from key kv_heads 2",
       [](Call& c) { c.value.extents[1] = 1; }},
      {bad_shape, "[forward] value: kv_len 4 differs from key kv_len 5",
       [](Call& c) { c.value.extents[2] = 4; }},
      {bad_shape, "[forward] query: q_heads 3 is not a multiple of key kv_heads 2",
       [](Call& c) { c.query.extents[1] = 3; }},
      {bad_shape, "[forward] query: q_heads 4 is not a multiple of key kv_heads 0",
       [](Call& c) { c.key.extents[1] = c.value.extents[1] = 0; }},
      {bad_shape, "[forward] out: batch 1 differs from query batch 2",
       [](Call& c) { c.out.extents[0] = 1; }},
      {bad_shape, "[forward] out: q_heads 2 differs from query q_heads 4",
       [](Call& c) { c.out.extents[1] = 2; }},
      {bad_shape, "[forward] out: q_len 2 differs from query q_len 3",
       [](Call& c) { c.out.extents[2] = 2; }},
      {bad_shape, "[forward] out: value_dim 5 differs from value value_dim 6",
       [](Call& c) { c.out.extents[3] = 5; }},
      {unsupported, "[forward] query: q_len 4611686018427387904 is beyond 1152921504606846976",
       [](Call& c) {
         c.query = view(c.q.data(), {1, 1, kHuge, 1}, {0, 0, 0, 0});
         c.key = c.value = view(c.k.data(), {1, 1, 5, 1});
       }},
      {unsupported, "[forward] key: kv_len 4611686018427387904 is beyond 1152921504606846976",
       [](Call& c) {
         c.query = view(c.q.data(), {1, 1, 3, 1});
         c.key = c.value = view(c.k.data(), {1, 1, kHuge, 1}, {0, 0, 0, 0});
       }},
      {unsupported, "[forward] query: head_dim 8589934592 is beyond 4294967296",
       [](Call& c) {
         c.query.extents[3] = c.key.extents[3] = std::int64_t{1} << 33;
         c.query.strides[3] = c.key.strides[3] = 0;
       }},

      {bad_alias, "[forward] out: overlaps query",
       [](Call& c) {
         c.out = view(c.q.data(), {2, 4, 3, 6});
       }},
      {bad_alias, "[forward] out: overlaps value",
       [](Call& c) {
         c.value = view(c.o.data() + 60, {2, 2, 5, 6}, {0, 0, 0, 1});
       }},
      {bad_alias,
       "[forward] out: strides [72, 18, 0, 1] with extents [2, 4, 3, 6] overlap its own elements",
       [](Call& c) { c.out.strides[2] = 0; }},
      {bad_alias,
       "[forward] out: strides [72, 18, 5, 1] with extents [2, 4, 3, 6] overlap its own elements",
       [](Call& c) { c.out.strides[2] = 5; }},
  };
  return cases;
}

const std::vector<Case>& option_cases() {
  using enum ErrorCode;
  static const std::vector<Case> cases = {
      {bad_value, "[forward] scale: nan is not a finite f32 number",
       [](Call& c) { c.options.scale = kNaN; }},
      {bad_value, "[forward] scale: -inf is not a finite f32 number",
       [](Call& c) { c.options.scale = -kInfinity; }},
      {bad_value, "[forward] scale: 1e+39 is not a finite f32 number",
       [](Call& c) { c.options.scale = 1e39; }},
      {bad_value, "[forward] scale: absent with head_dim 0, whose default 1/sqrt(0) is not finite",
       [](Call& c) { c.query.extents[3] = c.key.extents[3] = 0; }},
      {bad_value, "[forward] scale_per_head: given together with scale 0.5",
       [](Call& c) {
         c.options.scale = 0.5;
         c.options.scale_per_head = view(c.numbers.data(), {4});
       }},
      {bad_dtype, "[forward] scale_per_head: dtype f64 differs from query dtype f32",
       [](Call& c) { c.options.scale_per_head = view(c.doubles.data(), {4}); }},
      {bad_shape, "[forward] scale_per_head: extents [2] differ from [Hq] = [4]",
       [](Call& c) { c.options.scale_per_head = view(c.numbers.data(), {2}); }},
      {bad_shape, "[forward] scale_per_head: rank 2, expected 1 for [Hq]",
       [](Call& c) {
         c.options.scale_per_head = view(c.numbers.data(), {2, 4});
       }},
      {bad_value, "[forward] scale_per_head: head 3 has inf, expected a finite number",
       [](Call& c) {
         c.numbers[3] = static_cast<float>(kInfinity);
         c.options.scale_per_head = view(c.numbers.data(), {4});
       }},
      {bad_value,
       "[forward] softcap: -1 is neither 0 (off) nor a finite positive normal f32 number",
       [](Call& c) { c.options.softcap = -1; }},
      {bad_value,
       "[forward] softcap: inf is neither 0 (off) nor a finite positive normal f32 number",
       [](Call& c) { c.options.softcap = kInfinity; }},
      {bad_value,  // would be flushed to 0, which means off
       "[forward] softcap: 1e-40 is neither 0 (off) nor a finite positive normal f32 number",
       [](Call& c) { c.options.softcap = 1e-40; }},

      {bad_dtype, "[forward] mask: dtype f32 is not one of bool",
       [](Call& c) { c.options.mask = view(c.pairs.data(), {5}); }},
      {bad_dtype, "[forward] bias: dtype i64 is not one of f32, f64, f16, bf16",
       [](Call& c) { c.options.bias = view(c.integers.data(), {5}); }},
      {bad_shape,
       "[forward] mask: shape [2, 5] does not broadcast to [B, Hq, Lq, Lk] = "
       "[2, 4, 3, 5]",
       [](Call& c) {
         c.options.mask = c.mask({2, 5});
       }},
      {bad_shape,
       "[forward] bias: shape [4, 3, 0] does not broadcast to [B, Hq, Lq, Lk] = "
       "[2, 4, 3, 5]",
       [](Call& c) {
         c.options.bias = view(c.numbers.data(), {4, 3, 0});
       }},
      {bad_shape, "[forward] mask: rank 5, expected 0 ... 4 for [B, Hq, Lq, Lk]",
       [](Call& c) {
         c.options.mask = c.mask({5});
         c.options.mask.rank = 5;
       }},
      {bad_layout, "[forward] mask: null data for 5 elements",
       [](Call& c) { c.options.mask = view(static_cast<const bool*>(nullptr), {5}); }},

      {bad_value, "[forward] window_left: -2 is below -1 (open)",
       [](Call& c) { c.options.window_left = -2; }},
      {bad_value, "[forward] window_right: -9 is below -1 (open)",
       [](Call& c) { c.options.window_right = -9; }},

      {bad_dtype, "[forward] kv_lengths: dtype f32 is not one of i32, i64",
       [](Call& c) { c.options.kv_lengths = view(c.numbers.data(), {2}); }},
      {bad_shape, "[forward] kv_lengths: extents [3] differ from [B] = [2]",
       [](Call& c) { c.options.kv_lengths = view(c.integers.data(), {3}); }},
      {bad_value, "[forward] kv_lengths: batch 1 has 6, expected 0 ... 5",
       [](Call& c) {
         c.integers[1] = 6;
         c.options.kv_lengths = view(c.integers.data(), {2});
       }},
      {bad_value, "[forward] kv_lengths: batch 0 has -1, expected 0 ... 5",
       [](Call& c) {
         c.integers[0] = -1;
         c.options.kv_lengths = view(c.integers.data(), {2});
       }},
      {bad_value, "[forward] q_lengths: batch 1 has 4, expected 0 ... 3",
       [](Call& c) {
         c.integers[1] = 4;
         c.options.q_lengths = view(c.integers.data(), {2});
       }},

      {bad_value, "[forward] diagonal: 3 contradicts Causal::offset(2)",
       [](Call& c) {
         c.options.causal = Causal::offset(2);
         c.options.diagonal = 3;
       }},
      {bad_value, "[forward] diagonals: given together with diagonal 3",
       [](Call& c) {
         c.options.diagonal = 3;
         c.options.diagonals = view(c.integers.data(), {2});
       }},
      {bad_value, "[forward] diagonals: batch 1 has 7, against Causal::offset(2)",
       [](Call& c) {
         c.integers[1] = 7;
         c.options.causal = Causal::offset(2);
         c.options.diagonals = view(c.integers.data(), {2});
       }},
      {bad_layout, "[forward] diagonals: null data for 2 elements",
       [](Call& c) { c.options.diagonals = view(static_cast<const std::int64_t*>(nullptr), {2}); }},

      {bad_dtype, "[forward] alibi_slopes: dtype f64 differs from query dtype f32",
       [](Call& c) { c.options.alibi_slopes = view(c.doubles.data(), {4}); }},
      {bad_shape, "[forward] alibi_slopes: rank 3, expected 1 for [Hq] or 2 for [B, Hq]",
       [](Call& c) {
         c.options.alibi_slopes = view(c.numbers.data(), {1, 1, 4});
       }},
      {bad_shape,
       "[forward] alibi_slopes: extents [2, 2] differ from [Hq] = [4] and [B, Hq] = [2, 4]",
       [](Call& c) {
         c.options.alibi_slopes = view(c.numbers.data(), {2, 2});
       }},
      {bad_value, "[forward] alibi_slopes: batch 1, head 2 has nan, expected a finite number",
       [](Call& c) {
         c.numbers[6] = static_cast<float>(kNaN);
         c.options.alibi_slopes = view(c.numbers.data(), {2, 4});
       }},

      {bad_value, "[forward] sinks: head 0 has inf, expected a finite number or -inf",
       [](Call& c) {
         c.numbers[0] = static_cast<float>(kInfinity);
         c.options.sinks = view(c.numbers.data(), {4});
       }},
      {bad_value, "[forward] sinks: head 1 has nan, expected a finite number or -inf",
       [](Call& c) {
         c.numbers[1] = static_cast<float>(kNaN);
         c.options.sinks = view(c.numbers.data(), {4});
       }},

      {bad_value, "[forward] dropout: probability 1 is not in [0, 1)",
       [](Call& c) { c.options.dropout.probability = 1; }},
      {bad_value, "[forward] dropout: probability -0.25 is not in [0, 1)",
       [](Call& c) { c.options.dropout.probability = -0.25; }},
      {bad_value, "[forward] dropout: probability nan is not in [0, 1)",
       [](Call& c) { c.options.dropout.probability = kNaN; }},
      {bad_value,
       "[forward] dropout: batch_offset 4294967295 and 2 batches do not fit in 0 ... 4294967295",
       [](Call& c) { c.options.dropout = {.probability = 0.5, .batch_offset = 0xffffffff}; }},
      {bad_value,
       "[forward] dropout: head_offset -1 and 4 query heads do not fit in 0 ... 4294967295",
       [](Call& c) { c.options.dropout = {.probability = 0.5, .head_offset = -1}; }},
      {bad_value,
       "[forward] dropout: query_offset 4294967294 and 3 queries do not fit in 0 ... 4294967295",
       [](Call& c) { c.options.dropout = {.probability = 0.5, .query_offset = 0xfffffffe}; }},
      {bad_value,
       "[forward] dropout: key_offset 9223372036854775807 and 5 keys do not fit in 0 ... "
       "17179869183",
       [](Call& c) { c.options.dropout = {.probability = 0.5, .key_offset = INT64_MAX}; }},

      {bad_value, "[forward] threads: -1 is not in 0 (default) ... 4096",
       [](Call& c) { c.options.threads = -1; }},
      {bad_value, "[forward] threads: 4097 is not in 0 (default) ... 4096",
       [](Call& c) { c.options.threads = 4097; }},
      {bad_value, "[forward] executor: has 0 slots, expected at least 1",
       [](Call& c) { c.options.executor = &c.executor; }},
  };
  return cases;
}

// Asks for statistics with a request that `spoil` has changed.
std::function<void(Call&)> with_request(void (*spoil)(StatsRequest&)) {
  return [spoil](Call& c) {
    spoil(c.stats.request);
    c.extras.stats = &c.stats;
  };
}

const std::vector<Case>& extra_cases() {
  using enum ErrorCode;
  static const std::vector<Case> cases = {
      {bad_shape, "[forward] lse: rank 0, expected 3 for [B, Hq, Lq]",
       [](Call& c) {
         c.lse = {};
         c.extras.lse = &c.lse;
       }},
      {bad_shape, "[forward] row_max: extents [2, 4, 2] differ from [B, Hq, Lq] = [2, 4, 3]",
       [](Call& c) {
         c.row_max.extents[2] = 2;
         c.extras.row_max = &c.row_max;
       }},
      {bad_shape,
       "[forward] accumulator: extents [2, 4, 3, 5] differ from [B, Hq, Lq, Dv] = [2, 4, 3, 6]",
       [](Call& c) { c.extras.accumulator = &c.weights; }},
      {bad_shape,
       "[forward] weights: extents [2, 4, 3, 4] differ from [B, Hq, Lq, Lk] = "
       "[2, 4, 3, 5]",
       [](Call& c) {
         c.weights.extents[3] = 4;
         c.extras.weights = &c.weights;
       }},
      {bad_dtype, "[forward] max_score: dtype f64 differs from query dtype f32",
       [](Call& c) {
         c.lse.dtype = DType::f64;
         c.extras.max_score = &c.lse;
       }},
      {bad_dtype, "[forward] lse: dtype bf16 is not one of f32",
       [](Call& c) {
         c.query.dtype = c.key.dtype = c.value.dtype = c.out.dtype = c.lse.dtype = DType::bf16;
         c.extras.lse = &c.lse;
       }},
      {bad_layout, "[forward] row_sum: null data for 24 elements",
       [](Call& c) {
         c.lse.data = nullptr;
         c.extras.row_sum = &c.lse;
       }},
      {bad_alias, "[forward] lse_without_sink: overlaps lse",
       [](Call& c) { c.extras.lse = c.extras.lse_without_sink = &c.lse; }},
      {bad_alias, "[forward] logits: overlaps bias",
       [](Call& c) {
         c.options.bias = view(c.pairs.data(), {2, 4, 3, 5});
         c.extras.logits = &c.weights;
       }},
      {bad_alias, "[forward] lse: overlaps sinks",
       [](Call& c) {
         c.options.sinks = view(c.rows.data() + 20, {4});
         c.extras.lse = &c.lse;
       }},
      {bad_alias, "[forward] lse: overlaps out",
       [](Call& c) {
         c.lse = view(c.o.data() + 5, {2, 4, 3}, {12, 3, 1});
         c.extras.lse = &c.lse;
       }},

      {bad_value, "[forward] stats: level 9 is not one of off, max, core, full",
       with_request([](StatsRequest& r) { r.level = static_cast<StatsLevel>(9); })},
      {bad_value, "[forward] stats: every 0 is not in 1 ... 1048576",
       with_request([](StatsRequest& r) { r.every = 0; })},
      {bad_value, "[forward] stats: histogram_low nan is not a finite f32 number",
       with_request([](StatsRequest& r) { r.histogram_low = kNaN; })},
      {bad_value, "[forward] stats: histogram_width 0 is not a finite positive normal f32 number",
       with_request([](StatsRequest& r) { r.histogram_width = 0; })},
      {bad_value, "[forward] stats: stand_in_bias nan is not a number below infinity",
       with_request([](StatsRequest& r) { r.stand_in_bias = kNaN; })},
      {bad_value, "[forward] stats: tracked key 2 is -1, expected 0 or more",
       with_request([](StatsRequest& r) { r.tracked[2] = -1; })},
      {bad_value, "[forward] stats: near_tie_gap -1 is not a finite number >= 0",
       with_request([](StatsRequest& r) { r.near_tie_gap = -1; })},
  };
  return cases;
}

void expect_refusals(const std::vector<Case>& cases) {
  for (const Case& refusal : cases) {
    SCOPED_TRACE(refusal.message);
    Call call;
    refusal.spoil(call);
    const Error error = call.attention();
    EXPECT_EQ(error.message(), refusal.message);
    EXPECT_EQ(error.code(), refusal.code);
    EXPECT_TRUE(call.outputs_untouched());
    EXPECT_TRUE(call.stats.heads.empty());
  }
}

TEST(check, a_valid_call_is_computed) {
  Call call;
  call.extras.lse = &call.lse;
  EXPECT_EQ(call.attention().message(), "");
  EXPECT_NE(call.o[0], kCanary);
  EXPECT_NE(call.rows[0], kCanary);
}

TEST(check, every_bad_tensor_is_refused_in_one_sentence_and_nothing_is_written) {
  expect_refusals(tensor_cases());
}

TEST(check, every_bad_option_is_refused_in_one_sentence_and_nothing_is_written) {
  expect_refusals(option_cases());
}

TEST(check, every_bad_extra_is_refused_in_one_sentence_and_nothing_is_written) {
  expect_refusals(extra_cases());
}

TEST(check, every_sentence_in_the_rules_has_a_case) {
  std::vector<std::string> messages;
  for (const auto* cases : {&tensor_cases(), &option_cases(), &extra_cases()})
    for (const Case& refusal : *cases) messages.emplace_back(refusal.message);
  for (const char* file : {"check.cpp", "check_options.cpp", "check_view.cpp"})
    test::expect_every_sentence(file, messages);
}

}  // namespace
}  // namespace poise
