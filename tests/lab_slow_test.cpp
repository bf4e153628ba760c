// Every one of the 144 rows of the Monte-Carlo table, measured by the lab's own experiment.
// ctest-labels: slow
//
// In: the table's widths, numbers of keys and scales. Out of scope: speed.
#include <gtest/gtest.h>

#include "support/lab_oracle.h"

namespace poise::test {
namespace {

class LabOracle : public testing::TestWithParam<std::int64_t> {};

TEST_P(LabOracle, every_width_and_scale_lies_within_four_standard_errors) {
  lab::RowsRequest request;
  for (std::int64_t head_dim = 2; head_dim <= 4096; head_dim *= 2)
    request.head_dims.push_back(head_dim);
  request.keys = GetParam();
  // Rows of thousands of keys vary less.
  request.rows = request.keys > 1000 ? 5'000 : 20'000;
  request.gradients = true;
  std::vector<lab::RowsCell> cells;
  const Error error = lab::run_rows(request, {}, &cells);
  ASSERT_FALSE(error) << error.message();
  ASSERT_EQ(cells.size(), 36U);
  expect_oracle_rows(request, cells);
}

INSTANTIATE_TEST_SUITE_P(Keys, LabOracle, testing::Values(8, 64, 512, 4096),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace poise::test
