// All 144 cells of the Monte-Carlo table, with more of the components drawn explicitly.
// ctest-labels: slow laws
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/oracle.h"

namespace poise::test {
namespace {

constexpr std::int64_t kNormalsPerRow = 4096;

class OracleTable : public testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {};

TEST_P(OracleTable, statistics_agree_within_four_standard_errors) {
  const auto [head_dim, keys] = GetParam();
  expect_oracle(head_dim, keys, kNormalsPerRow);
}

INSTANTIATE_TEST_SUITE_P(Cells, OracleTable,
                         testing::Combine(testing::Values(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024,
                                                          2048, 4096),
                                          testing::Values(8, 64, 512, 4096)),
                         [](const auto& test) {
                           return "d" + std::to_string(std::get<0>(test.param)) + "_n" +
                                  std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace poise::test
