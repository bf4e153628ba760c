// A run over time: from points to a model, and the sentences about it. In: ReportInput::series.
// Out: fits, the first to cross tau, the first sick head, words. What the words say of all heads
// has been looked up in all of them.
#include "report/series.h"

#include "report/encoding.h"
#include "report/labels.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace poise::report {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Whether a reaches tau before b: what has happened comes before what is expected.
bool earlier(const Growth& a, const Growth& b) {
  const bool a_crossed = a.crossed_step >= 0, b_crossed = b.crossed_step >= 0;
  if (a_crossed != b_crossed) return a_crossed;
  if (a_crossed) return a.crossed_step < b.crossed_step;
  if (std::isnan(a.eta_step) || std::isnan(b.eta_step)) return !std::isnan(a.eta_step);
  return a.eta_step < b.eta_step;
}

bool reaches(const Growth& growth) {
  return growth.crossed_step >= 0 || !std::isnan(growth.eta_step);
}

ReportSeriesLayer fit_layer(const SeriesLayer& layer, double tau, std::size_t max_name) {
  ReportSeriesLayer out;
  out.layer = layer;
  out.layer.label = valid_utf8(layer.label, max_name);
  std::size_t heads = 0;
  for (const SeriesPoint& point : layer.points)
    heads = std::max(heads, point.head_max_score.size());
  for (int head = 0; index(head) < heads; ++head) {
    out.growth.push_back(fit_growth(layer, head, tau));
    const Growth& growth = out.growth.back();
    const bool first = out.hot_head < 0 || earlier(growth, out.growth[index(out.hot_head)]);
    if (reaches(growth) && first) out.hot_head = head;
  }
  return out;
}

std::string head_name(const ReportSeriesLayer& layer, int head) {
  return layer.label + " H" + std::to_string(head);
}

void find_first_sick(ReportSeries& series) {
  const SeriesPoint* first = nullptr;
  for (std::size_t l = 0; l < series.layers.size(); ++l) {
    const auto& points = series.layers[l].layer.points;
    for (std::size_t p = 0; p < points.size(); ++p) {
      const SeriesPoint& point = points[p];
      if (point.sick_head < 0) continue;
      const bool before = !first || point.step < first->step ||
                          (point.step == first->step && point.sick_severity > first->sick_severity);
      if (!before) continue;
      first = &point;
      series.sick_layer = static_cast<int>(l);
      series.sick_point = static_cast<int>(p);
      series.sick_name = head_name(series.layers[l], point.sick_head);
    }
  }
}

double last_score(const ReportSeriesLayer& layer) {
  return layer.layer.points.empty() ? std::nan("") : layer.layer.points.back().max_score;
}

}  // namespace

const Growth* hot_growth(const ReportSeriesLayer& layer) {
  return layer.hot_head < 0 ? nullptr : &layer.growth[index(layer.hot_head)];
}

ReportSeries build_series(const ReportInput& input, std::size_t max_name, std::size_t max_label) {
  ReportSeries series;
  std::set<std::int64_t> steps;
  for (const SeriesLayer& layer : input.series) {
    for (const SeriesPoint& point : layer.points) steps.insert(point.step);
  }
  if (steps.size() < 2) return series;
  series.steps = static_cast<std::int64_t>(steps.size());
  series.first_step = *steps.begin();
  series.last_step = *steps.rbegin();
  for (const SeriesLayer& layer : input.series)
    series.layers.push_back(fit_layer(layer, input.thresholds.hot_bad, max_name));
  std::vector<std::string> names;
  for (const ReportSeriesLayer& layer : series.layers) names.push_back(layer.layer.label);
  const std::vector<std::string> labels = short_labels(names, max_label);
  for (std::size_t l = 0; l < labels.size(); ++l) series.layers[l].label = labels[l];
  if (const int first = series_order(series).front(); series.layers[index(first)].hot_head >= 0)
    series.hot_layer = first;
  find_first_sick(series);
  return series;
}

void judge_series(const ReportInput& input, const ReportSeries& series, const LayerInput& layer,
                  HeadHealth* head) {
  for (std::size_t l = 0; l < series.layers.size(); ++l) {
    const auto& growth = series.layers[l].growth;
    if (input.series[l].label != layer.label || index(head->head) >= growth.size()) continue;
    judge_growth(growth[index(head->head)], input.thresholds, head);
    return;
  }
}

std::vector<int> series_order(const ReportSeries& series) {
  std::vector<int> order;
  for (std::size_t l = 0; l < series.layers.size(); ++l) order.push_back(static_cast<int>(l));
  std::stable_sort(order.begin(), order.end(), [&](int left, int right) {
    const ReportSeriesLayer &a = series.layers[index(left)], &b = series.layers[index(right)];
    const Growth *x = hot_growth(a), *y = hot_growth(b);
    if (x && y) return earlier(*x, *y);
    if (x || y) return x != nullptr;
    const double s = last_score(a), t = last_score(b);
    if (std::isnan(s) || std::isnan(t)) return !std::isnan(s) && std::isnan(t);
    return s > t;
  });
  return order;
}

std::string step_text(double step) { return std::to_string(std::llround(step)); }

std::string growth_sentence(const Report& report) {
  const ReportSeries& series = report.series;
  const double tau = report.input.thresholds.hot_bad;
  if (series.hot_layer >= 0) {
    const ReportSeriesLayer& layer = series.layers[index(series.hot_layer)];
    return head_name(layer, layer.hot_head) + " " + growth_text(*hot_growth(layer), tau) + ".";
  }
  const bool fitted =
      std::any_of(series.layers.begin(), series.layers.end(), [](const auto& layer) {
        return std::any_of(layer.growth.begin(), layer.growth.end(),
                           [](const Growth& growth) { return growth.points > 0; });
      });
  return fitted ? "No head grows towards a score of " + number(tau) + "."
                : "Too few steps to tell growth: " + std::to_string(kGrowthPoints) +
                      " of positive score are needed.";
}

std::string sick_sentence(const Report& report) {
  const ReportSeries& series = report.series;
  if (series.sick_layer < 0) return "No head was sick at any step.";
  const SeriesPoint& point =
      series.layers[index(series.sick_layer)].layer.points[index(series.sick_point)];
  return "First sick head: " + series.sick_name + ", " + name(point.sick_kind) + " at step " +
         std::to_string(point.step) + ".";
}

std::string growth_clause(const Report& report, const std::vector<int>& heads) {
  const Growth* first = nullptr;
  std::string text;
  for (const int i : heads) {
    const ReportHead& head = report.heads[index(i)];
    for (const ReportSeriesLayer& layer : report.series.layers) {
      if (layer.layer.label != report.input.layers[index(head.layer)].label ||
          index(head.head) >= layer.growth.size())
        continue;
      const Growth& growth = layer.growth[index(head.head)];
      if (!reaches(growth) || (first && !earlier(growth, *first))) continue;
      first = &growth;
      text = head.name + " " + growth_text(growth, report.input.thresholds.hot_bad) + ".";
    }
  }
  return text;
}

}  // namespace poise::report
