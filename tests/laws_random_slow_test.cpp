// The laws of laws_random_test.cpp over many more problems, larger ones, and other ones every time.
//
// Each test prints its seeds; RC_PARAMS="seed=N max_success=M" draws the same problems again.
// ctest-labels: slow laws per_isa
#include <gtest/gtest.h>

#include "support/bit_laws.h"

namespace poise::test {
namespace {

constexpr int kCases = 120;
constexpr std::uint64_t kNewSeed = 0;
constexpr DrawLimits kAnyRows{.max_q_len = 300, .q_lengths = false};

TEST(laws_random_slow, measuring_changes_no_output_bit) {
  check_law(broken_by_measuring, {.max_q_len = 300}, kCases, kNewSeed);
}

TEST(laws_random_slow, threads_change_no_bit) {
  check_law(broken_by_threads, {.max_q_len = 300}, kCases, kNewSeed);
}

TEST(laws_random_slow, batch_changes_no_bit) { check_law(broken_by_batch, {}, kCases, kNewSeed); }

TEST(laws_random_slow, chunks_of_queries_change_no_bit) {
  check_law(broken_by_chunks, kAnyRows, kCases, kNewSeed);
}

TEST(laws_random_slow, decode_step_equals_last_forward_row) {
  check_law(broken_by_decode, kAnyRows, kCases, kNewSeed);
}

TEST(laws_random_slow, a_plan_serves_shorter_lengths_and_fewer_keys_with_the_bits_of_attention) {
  check_law(broken_by_plan, {}, kCases, kNewSeed);
}

TEST(laws_random_slow, any_kv_split_then_merge_equals_the_whole) {
  check_law(broken_by_splits, {.q_lengths = false}, kCases, kNewSeed);
}

TEST(laws_random_slow, strides_change_no_bit_and_no_byte_beside_a_tensor_is_touched) {
  check_law(broken_by_layout, {}, kCases, kNewSeed);
}

TEST(laws_random_slow, a_nonfinite_number_reaches_only_the_rows_that_see_it) {
  check_law(broken_by_strangers, {.poison = false}, kCases, kNewSeed);
}

TEST(laws_random_slow, few_query_rows_agree_with_the_definition) {
  check_law(broken_by_definition, {.poison = false}, kCases / 4, kNewSeed);
}

TEST(laws_random_slow, statistics_of_chunks_merge_to_those_of_the_whole) {
  check_law(broken_by_merged_statistics, {.max_q_len = 200, .poison = false, .q_lengths = false},
            kCases / 2, kNewSeed);
}

}  // namespace
}  // namespace poise::test
