// Metrics of the grid. In: read-outs and thresholds. Out: words, and a number in [0, 1] for tints
// and bars that means the same in every report: it depends on the thresholds, never on the other
// heads. Stronger always means closer to trouble. No markup here.
#include "report/grid.h"

#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise::report {
namespace {

// 0 at 0, 0.5 at the threshold, 1 at infinity; steep around the threshold.
double rising(double value, double threshold) {
  const double ratio = std::max(value, 0.0) / threshold;
  return 1 - 1 / (1 + ratio * ratio);
}

std::string meaning(const Report& report, GridMetric metric) {
  const Thresholds& rules = report.input.thresholds;
  switch (metric) {
    case GridMetric::spread:
      return "Median within-row standard deviation of the scaled scores; 1 is a standard normal" +
             (std::isnan(report.target_sigma)
                  ? std::string(".")
                  : ", target here " + number(report.target_sigma) + ".");
    case GridMetric::max_score:
      return "Largest scaled score; " + number(rules.hot_watch) + " is watched, above " +
             number(rules.hot_bad) + " is bad.";
    case GridMetric::entropy:
      return "Mean row entropy over ln n; 1 is uniform, 0 one-hot.";
    case GridMetric::saturated:
      return "Share of rows with more than .99 on one key, in %.";
    case GridMetric::gain:
      return "Median gradient gain; 1 is a uniform row, below " + number(rules.dead_gain) +
             " is dead.";
  }
  return "";
}

}  // namespace

const char* label(GridMetric metric) {
  switch (metric) {
    case GridMetric::spread:
      return "spread σ";
    case GridMetric::max_score:
      return "max score";
    case GridMetric::entropy:
      return "entropy";
    case GridMetric::saturated:
      return "% saturated";
    case GridMetric::gain:
      return "gradient gain";
  }
  return "";
}

double value(const Readout& readout, GridMetric metric) {
  switch (metric) {
    case GridMetric::spread:
      return readout.sigma;
    case GridMetric::max_score:
      return readout.max_score;
    case GridMetric::entropy:
      return readout.entropy_ratio;
    case GridMetric::saturated:
      return readout.above_99;
    case GridMetric::gain:
      return readout.gain;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::string value_text(const Readout& readout, GridMetric metric) {
  const double shown = value(readout, metric);
  switch (metric) {
    case GridMetric::spread:
      return spread(shown);
    case GridMetric::max_score:
      return fixed(shown, std::abs(shown) < 9.95 ? 1 : 0);
    case GridMetric::entropy:
      return fraction(shown);
    case GridMetric::saturated:
      return percent(shown);
    case GridMetric::gain:
      return fixed(shown, shown < 0.0995 ? 2 : 1);
  }
  return "";
}

double trouble(const Readout& readout, GridMetric metric, const Thresholds& rules) {
  const double shown = value(readout, metric);
  if (std::isnan(shown)) return shown;
  switch (metric) {
    // Many a trained head lives around the freezing spread and is well: half the tint at twice it.
    case GridMetric::spread:
      return rising(readout.x, 2 * rules.saturated_x);
    case GridMetric::max_score:
      return rising(shown, rules.hot_watch);
    case GridMetric::entropy:
      return std::clamp(1 - shown, 0.0, 1.0);
    case GridMetric::saturated:
      return rising(shown, rules.saturated_share);
    case GridMetric::gain:
      return 1 - rising(shown, rules.dead_gain);
  }
  return 0;
}

bool measured(const Report& report, GridMetric metric) {
  return std::any_of(report.heads.begin(), report.heads.end(), [&](const ReportHead& head) {
    return !std::isnan(value(head.health.readout, metric));
  });
}

std::string caption(const Report& report, GridMetric metric) {
  const ReportHead* lowest = nullptr;
  const ReportHead* highest = nullptr;
  for (const ReportHead& head : report.heads) {
    const double here = value(head.health.readout, metric);
    if (std::isnan(here)) continue;
    if (!lowest || here < value(lowest->health.readout, metric)) lowest = &head;
    if (!highest || here > value(highest->health.readout, metric)) highest = &head;
  }
  std::string text = meaning(report, metric);
  if (lowest) {
    const std::string low = value_text(lowest->health.readout, metric);
    const std::string high = value_text(highest->health.readout, metric);
    text += low == high ? " Here " + low + "." : " From " + low + " to " + high + ".";
  }
  return text + " Stronger tint is closer to trouble.";
}

}  // namespace poise::report
