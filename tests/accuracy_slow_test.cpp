// The accuracy rule at every length from 16 to 16384 and every spread, and exp2 at every float.
//
// The checks of accuracy_test.cpp without their gaps; minutes instead of seconds.
// ctest-labels: slow per_isa
#include <gtest/gtest.h>

#include "support/accuracy.h"

namespace poise::test {
namespace {

constexpr std::int64_t kLens[] = {16, 64, 256, 1024, 4096, 16384};

TEST(accuracy_slow, f32_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t len : kLens) check_accuracy(DType::f32, len, kSpreads);
}

TEST(accuracy_slow, f64_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t len : kLens) check_accuracy(DType::f64, len, kSpreads);
}

TEST(accuracy_slow, f16_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t len : kLens) check_accuracy(DType::f16, len, kSpreads);
}

TEST(accuracy_slow, bf16_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t len : kLens) check_accuracy(DType::bf16, len, kSpreads);
}

TEST(accuracy_slow, exp2_is_within_2_ulp_over_its_whole_range) { check_exp_over_floats(1); }

}  // namespace
}  // namespace poise::test
