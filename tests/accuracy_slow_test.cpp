// The accuracy rule at every length from 16 to 16384 and every spread, and exp2 at every float.
//
// The checks of accuracy_test.cpp without their gaps; minutes instead of seconds.
// ctest-labels: slow per_isa
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/accuracy.h"

namespace poise::test {
namespace {

using Sizes = std::tuple<DType, std::int64_t>;

class accuracy_slow : public testing::TestWithParam<Sizes> {};

TEST_P(accuracy_slow, errors_are_those_of_the_plain_computation_at_most) {
  check_accuracy(std::get<0>(GetParam()), std::get<1>(GetParam()), kSpreads);
}

INSTANTIATE_TEST_SUITE_P(of, accuracy_slow,
                         testing::Combine(testing::Values(DType::f32, DType::f64, DType::f16,
                                                          DType::bf16),
                                          testing::Values(16, 64, 256, 1024, 4096, 16384)),
                         [](const testing::TestParamInfo<Sizes>& sizes) {
                           return name(std::get<0>(sizes.param)) +
                                  ("_" + std::to_string(std::get<1>(sizes.param)));
                         });

TEST(accuracy_exp_slow, exp2_is_within_2_ulp_over_its_whole_range) { check_exp_over_floats(1); }

}  // namespace
}  // namespace poise::test
