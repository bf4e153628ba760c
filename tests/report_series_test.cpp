// The report of a run: "over time" in the terminal (golden), in JSON and on the page.
// ctest-labels: fast golden unit
#include <poise/run_log.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <sstream>
#include <string>

#include "report/encoding.h"
#include "support/made_run.h"
#include "support/markup.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::compare_with_golden;
using test::head_of_spread;
using test::layer_of;
using test::made_series_input;
using test::markup_problem;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ReportInput many_layers(int layers, int steps, int heads) {
  ReportInput input;
  for (int l = 0; l < layers; ++l) {
    const std::string label = "encoder.layers." + std::to_string(l);
    SeriesLayer series{label, {}};
    Stats stats;
    for (int i = 0; i < steps; ++i) {
      std::vector<HeadStats> all(static_cast<std::size_t>(heads), head_of_spread(1 + 0.01 * l));
      all[0] = head_of_spread(1 + (0.002 * l + 0.001) * i);
      stats = layer_of(std::move(all)).stats;
      series.points.push_back(series_point(10 * i, stats));
    }
    input.series.push_back(std::move(series));
    input.layers.push_back({label, std::move(stats), std::nullopt});
  }
  return input;
}

TEST(report_series, the_terminal_page_of_a_made_run_equals_its_golden_file) {
  EXPECT_EQ(
      compare_with_golden("report_series.txt", to_text(build_report(made_series_input()), {})), "");
}

TEST(report_series, no_line_is_wider_than_the_page_and_the_crossing_goes_last) {
  for (const ReportInput& input : {made_series_input(), many_layers(9, 3, 2)}) {
    for (const int width : {40, 60, 80, 100, 200}) {
      TextStyle style;
      style.width = width;
      const std::string text = to_text(build_report(input), style);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(report::columns(line), width) << line;
      EXPECT_TRUE(contains(text, "above 100 at")) << width;
      EXPECT_TRUE(contains(text, "over time"));
    }
  }
}

TEST(report_series, few_layers_are_shown_unless_all_are_asked_for) {
  const Report report = build_report(many_layers(9, 3, 2));
  TextStyle style;
  style.width = 200;
  EXPECT_TRUE(contains(to_text(report, style), "first 5"));
  style.all_heads = true;
  EXPECT_FALSE(contains(to_text(report, style), "first 5 "));
}

TEST(report_series, one_step_is_no_series) {
  const Report report = build_report(many_layers(2, 1, 2));
  EXPECT_TRUE(report.series.layers.empty());
  EXPECT_FALSE(contains(to_text(report, {}), "over time"));
  EXPECT_FALSE(contains(to_html(report), "id=\"time\""));
  EXPECT_FALSE(contains(to_json(report), "\"series\""));
}

TEST(report_series, a_head_that_heats_up_is_a_finding_and_the_headline) {
  ReportInput input;
  SeriesLayer series{"L0", {}};
  Stats stats;
  for (int i = 0; i < 12; ++i) {
    HeadStats head = head_of_spread(1);
    head.scores.max = 3 * std::exp(0.2 * i);
    stats = layer_of({head_of_spread(1), head}).stats;
    series.points.push_back(series_point(100 * i, stats));
  }
  input.series = {series};
  input.layers = {{"L0", stats, std::nullopt}};
  const Report report = build_report(input);
  EXPECT_EQ(report.headline_alarm + report.headline_rest,
            "1 of 2 heads heats up, L0 H1. The other one passes gradient, and nothing overflows.");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].claim, "L0 H1 heats up.");
  EXPECT_TRUE(contains(
      report.findings[0].numbers,
      "Largest score 27.1. L0 H1 doubles every 347 steps and reaches 100 at about step 1753."))
      << report.findings[0].numbers;
  EXPECT_EQ(report.findings[0].section, "time");
  EXPECT_EQ(markup_problem(to_html(report)), "") << "the finding's link leads somewhere";
}

TEST(report_series, every_number_is_in_the_json) {
  const Report report = build_report(made_series_input());
  const auto json = nlohmann::json::parse(to_json(report));
  const auto& series = json.at("series");
  EXPECT_EQ(series.at("steps"), 12);
  EXPECT_EQ(series.at("first_step"), 0);
  EXPECT_EQ(series.at("last_step"), 1100);
  EXPECT_EQ(series.at("tau"), 100);
  const auto& layer = series.at("layers").at(1);
  EXPECT_EQ(layer.at("layer"), "L1");
  for (const char* member :
       {"steps", "max_score", "entropy_ratio", "above_99", "transmission", "transmission_measured"})
    EXPECT_EQ(layer.at(member).size(), 12u) << member;
  EXPECT_DOUBLE_EQ(layer.at("heads").at(1).at("max_score").at(3).get<double>(),
                   3 * std::pow(1.35, 3));
  const auto& growth = layer.at("heads").at(1).at("growth");
  EXPECT_NEAR(growth.at("rate").get<double>(), std::log(1.35) / 100, 1e-12);
  EXPECT_EQ(series.at("first_to_cross").at("layer"), "L1");
  EXPECT_EQ(series.at("first_to_cross").at("head"), 1);
  EXPECT_EQ(series.at("first_sick").at("head"), 1);
  EXPECT_TRUE(
      series.at("layers").at(0).at("heads").at(0).at("growth").at("crossed_step").is_null());
}

TEST(report_series, the_page_has_four_charts_and_says_who_when_and_why) {
  const std::string page = to_html(build_report(made_series_input()));
  EXPECT_EQ(markup_problem(page), "");
  for (const char* part : {"id=\"time\"", "time-score-t", "time-entropy-t", "time-one-key-t",
                           "τ = 100", "first sick: L1 H1", "First sick head: L1 H1"})
    EXPECT_TRUE(contains(page, part)) << part;
  EXPECT_FALSE(contains(page, "time-gradient-t")) << "neither measured nor expected";
  const std::string run = to_html(build_report(test::input_of({test::MadeRun(1.35).log()})));
  EXPECT_EQ(markup_problem(run), "");
  EXPECT_TRUE(contains(run, "time-gradient-t"));
  EXPECT_TRUE(contains(run, "as expected of independent gradients"));
}

TEST(report_series, the_page_stays_well_formed_and_small_whatever_the_run_was) {
  ReportInput hostile = made_series_input();
  for (SeriesLayer& layer : hostile.series) layer.label += "</svg><script>";
  EXPECT_EQ(markup_problem(to_html(build_report(hostile))), "");
  EXPECT_FALSE(contains(to_html(build_report(hostile)), "</svg><script>"));
  ReportInput empty = made_series_input();
  for (SeriesLayer& layer : empty.series)
    for (SeriesPoint& point : layer.points) {
      const std::int64_t step = point.step;
      point = {};
      point.step = step;
    }
  EXPECT_EQ(markup_problem(to_html(build_report(empty))), "");
  EXPECT_TRUE(contains(to_text(build_report(empty), {}), "Too few steps"));
  ReportInput negative = made_series_input();
  for (SeriesLayer& layer : negative.series)
    for (SeriesPoint& point : layer.points) point.max_score = -1;
  EXPECT_EQ(markup_problem(to_html(build_report(negative))), "");
  empty.series[0].points.clear();
  EXPECT_EQ(markup_problem(to_html(build_report(empty))), "");
  EXPECT_FALSE(to_text(build_report(empty), {}).empty());

  ReportInput large = many_layers(48, 300, 1);
  const std::string with = to_html(build_report(large));
  large.series.clear();
  EXPECT_LT(with.size() - to_html(build_report(large)).size(), 250'000u);
}

}  // namespace
}  // namespace poise
