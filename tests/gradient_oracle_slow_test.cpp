// The gradient that reaches q, all 12 widths of the Monte-Carlo table for 8, 64 and 512 keys; 4096
// keys would take the cube of it.
// ctest-labels: slow laws
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/oracle.h"

namespace poise::test {
namespace {

class GradientTable : public testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {};

TEST_P(GradientTable, agrees_within_four_standard_errors) {
  const auto [head_dim, keys] = GetParam();
  expect_oracle_gradient(head_dim, keys, keys == 8 ? 40'000 : keys == 64 ? 8'000 : 200);
}

INSTANTIATE_TEST_SUITE_P(Cells, GradientTable,
                         testing::Combine(testing::Values(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024,
                                                          2048, 4096),
                                          testing::Values(8, 64, 512)),
                         [](const auto& test) {
                           return "d" + std::to_string(std::get<0>(test.param)) + "_n" +
                                  std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace poise::test
