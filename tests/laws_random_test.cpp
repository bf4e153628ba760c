// The promises about bits over random problems: every option, few query rows and many, keys around
// the blocks and splits, on every instruction set and dtype.
//
// RapidCheck draws and shrinks the problems; the laws are in support/bit_laws.cpp. Seeds are fixed,
// so that two runs do the same; laws_random_slow_test.cpp takes new ones every time.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include "support/bit_laws.h"
#include "support/isa.h"

namespace poise::test {
namespace {

// A problem that the laws' random draws meet too rarely.
void expect_law(std::string (*broken)(const Draw&), Draw draw) {
  for_each_isa_and_dtype([&](DType dtype) {
    draw.dtype = dtype;
    EXPECT_EQ(broken(draw), "") << draw;
  });
}

// A decode kernel shares a tile between the heads of a group; a prefill kernel fills it with rows.
constexpr DrawLimits kAnyRows{.max_q_len = 170, .max_kv_len = 1600, .q_lengths = false};

TEST(laws_random, measuring_changes_no_output_bit) { check_law(broken_by_measuring, {}, 12, 11); }

TEST(laws_random, threads_change_no_bit) { check_law(broken_by_threads, {}, 16, 12); }

TEST(laws_random, batch_changes_no_bit) { check_law(broken_by_batch, {}, 16, 13); }

TEST(laws_random, chunks_of_queries_change_no_bit) {
  check_law(broken_by_chunks, kAnyRows, 16, 14);
}

TEST(laws_random, decode_step_equals_last_forward_row) {
  check_law(broken_by_decode, kAnyRows, 16, 15);
}

// Scores of -0 and +0 in one row: which of them a maximum keeps is the kernel's matter.
TEST(laws_random, the_sign_of_a_zero_maximum_is_the_same_in_every_kernel) {
  for (int q_len : {8, 9})
    for (int kv_len : {5, 40}) {
      const Draw draw{.group = 4, .q_len = q_len, .kv_len = kv_len, .window_left = 1, .scale = 3};
      expect_law(broken_by_measuring, draw);
      expect_law(broken_by_decode, draw);
    }
}

// 0 * inf is a NaN with its sign bit set on x86, as is the weight that marks an unseen key.
TEST(laws_random, a_visible_nan_is_summed_alike_in_every_kernel) {
  for (int kv_len : {1, 7, 40})
    for (int poison : {1, 2, 3}) {
      const Draw draw{.q_len = 9, .kv_len = kv_len, .scale = 3, .poison = poison};
      expect_law(broken_by_decode, draw);
      expect_law(broken_by_chunks, draw);
    }
}

TEST(laws_random, a_plan_serves_shorter_lengths_and_fewer_keys_with_the_bits_of_attention) {
  check_law(broken_by_plan, {.max_q_len = 40, .max_kv_len = 1600}, 12, 21);
}

TEST(laws_random, any_kv_split_then_merge_equals_the_whole) {
  check_law(broken_by_splits, {.q_lengths = false}, 12, 18);
}

TEST(laws_random, strides_change_no_bit_and_no_byte_beside_a_tensor_is_touched) {
  check_law(broken_by_layout, {.max_q_len = 40, .max_kv_len = 1200}, 12, 19);
}

TEST(laws_random, a_nonfinite_number_reaches_only_the_rows_that_see_it) {
  check_law(broken_by_strangers, {.max_q_len = 40, .max_kv_len = 1200, .poison = false}, 12, 20);
}

TEST(laws_random, few_query_rows_agree_with_the_definition) {
  check_law(broken_by_definition, {.max_q_len = 16, .max_kv_len = 1200, .poison = false}, 8, 16);
}

TEST(laws_random, statistics_of_chunks_merge_to_those_of_the_whole) {
  check_law(broken_by_merged_statistics,
            {.max_q_len = 100, .max_kv_len = 1200, .poison = false, .q_lengths = false}, 8, 17);
}

}  // namespace
}  // namespace poise::test
