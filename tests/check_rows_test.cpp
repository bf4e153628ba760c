// Refusals of merge(), finish() and explain(): exact sentences, codes, and nothing written.
// The rules of attention() itself are in check_test.cpp.
#include <poise/attention.h>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace poise {
namespace {

constexpr float kCanary = 1234.5F;

// Rows of B 2, H 2, Lq 3, Dv 4 three times: a, b and a result.
struct Rows {
  std::vector<float> memory = std::vector<float>(1024, kCanary);
  Tensor values_a = view(memory.data(), {2, 2, 3, 4});
  Tensor values_b = view(memory.data() + 100, {2, 2, 3, 4});
  Tensor values = view(memory.data() + 200, {2, 2, 3, 4});
  Tensor max_a = view(memory.data() + 300, {2, 2, 3}), max_b = view(memory.data() + 320, {2, 2, 3});
  Tensor sum_a = view(memory.data() + 340, {2, 2, 3}), sum_b = view(memory.data() + 360, {2, 2, 3});
  Tensor lse = view(memory.data() + 380, {2, 2, 3});

  Error merge_pairs() const { return merge(values_a, max_a, values_b, max_b, values, lse); }
  Error merge_states() const {
    return merge(State{max_a, sum_a, values_a}, State{max_b, sum_b, values_b});
  }
  Error finish() const { return poise::finish(State{max_a, sum_a, values_a}, values, lse); }
  bool untouched() const {
    for (const float element : memory)
      if (element != kCanary) return false;
    return true;
  }
};

struct Case {
  ErrorCode code;
  const char* message;
  Error (Rows::*call)() const;
  std::function<void(Rows&)> spoil;
};

TEST(check_rows, every_bad_call_is_refused_in_one_sentence_and_nothing_is_written) {
  using enum ErrorCode;
  const std::vector<Case> cases = {
      {bad_shape, "[merge] out_a: rank 3, expected 4 for [B, Hq, Lq, Dv]", &Rows::merge_pairs,
       [](Rows& r) { r.values_a.rank = 3; }},
      {bad_dtype, "[merge] out_a: dtype bf16 is not one of f32, f64", &Rows::merge_pairs,
       [](Rows& r) { r.values_a.dtype = DType::bf16; }},
      {bad_dtype, "[merge] lse_a: dtype f64 differs from out_a dtype f32", &Rows::merge_pairs,
       [](Rows& r) { r.max_a.dtype = DType::f64; }},
      {bad_shape, "[merge] out_b: extents [2, 2, 3, 5] differ from [B, Hq, Lq, Dv] = [2, 2, 3, 4]",
       &Rows::merge_pairs, [](Rows& r) { r.values_b.extents[3] = 5; }},
      {bad_shape, "[merge] lse_b: extents [2, 1, 3] differ from [B, Hq, Lq] = [2, 2, 3]",
       &Rows::merge_pairs, [](Rows& r) { r.max_b.extents[1] = 1; }},
      {bad_layout, "[merge] out: null data for 48 elements", &Rows::merge_pairs,
       [](Rows& r) { r.values.data = nullptr; }},
      {bad_shape, "[merge] lse: rank 0, expected 3 for [B, Hq, Lq]", &Rows::merge_pairs,
       [](Rows& r) { r.lse = {}; }},
      {bad_alias, "[merge] out: overlaps out_b", &Rows::merge_pairs,
       [](Rows& r) {
         r.values = view(r.memory.data() + 101, {2, 2, 3, 4});
       }},
      {bad_alias, "[merge] lse: overlaps out_a", &Rows::merge_pairs,
       [](Rows& r) {
         r.lse = view(r.memory.data(), {2, 2, 3});
       }},

      {bad_layout, "[merge] whole.accumulator: extent -2 of axis 0 is negative",
       &Rows::merge_states, [](Rows& r) { r.values_a.extents[0] = -2; }},
      {bad_shape, "[merge] whole.row_max: rank 0, expected 3 for [B, Hq, Lq]", &Rows::merge_states,
       [](Rows& r) { r.max_a = {}; }},
      {bad_dtype, "[merge] whole.row_sum: dtype i32 differs from whole.accumulator dtype f32",
       &Rows::merge_states, [](Rows& r) { r.sum_a.dtype = DType::i32; }},
      {bad_shape,
       "[merge] part.accumulator: extents [2, 2, 2, 4] differ from [B, Hq, Lq, Dv] = [2, 2, 3, 4]",
       &Rows::merge_states, [](Rows& r) { r.values_b.extents[2] = 2; }},
      {bad_layout, "[merge] part.row_max: null data for 12 elements", &Rows::merge_states,
       [](Rows& r) { r.max_b.data = nullptr; }},
      {bad_layout, "[merge] part.row_sum: data is not aligned to its elements of 4 bytes",
       &Rows::merge_states, [](Rows& r) { r.sum_b.data = static_cast<char*>(r.sum_b.data) + 1; }},
      {bad_alias, "[merge] whole.accumulator: overlaps part.accumulator", &Rows::merge_states,
       [](Rows& r) { r.values_b = r.values_a; }},

      {bad_shape, "[finish] state.accumulator: rank 0, expected 4 for [B, Hq, Lq, Dv]",
       &Rows::finish, [](Rows& r) { r.values_a = {}; }},
      {bad_shape, "[finish] state.row_max: extents [2, 2, 1] differ from [B, Hq, Lq] = [2, 2, 3]",
       &Rows::finish, [](Rows& r) { r.max_a.extents[2] = 1; }},
      {bad_layout, "[finish] state.row_sum: null data for 12 elements", &Rows::finish,
       [](Rows& r) { r.sum_a.data = nullptr; }},
      {bad_dtype, "[finish] out: dtype f64 differs from state.accumulator dtype f32", &Rows::finish,
       [](Rows& r) { r.values.dtype = DType::f64; }},
      {bad_dtype, "[finish] lse: dtype f64 differs from state.accumulator dtype f32", &Rows::finish,
       [](Rows& r) { r.lse.dtype = DType::f64; }},
      {bad_alias, "[finish] out: overlaps state.accumulator", &Rows::finish,
       [](Rows& r) { r.values = r.values_a; }},
  };
  for (const Case& refusal : cases) {
    SCOPED_TRACE(refusal.message);
    Rows rows;
    refusal.spoil(rows);
    const Error error = (rows.*refusal.call)();
    EXPECT_EQ(error.message(), refusal.message);
    EXPECT_EQ(error.code(), refusal.code);
    EXPECT_TRUE(rows.untouched());
  }
}

TEST(check_rows, a_merge_may_be_written_over_either_input) {
  Rows over_a;
  over_a.values = over_a.values_a;
  over_a.lse = over_a.max_a;
  EXPECT_EQ(over_a.merge_pairs().message(), "");
  Rows over_b;
  over_b.values = over_b.values_b;
  over_b.lse = over_b.max_b;
  EXPECT_EQ(over_b.merge_pairs().message(), "");
}

TEST(check_rows, finish_does_not_need_an_lse) {
  Rows rows;
  rows.lse = {};
  EXPECT_EQ(rows.finish().message(), "");
}

TEST(check_rows, explain_refuses_bad_shapes_without_needing_data) {
  const float* none = nullptr;
  const ConstTensor query = view(none, {1, 4, 16, 8}), key = view(none, {1, 2, 32, 8}),
                    value = view(none, {1, 2, 32, 6});
  std::string text = "as it was";
  EXPECT_EQ(explain(query, view(none, {1, 2, 32, 9}), value, {}, &text).message(),
            "[explain] key: head_dim 9 differs from query head_dim 8");
  Options options;
  options.window_left = -5;
  EXPECT_EQ(explain(query, key, value, options, &text).message(),
            "[explain] window_left: -5 is below -1 (open)");
  EXPECT_EQ(explain(query, key, value, {}, nullptr).message(),
            "[explain] text: null, expected a string to fill");
  EXPECT_EQ(text, "as it was");
}

}  // namespace
}  // namespace poise
