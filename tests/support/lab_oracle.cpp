// Columns of the table and signals of the lab, pair by pair. In: cells. Out: failures.
// The table's medians carry no error; the lab's, of fewer rows, is taken for
// theirs too.
#include "support/lab_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "support/oracle.h"

namespace poise::test {
namespace {

using lab::Signal;

constexpr double kStandardErrors = 4;
constexpr double kRounding = 2e-6;  // of a mean over float32 rows, relative

const char* oracle_name(lab::ScaleRule rule) {
  switch (rule) {
    case lab::ScaleRule::none:
      return "1";
    case lab::ScaleRule::inverse_root:
      return "1/sqrt(d)";
    case lab::ScaleRule::inverse:
      return "1/d";
  }
  return "?";
}

void expect_mean(const std::map<std::string, double>& oracle, const std::string& column,
                 const lab::Estimate& measured, std::int64_t rows) {
  const double expected = oracle.at(column + "_mean");
  double error = std::hypot(oracle.at(column + "_se"), measured.error);
  // Few rows above .99 leave no spread to estimate an error from: take that of the expected share.
  if (column == "frac99")
    error = std::hypot(error, std::sqrt(expected * (1 - expected) / static_cast<double>(rows)));
  EXPECT_NEAR(measured.value, expected, kStandardErrors * error + kRounding * std::fabs(expected))
      << column << ", " << (measured.value - expected) / error << " standard errors";
}

}  // namespace

void expect_oracle_rows(const lab::RowsRequest& request, const std::vector<lab::RowsCell>& cells) {
  std::vector<std::pair<const char*, Signal>> columns{{"maxp", Signal::top1},
                                                      {"hnorm", Signal::entropy_ratio},
                                                      {"neff", Signal::effective_keys},
                                                      {"frac99", Signal::one_hot},
                                                      {"lse", Signal::lse},
                                                      {"sump2", Signal::squares},
                                                      {"trJ", Signal::trace},
                                                      {"froJ", Signal::frobenius}};
  if (request.gradients) columns.emplace_back("gradq", Signal::to_q);
  for (const lab::RowsCell& cell : cells) {
    SCOPED_TRACE("D " + std::to_string(cell.head_dim) + ", n " + std::to_string(request.keys) +
                 ", scale " + lab::name(cell.rule));
    const OracleCells table = oracle_cells(cell.head_dim, request.keys);
    ASSERT_EQ(table.size(), 3U);
    const auto& oracle = table.at(oracle_name(cell.rule));
    for (const auto& [column, signal] : columns)
      expect_mean(oracle, column, cell.estimate(signal), cell.rows);
    const lab::Estimate median = cell.median_trace();
    const double expected = oracle.at("trJ_median");
    EXPECT_NEAR(median.value, expected, kStandardErrors * std::sqrt(2.0) * median.error)
        << "median trace";
  }
}

}  // namespace poise::test
