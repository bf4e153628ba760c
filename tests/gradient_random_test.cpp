// The promises of backward() over random problems: every option, on every instruction set and
// dtype.
//
// RapidCheck draws and shrinks the problems; the laws are in support/gradient_laws.cpp. Seeds are
// fixed, so that two runs do the same; gradient_slow_test.cpp takes new ones every time.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include "support/bit_laws.h"
#include "support/gradient_laws.h"

namespace poise::test {
namespace {

constexpr DrawLimits kShort{.max_rows = 90, .max_q_len = 90, .max_kv_len = 600, .poison = false};
constexpr DrawLimits kWide{
    .max_rows = 40, .max_q_len = 70, .max_kv_len = 300, .max_dim = 300, .poison = false};
constexpr DrawLimits kLong{.max_rows = 160, .max_q_len = 160, .max_kv_len = 1600, .poison = false};
constexpr DrawLimits kAllRows{
    .max_rows = 160, .max_q_len = 160, .max_kv_len = 1100, .poison = false, .q_lengths = false};

TEST(gradient_random, gradients_agree_with_the_definition) {
  check_law(gradients_broken_by_definition, kShort, 12, 41);
}

TEST(gradient_random, gradients_of_wide_heads_agree_with_the_definition) {
  check_law(gradients_broken_by_definition, kWide, 8, 42);
}

TEST(gradient_random, what_else_is_asked_for_changes_no_gradient_bit) {
  check_law(gradients_broken_by_wishes, kShort, 8, 43);
}

TEST(gradient_random, threads_change_no_gradient_bit) {
  check_law(gradients_broken_by_threads, kLong, 8, 44);
}

TEST(gradient_random, batch_changes_no_gradient_bit) {
  check_law(gradients_broken_by_batch, kShort, 8, 45);
}

TEST(gradient_random, chunks_of_queries_change_no_bit_of_dq) {
  check_law(gradients_broken_by_chunks, kAllRows, 8, 46);
}

TEST(gradient_random, padding_changes_no_gradient_bit_and_has_gradient_zero) {
  check_law(gradients_broken_by_padding, kShort, 8, 47);
}

TEST(gradient_random, strides_change_no_gradient_bit_and_no_byte_beside_a_tensor_is_touched) {
  check_law(gradients_broken_by_layout, kShort, 8, 48);
}

TEST(gradient_random, numbers_nobody_sees_reach_no_gradient) {
  check_law(gradients_broken_by_hidden, kShort, 12, 49);
}

TEST(gradient_random, a_nan_reaches_the_rows_and_keys_that_see_it_and_no_others) {
  check_law(gradients_broken_by_strangers, kShort, 12, 50);
}

}  // namespace
}  // namespace poise::test
