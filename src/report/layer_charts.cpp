// Charts over depth: one dot per head in the column of its layer, the range of the layer as a thin
// line, its median as a dash. In: read-outs of the model. Out: the figures of entropy, sinks and
// gradient gain. A head that no rule found fault with is grey or the colour of the reference; one
// with a warning is drawn in the alarm colour and named when it is the most extreme.
#include "report/charts.h"
#include "report/figure.h"
#include "report/findings.h"
#include "report/median.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace poise::report {
namespace {

constexpr double kLeft = 34, kRight = 334, kTop = 24, kBottom = 190, kHeight = 226;
constexpr int kLayerLabels = 12;  // at most, so that they do not touch

struct LayerPlot {
  const char* id;
  std::string title, reading, description;
  const char* unit;  // above the vertical axis
  Axis y;
  std::vector<Tick> levels;
  std::function<double(const ReportHead&)> value;
  std::function<bool(const ReportHead&)> alarm;
  const char* calm_class;  // of the dots of other heads
  bool ranges = true;      // range and median of each layer
  double limit = std::numeric_limits<double>::quiet_NaN();
  std::string limit_label;
  bool limit_below = false;  // trouble is below the limit, and so is its label
  int named = -1;            // the head whose name is written beside its dot; -1 = none
};

std::vector<Tick> layer_ticks(const Report& report) {
  const int every = (report.layers + kLayerLabels - 1) / kLayerLabels;
  std::vector<Tick> ticks;
  for (int i = 0; i < report.layers; i += std::max(1, every)) {
    std::string label = report.layer_labels[static_cast<std::size_t>(i)];
    if (label == "L" + std::to_string(i)) label = std::to_string(i);
    if (label.size() > 4) label = std::to_string(i);  // long names do not fit below a column
    ticks.push_back({static_cast<double>(i), label});
  }
  return ticks;
}

// Beside its dot, on the side with room, clear of the column of the next layer's dots where there
// are few layers.
void draw_name(Svg& svg, const LayerPlot& plot, const ReportHead& head, double x, double y) {
  const bool leftwards = x > (kLeft + kRight) / 2;
  svg.text(plot.alarm(head) ? "strong al" : "strong", leftwards ? x - 7 : x + 7, y + 4,
           leftwards ? Anchor::end : Anchor::start, head.name);
}

std::string draw(const Report& report, const LayerPlot& plot) {
  Svg svg(plot.id, kHeight, plot.title, plot.description);
  const double margin = std::min(14.0, (kRight - kLeft) / (2.0 * std::max(1, report.layers)));
  const Axis x{0, std::max(1.0, report.layers - 1.0), kLeft + margin, kRight - margin};
  const auto column = [&](int layer) {
    return report.layers == 1 ? (x.from + x.to) / 2 : x.at(layer);
  };
  draw_levels(svg, plot.y, kLeft, kRight, plot.levels);
  svg.line("axis", kLeft, kBottom, kRight, kBottom);
  for (const Tick& tick : layer_ticks(report)) {
    svg.text("s", column(static_cast<int>(tick.value)), kBottom + 16, Anchor::middle, tick.label);
  }
  svg.text("s", (kLeft + kRight) / 2, kHeight - 4, Anchor::middle, "layer");
  svg.text("s", 0, 11, Anchor::start, plot.unit);
  std::vector<std::vector<double>> of_layer(static_cast<std::size_t>(report.layers));
  MarkPath calm(report), alarm(report);
  for (const ReportHead& head : report.heads) {
    const double value = plot.value(head);
    if (std::isnan(value)) continue;
    of_layer[static_cast<std::size_t>(head.layer)].push_back(value);
    (plot.alarm(head) ? alarm : calm).dot(column(head.layer), plot.y.at(value));
  }
  Path ranges, medians;
  for (int layer = 0; plot.ranges && layer < report.layers; ++layer) {
    const std::vector<double>& values = of_layer[static_cast<std::size_t>(layer)];
    if (values.size() < 2) continue;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    ranges.move(column(layer), plot.y.at(*low)).vertical(plot.y.at(*high));
    medians.dash(column(layer) - 5, plot.y.at(median(values)), 10);
  }
  svg.path("axis", ranges);
  svg.path(plot.calm_class, calm.path());
  svg.path("disc alarm", alarm.path());
  svg.path("median", medians);
  if (!std::isnan(plot.limit)) {
    const double y = plot.y.at(plot.limit);
    svg.line("limit", kLeft, y, kRight, y);
    if (plot.limit_below) {
      svg.text("", kRight, y + 15, Anchor::end, plot.limit_label);
    } else {
      svg.text("", kLeft + 2, y - 5, Anchor::start, plot.limit_label);
    }
  }
  if (plot.named >= 0) {
    const ReportHead& head = report.heads[static_cast<std::size_t>(plot.named)];
    draw_name(svg, plot, head, column(head.layer), plot.y.at(plot.value(head)));
  }
  return figure_html("", plot.title, plot.reading, svg.finish());
}

// The head with the largest `value`; -1 when none has one.
template <class Value>
int largest(const Report& report, Value value) {
  int found = -1;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    if (const double here = value(report.heads[i]); here > most) {
      most = here;
      found = static_cast<int>(i);
    }
  }
  return found;
}

template <class Value>
double layer_median(const Report& report, int layer, Value value) {
  std::vector<double> values;
  for (const ReportHead& head : report.heads) {
    if (const double here = value(head); head.layer == layer && !std::isnan(here))
      values.push_back(here);
  }
  return median(std::move(values));
}

bool has(const ReportHead& head, VerdictKind kind) {
  const Flag* flag = find_flag(head, kind);
  return flag && flag->severity >= Severity::warn;
}

std::string layers_of(const Report& report) {
  return plural(static_cast<std::int64_t>(report.heads.size()), "head") + " in " +
         plural(report.layers, "layer") + ". ";
}

double entropy_of(const ReportHead& head) { return head.health.readout.entropy_ratio; }

std::string entropy_title(const Report& report) {
  const double first = layer_median(report, 0, entropy_of);
  const double last = layer_median(report, report.layers - 1, entropy_of);
  constexpr double kChange = 0.1;  // of H / ln n: below, the eye sees none either
  if (report.layers == 1 || std::isnan(first) || std::isnan(last)) {
    std::vector<double> all;
    for (const ReportHead& head : report.heads) {
      if (!std::isnan(entropy_of(head))) all.push_back(entropy_of(head));
    }
    return "The median head keeps " + fraction(median(std::move(all))) + " of the largest entropy";
  }
  const std::string range = ", from " + fraction(first) + " to " + fraction(last);
  if (last - first > kChange) return "Entropy rises with depth" + range;
  if (first - last > kChange) return "Entropy falls with depth" + range;
  return "Entropy keeps its level through " + plural(report.layers, "layer") + range;
}

std::string sink_title(const Report& report, const std::vector<int>& sinks) {
  if (sinks.empty()) {
    return "No measured key takes more than " + percent_sign(report.input.thresholds.sink_weight) +
           " of a head";
  }
  std::map<std::int64_t, int> votes;
  for (const int i : sinks)
    ++votes[report.heads[static_cast<std::size_t>(i)].health.readout.sink_key];
  const auto top = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return capitalised(key_name(report, top->first)) + " is a sink in " + plural(top->second, "head");
}

}  // namespace

std::string entropy_figure(const Report& report) {
  const int lowest = largest(report, [](const ReportHead& h) { return -entropy_of(h); });
  if (lowest < 0) return "";
  LayerPlot plot;
  plot.id = "entropy";
  plot.title = entropy_title(report);
  plot.reading =
      "One dot per head, the mean of its rows: 1 is uniform, 0 one key. Line: the layer’s range; "
      "dash: its median head.";
  plot.description = layers_of(report) + "The lowest is " +
                     report.heads[static_cast<std::size_t>(lowest)].name + " with " +
                     fraction(entropy_of(report.heads[static_cast<std::size_t>(lowest)])) + ".";
  plot.unit = "H / ln n";
  plot.y = {0, 1, kBottom, kTop};
  plot.levels = {{0, "0"}, {0.25, ""}, {0.5, ".5"}, {0.75, ""}, {1, "1"}};
  plot.value = entropy_of;
  plot.alarm = [](const ReportHead& h) {
    return has(h, VerdictKind::saturated) || has(h, VerdictKind::diffuse);
  };
  plot.calm_class = "disc everyone";
  plot.named = lowest;
  return draw(report, plot);
}

std::string sink_figure(const Report& report) {
  const auto weight = [](const ReportHead& h) { return h.health.readout.sink_weight; };
  const int strongest = largest(report, [&](const ReportHead& h) {
    return h.health.readout.sink_key < 0 ? std::nan("") : weight(h);
  });
  if (strongest < 0) return "";
  const double limit = report.input.thresholds.sink_weight;
  std::vector<int> sinks;
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    if (find_flag(report.heads[i], VerdictKind::sink_dominated))
      sinks.push_back(static_cast<int>(i));
  }
  const ReportHead& top = report.heads[static_cast<std::size_t>(strongest)];
  const double high = weight(top) > 0.5 ? 1 : 0.5;
  LayerPlot plot;
  plot.id = "sinks";
  plot.title = sink_title(report, sinks);
  plot.reading =
      "Mean weight of each head’s heaviest measured key, one dot per head. Apart, because a sink "
      "is "
      "normal and is no saturation.";
  plot.description = layers_of(report) + "The largest mean weight is " + percent_sign(weight(top)) +
                     " in " + top.name + ".";
  plot.unit = "% on one key";
  plot.y = {0, high, kBottom, kTop};
  plot.levels = {{0, "0"}, {high / 2, percent(high / 2)}, {high, percent(high)}};
  plot.value = [&](const ReportHead& h) {
    return h.health.readout.sink_key < 0 ? std::nan("") : weight(h);
  };
  plot.alarm = [](const ReportHead&) { return false; };
  plot.calm_class = "disc accent small";
  plot.ranges = false;
  plot.limit = limit;
  plot.limit_label = "sink above " + percent(limit);
  plot.named = weight(top) > limit ? strongest : -1;
  return draw(report, plot);
}

std::string gain_figure(const Report& report) {
  constexpr double kFloor = 1e-4;  // lower gains are drawn here: nothing passes either way
  const auto gain = [](const ReportHead& h) { return h.health.readout.gain; };
  const int lowest = largest(report, [&](const ReportHead& h) { return -gain(h); });
  if (lowest < 0) return "";
  const double dead = report.input.thresholds.dead_gain;
  double low = std::max(kFloor, dead / 2), high = 2;
  std::int64_t dead_heads = 0, heads = 0;
  for (const ReportHead& head : report.heads) {
    if (std::isnan(gain(head))) continue;
    low = std::min(low, std::max(kFloor, gain(head)));
    high = std::max(high, gain(head));
    dead_heads += gain(head) < dead ? 1 : 0;
    ++heads;
  }
  const ReportHead& worst = report.heads[static_cast<std::size_t>(lowest)];
  LayerPlot plot;
  plot.id = "gain";
  if (dead_heads == 0) {
    plot.title = "The Jacobian lets gradient through in " +
                 (heads == 1 ? std::string("the one head") : "all " + plural(heads, "head"));
  } else {
    plot.title = agree(dead_heads, "The Jacobian of ", "The Jacobians of ") +
                 plural(dead_heads, "head") + agree(dead_heads, " is dead", " are dead") +
                 ": median gain below " + number(dead);
  }
  plot.reading =
      "Median gain ‖J‖n/√(n−1) of each head’s softmax Jacobian; 1 is a uniform row. Line: the "
      "layer’s range; dash: its median head.";
  plot.description =
      layers_of(report) + "The lowest is " + worst.name + " with " + number(gain(worst)) + ".";
  plot.unit = "gain";
  plot.y = {std::pow(10, std::floor(std::log10(low))), 1.2 * high, kBottom, kTop, true};
  plot.levels = decades(plot.y);
  if (low <= kFloor) plot.levels.front().label = "≤" + plot.levels.front().label;
  plot.value = gain;
  plot.alarm = [dead](const ReportHead& h) { return h.health.readout.gain < dead; };
  plot.calm_class = "disc everyone";
  plot.limit = dead;
  plot.limit_label = "dead below " + number(dead);
  plot.limit_below = true;
  plot.named = lowest;
  return draw(report, plot);
}

}  // namespace poise::report
