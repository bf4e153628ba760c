// The lab's experiments against theory, the Monte-Carlo table and themselves: units, closed forms,
// moments of dot products, rows, worked figures, pictures.
// ctest-labels: unit
//
// In: small sizes and fixed seeds. Bounds are four standard errors of the lab's own estimates, so
// that an error estimated too small fails as well as a mean that is off.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "lab/closed_forms.h"
#include "lab/elements.h"
#include "lab/example.h"
#include "lab/gradient.h"
#include "lab/rows.h"
#include "lab/saturation.h"
#include "lab/table.h"
#include "lab/units.h"
#include "lab/variance.h"
#include "support/lab_oracle.h"
#include "support/markup.h"
#include "support/rng.h"

namespace poise::test {
namespace {

using lab::Estimate;
using lab::RowsCell;
using lab::Signal;

constexpr double kStandardErrors = 4;

TEST(LabUnits, each_runs_once_and_is_announced) {
  struct Counter : lab::Watcher {
    void begin(std::int64_t) override {}
    void advance() override { ++calls; }
    std::int64_t calls = 0;  // no atomic: calls never overlap
  } counter;
  for (const int threads : {1, 4}) {
    counter.calls = 0;
    std::vector<std::atomic<int>> runs(100);
    lab::RunSettings settings;
    settings.threads = threads;
    settings.watcher = &counter;
    ASSERT_FALSE(lab::run_units(settings, 100, [&](std::int64_t unit) {
      ++runs[static_cast<std::size_t>(unit)];
      return Error();
    }));
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    EXPECT_EQ(counter.calls, 100);
  }
}

TEST(LabUnits, a_refusal_ends_the_run_and_an_exception_leaves_it) {
  for (const int threads : {1, 3}) {
    lab::RunSettings settings;
    settings.threads = threads;
    const Error error = lab::run_units(settings, 1000, [](std::int64_t unit) {
      return unit >= 5 ? Error(ErrorCode::bad_value, std::to_string(unit)) : Error();
    });
    EXPECT_TRUE(error);
    EXPECT_EQ(error.message(), "5");
    EXPECT_THROW((void)lab::run_units(
                     settings, 10, [](std::int64_t) -> Error { throw std::runtime_error("no"); }),
                 std::runtime_error);
  }
}

TEST(LabClosedForms, median_gap_halves_the_gaps_of_drawn_normals) {
  EXPECT_NEAR(lab::median_gap(8), 0.44, 0.005);
  EXPECT_NEAR(lab::median_gap(64), 0.28, 0.005);
  EXPECT_NEAR(lab::median_gap(512), 0.22, 0.005);
  // The gap of two normals is |N(0, 2)|, of median sqrt(2) * 0.67449.
  EXPECT_NEAR(lab::median_gap(2), std::sqrt(2.0) * 0.6744897501960817, 1e-9);
  Rng rng(1);
  constexpr int kRows = 20'000;
  for (const int keys : {3, 20}) {
    const double median = lab::median_gap(keys);
    int above = 0;
    for (int row = 0; row < kRows; ++row) {
      double first = -1e9, second = -1e9;
      for (int j = 0; j < keys; ++j) {
        const double x = rng.normal();
        second = std::max(second, std::min(first, x));
        first = std::max(first, x);
      }
      if (first - second > median) ++above;
    }
    EXPECT_NEAR(above / double{kRows}, 0.5, kStandardErrors * 0.5 / std::sqrt(kRows)) << keys;
  }
}

TEST(LabClosedForms, shares_of_scaled_scores_are_those_of_the_lesson) {
  EXPECT_NEAR(lab::share_of_scaled_scores_within(1, 64), 0.6864, 5e-5);
  EXPECT_NEAR(lab::share_of_scaled_scores_within(2, 64), 0.9537, 5e-5);
  EXPECT_NEAR(lab::share_of_scaled_scores_within(3, 64), 0.9967, 5e-5);
  // Two components: q.k is Laplace of variance 2.
  EXPECT_NEAR(lab::share_of_scaled_scores_within(1, 2), 1 - std::exp(-std::sqrt(2.0)), 1e-8);
  EXPECT_NEAR(lab::share_of_scaled_scores_within(1, 4096), std::erf(1 / std::sqrt(2.0)), 1e-4);
}

TEST(LabText, a_measured_number_is_written_to_the_second_digit_of_its_error) {
  EXPECT_EQ(lab::to_text(Estimate{0.998712, 0.0042}), "0.9987 +- 0.0042");
  EXPECT_EQ(lab::to_text(Estimate{4096.4, 31}), "4096 +- 31");
  EXPECT_EQ(lab::to_text(Estimate{1.2346e-12, 3.4e-14}), "1.235e-12 +- 3.4e-14");
  EXPECT_EQ(lab::to_text(Estimate{1, 0}), "1 +- 0");
  EXPECT_EQ(lab::to_text(std::int64_t{512}), "512");
  EXPECT_EQ(lab::to_text(0.000122569), "0.000122569");
  EXPECT_EQ(lab::to_text(std::vector<std::int64_t>{2, 64}), "2,64");
}

// One number of a Result by table, column and the first cells of the row.
const lab::Cell& cell_of(const lab::Result& result, const std::string& table_name,
                         const std::string& column, const std::vector<lab::Cell>& first) {
  static const lab::Cell kNone = std::string("none");
  for (const lab::Table& table : result.tables) {
    if (table.name != table_name) continue;
    for (const auto& row : table.rows) {
      bool same = true;
      for (std::size_t i = 0; i < first.size(); ++i)
        same = same && lab::to_text(row[i]) == lab::to_text(first[i]);
      for (std::size_t i = 0; same && i < row.size(); ++i)
        if (table.columns[i].name == column) return row[i];
    }
  }
  ADD_FAILURE() << table_name << ' ' << column;
  return kNone;
}

Estimate estimate_of(const lab::Result& result, const std::string& table, const std::string& column,
                     const std::vector<lab::Cell>& first) {
  return std::get<Estimate>(cell_of(result, table, column, first));
}
double exact_of(const lab::Result& result, const std::string& table, const std::string& column,
                const std::vector<lab::Cell>& first) {
  return std::get<double>(cell_of(result, table, column, first));
}

void expect_within(const Estimate& measured, double expected, const std::string& what) {
  EXPECT_GT(measured.error, 0) << what;
  EXPECT_NEAR(measured.value, expected, kStandardErrors * measured.error)
      << what << ", " << (measured.value - expected) / measured.error << " standard errors";
}

TEST(LabVariance, of_every_kind_of_elements_is_what_theory_says) {
  lab::VarianceRequest request;
  request.head_dims = {2, 16, 128};
  request.sets = 100;
  request.model_dim = 64;
  lab::Outcome outcome;
  ASSERT_FALSE(lab::run_variance(request, {}, &outcome));
  const lab::Result& result = outcome.result;
  for (const lab::Elements elements : lab::kElements) {
    const std::string kind = lab::name(elements);
    expect_within(estimate_of(result, "slopes", "slope", {kind}),
                  exact_of(result, "slopes", "expected_slope", {kind}), kind + " slope");
    for (const std::int64_t head_dim : request.head_dims) {
      const std::vector<lab::Cell> row{kind, head_dim};
      const std::string what = kind + ' ' + std::to_string(head_dim);
      const double expected = exact_of(result, "variance", "expected_variance", row);
      expect_within(estimate_of(result, "variance", "variance", row), expected, what);
      expect_within(estimate_of(result, "variance", "scaled_variance", row),
                    expected / static_cast<double>(head_dim), what + " scaled");
      if (lab::independent(elements)) {
        EXPECT_EQ(expected, static_cast<double>(head_dim));
      }
      expect_within(estimate_of(result, "variance", "excess_kurtosis", row),
                    exact_of(result, "variance", "expected_kurtosis", row), what + " kurtosis");
    }
  }
  EXPECT_EQ(exact_of(result, "slopes", "expected_slope", {std::string("Gaussian")}), 1);
  EXPECT_EQ(exact_of(result, "variance", "expected_kurtosis",
                     {std::string("Gaussian"), std::int64_t{16}}),
            6.0 / 16);
  EXPECT_EQ(markup_problem(outcome.picture), "");
}

TEST(LabVariance, a_single_width_has_no_slope) {
  lab::VarianceRequest request;
  request.head_dims = {8};
  request.sets = 4;
  request.model_dim = 8;
  lab::Outcome outcome;
  ASSERT_FALSE(lab::run_variance(request, {}, &outcome));
  ASSERT_EQ(outcome.result.tables.size(), 1U);
  EXPECT_EQ(outcome.result.statement.find("nan"), std::string::npos) << outcome.result.statement;
}

std::vector<RowsCell> cells_of(const lab::RowsRequest& request, std::uint64_t seed = 1) {
  std::vector<RowsCell> cells;
  lab::RunSettings settings;
  settings.seed = seed;
  const Error error = lab::run_rows(request, settings, &cells);
  EXPECT_FALSE(error) << error.message();
  return cells;
}

TEST(LabRows, agree_with_the_table) {
  lab::RowsRequest request;
  request.head_dims = {2, 64, 4096};
  request.keys = 8;
  request.gradients = true;
  expect_oracle_rows(request, cells_of(request));
}

TEST(LabRows, backward_measures_what_weights_and_scores_say_gets_through) {
  lab::RowsRequest request;
  request.head_dims = {2, 32, 512};
  request.keys = 24;
  request.gradients = true;
  for (const RowsCell& cell : cells_of(request)) {
    const std::string what = std::to_string(cell.head_dim) + ", scale " + lab::name(cell.rule);
    const auto expect_same = [&](Signal measured, Signal expected) {
      const Estimate a = cell.estimate(measured), b = cell.estimate(expected);
      EXPECT_NEAR(a.value, b.value, kStandardErrors * std::hypot(a.error, b.error)) << what;
    };
    expect_same(Signal::dq_squared, Signal::to_q_squared);
    expect_same(Signal::transmission_squared, Signal::expected_transmission);
  }
}

TEST(LabRows, drawn_in_law_are_those_with_every_component_drawn) {
  lab::RowsRequest request;
  request.head_dims = {3, 24};
  request.keys = 12;
  request.gradients = true;
  const std::vector<RowsCell> in_law = cells_of(request);
  request.explicit_components = true;
  const std::vector<RowsCell> all_drawn = cells_of(request, 2);
  ASSERT_EQ(in_law.size(), all_drawn.size());
  for (std::size_t i = 0; i < in_law.size(); ++i)
    for (std::size_t s = 0; s < in_law[i].means.size(); ++s) {
      const Estimate a = in_law[i].means[s].estimate(), b = all_drawn[i].means[s].estimate();
      EXPECT_NEAR(a.value, b.value,
                  kStandardErrors * std::hypot(a.error, b.error) + 1e-6 * std::fabs(a.value))
          << "cell " << i << ", signal " << s;
    }
}

TEST(LabRows, unscaled_wide_heads_follow_the_closed_forms) {
  lab::RowsRequest request;
  request.head_dims = {1024, 4096};
  for (const std::int64_t keys : {8, 64, 512}) {
    request.keys = keys;
    const lab::UnscaledTrace closed(keys);
    for (const RowsCell& cell : cells_of(request)) {
      if (cell.rule != lab::ScaleRule::none) continue;
      const auto d = static_cast<double>(cell.head_dim);
      const double mean = closed.mean(d);
      const Estimate trace = cell.estimate(Signal::trace);
      EXPECT_NEAR(trace.value, mean, kStandardErrors * trace.error + 0.011 * mean);
      // The form holds in the exponent: rows differ from it by a factor that D does not move.
      const double form = closed.median(d);
      EXPECT_NEAR(std::log(cell.median_trace().value) / std::log(form), 1, 0.05)
          << keys << ' ' << cell.head_dim;
    }
  }
}

TEST(LabGrid, saturation_and_gradient_hold_every_cell_and_draw_a_picture) {
  lab::GridRequest request;
  request.head_dims = {4, 16};
  request.keys = {8, 16};
  request.rows = 200;
  for (const auto run : {lab::run_saturation, lab::run_gradient}) {
    lab::Outcome outcome;
    ASSERT_FALSE(run(request, {}, &outcome));
    EXPECT_EQ(markup_problem(outcome.picture), "");
    for (const lab::Table& table : outcome.result.tables) {
      EXPECT_EQ(table.rows.size(), 2U * 2 * 3) << table.name;
      for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.name;
    }
    // A picture of one cell has no two points to divide by.
    lab::GridRequest single = request;
    single.head_dims = {16};
    single.keys = {8};
    ASSERT_FALSE(run(single, {}, &outcome));
    EXPECT_EQ(markup_problem(outcome.picture), "");
    EXPECT_EQ(outcome.picture.find("nan"), std::string::npos);
  }
}

TEST(LabExample, computes_the_figures_of_the_lesson) {
  lab::ExampleRequest request;
  lab::Outcome outcome;
  ASSERT_FALSE(lab::run_example(request, {}, &outcome));
  const lab::Result& result = outcome.result;
  const auto expect_value = [&](const std::string& figure, double value, double unit) {
    EXPECT_NEAR(exact_of(result, "worked", "value", {figure}), value, unit / 2) << figure;
  };
  EXPECT_EQ(std::get<std::string>(cell_of(result, "worked", "value", {"softmax(1, 5, 10)"})),
            "[0.000, 0.007, 0.993]");
  const std::string plain = "softmax(1, 5, 10), ", eighth = "the same / 8, ";
  expect_value(plain + "weight of 1", 0.000122569, 1e-9);
  expect_value(plain + "weight of 5", 0.00669203, 1e-8);
  expect_value(plain + "weight of 10", 0.993185, 1e-6);
  expect_value(plain + "log-sum-exp", 10.006838, 1e-6);
  expect_value(plain + "entropy in nats", 0.041401, 1e-6);
  expect_value(plain + "Jacobian trace", 0.013538, 1e-6);
  expect_value(plain + "Jacobian Frobenius norm", 0.013356, 1e-6);
  expect_value(eighth + "weight of 1", 0.174552, 1e-6);
  expect_value(eighth + "weight of 5", 0.287788, 1e-6);
  expect_value(eighth + "weight of 10", 0.537659, 1e-6);
  expect_value(eighth + "Jacobian trace", 0.597632, 1e-6);
  expect_value(eighth + "trace against unscaled", 44, 1);
  expect_value("q.k = 112, D = 64: score", 14, 1e-12);
  expect_value("q.k = 96, D = 64: score", 12, 1e-12);
  expect_value("softmax of these scores, weight of 112", 0.880797, 1e-6);
  expect_value("softmax of these scores, weight of 96", 0.119203, 1e-6);
  expect_value("softmax of these scores, Jacobian trace", 0.209987, 1e-6);
  expect_value("softmax of the dots, unscaled, weight of 96", 1.125e-7, 1e-10);
  expect_value("softmax(1, 1, 1, 5), weight of 1", 0.0173617, 1e-7);
  expect_value("softmax(1, 1, 1, 5), weight of 5", 0.947915, 1e-6);
  for (const auto& row : result.tables.at(1).rows)
    expect_within(std::get<Estimate>(row.at(1)), std::get<double>(row.at(2)),
                  lab::to_text(row.at(0)));
  EXPECT_EQ(markup_problem(outcome.picture), "");
}

}  // namespace
}  // namespace poise::test
