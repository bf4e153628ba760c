// "Over time" in the terminal: each layer's signals from the first step to the last, who reaches
// tau and when, who was sick first. In: the model. Out: lines of at most the page's width; columns
// that do not fit are left out; the layer and the step of crossing stay.
#include "report/series.h"
#include "report/terminal.h"
#include "report/words.h"

#include <algorithm>
#include <array>
#include <utility>

namespace poise::report {
namespace {

constexpr std::size_t kBriefLayers = 5;
constexpr int kGap = 3;
// Columns: layer, largest score, entropy, rows on one key, transmission, crossing.
constexpr std::size_t kColumns = 6;
constexpr std::array<std::size_t, 4> kFirstToGo = {4, 3, 2, 1};

using Row = std::array<std::string, kColumns>;

template <class Text>
std::string from_to(const SeriesLayer& layer, double SeriesPoint::*signal, Text text) {
  const std::string first = text(layer.points.front().*signal);
  const std::string last = text(layer.points.back().*signal);
  return first == last ? last : first + " → " + last;
}

std::string crossing(const ReportSeriesLayer& layer) {
  const Growth* growth = hot_growth(layer);
  if (growth == nullptr) return "–";
  const std::string head = " (H" + std::to_string(layer.hot_head) + ")";
  if (growth->crossed_step >= 0) return "step " + std::to_string(growth->crossed_step) + head;
  return "about step " + step_text(growth->eta_step) + head;
}

Row row_of(const ReportSeriesLayer& layer) {
  if (layer.layer.points.empty()) return {layer.label, "–", "–", "–", "–", "–"};
  return {layer.label,
          from_to(layer.layer, &SeriesPoint::max_score, spread),
          from_to(layer.layer, &SeriesPoint::entropy_ratio, fraction),
          from_to(layer.layer, &SeriesPoint::above_99, percent),
          from_to(layer.layer, &SeriesPoint::transmission, number),
          crossing(layer)};
}

}  // namespace

void series_text(Terminal& page, const Report& report, bool all_layers) {
  const ReportSeries& series = report.series;
  if (series.layers.empty()) return;
  const std::vector<int> order = series_order(series);
  const std::size_t shown = all_layers ? order.size() : std::min(order.size(), kBriefLayers);
  const bool measured =
      std::any_of(series.layers.begin(), series.layers.end(), [](const ReportSeriesLayer& layer) {
        return !layer.layer.points.empty() && layer.layer.points.back().transmission_measured;
      });
  std::vector<Row> rows = {{shown == order.size() ? "layer" : "first " + std::to_string(shown),
                            "max score", "H/ln n", ">.99 %",
                            measured ? "passes" : "passes, expected",
                            "above " + number(report.input.thresholds.hot_bad) + " at"}};
  for (std::size_t i = 0; i < shown; ++i)
    rows.push_back(row_of(series.layers[static_cast<std::size_t>(order[i])]));

  std::array<int, kColumns> width{};
  int total = -kGap;
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (const Row& row : rows) width[c] = std::max(width[c], page.used(row[c]));
    if (c == 0) width[c] = std::min(width[c], std::max(16, page.width() / 3));
    total += width[c] + kGap;
  }
  for (const std::size_t c : kFirstToGo) {
    if (total <= page.width()) break;
    total -= std::exchange(width[c], 0) + kGap;
  }

  page.paragraph({}, 0,
                 {{"over time", Tone::bold},
                  {": " + plural(series.steps, "step") + ", " + std::to_string(series.first_step) +
                   " to " + std::to_string(series.last_step)}});
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const bool alarm = r > 0 && series.layers[static_cast<std::size_t>(order[r - 1])].hot_head >= 0;
    for (std::size_t c = 0; c < kColumns; ++c) {
      if (width[c] == 0) continue;
      if (c > 0) page.put(std::string(kGap, ' '));
      const std::string text = c == 0 ? page.ending(rows[r][c], width[c]) : rows[r][c];
      page.left(text, width[c], alarm && c == kColumns - 1 ? Tone::alarm : Tone::plain);
    }
    page.end_line();
  }
  page.paragraph({}, 0, {{growth_sentence(report)}});
  page.paragraph({}, 0, {{sick_sentence(report)}});
}

}  // namespace poise::report
