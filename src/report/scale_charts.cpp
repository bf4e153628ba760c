// What the scale does, recomputed by the kernels at other scales: the gain of every head with and
// without the scale as a slope graph, and for one head what each factor on its scale would buy.
// In: what-ifs of the model. Out: figures; empty without what-ifs. Nothing here is estimated.
#include "report/charts.h"
#include "report/figure.h"
#include "report/findings.h"
#include "report/words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace poise::report {
namespace {

constexpr double kFloor = 1e-4;  // gains below are drawn here

bool close(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

// The head at that scale, nothing else changed; null when it was not run so.
const WhatIfReadout* at_scale(const ReportHead& head, double scale) {
  for (const WhatIfReadout& w : head.what_ifs) {
    if (!std::isnan(w.first_order_entropy_change) && close(w.scale, scale)) return &w;
  }
  return nullptr;
}

// ---- the slope graph
// ------------------------------------------------------------------------------

struct Column {
  std::string name;
  std::vector<double> gains;  // by head; NaN = not run
  std::int64_t dead = 0;
  bool as_it_is = false;
};

Column column_of(const Report& report, const std::string& name,
                 const std::vector<std::optional<double>>& scales) {
  Column column{name, {}, 0, !scales.front()};
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const ReportHead& head = report.heads[i];
    const WhatIfReadout* w = head.what_ifs.empty() ? nullptr
                             : scales[i]           ? at_scale(head, *scales[i])
                                                   : &head.what_ifs.front();
    column.gains.push_back(w ? w->gain : std::numeric_limits<double>::quiet_NaN());
    column.dead += w && w->gain < report.input.thresholds.dead_gain ? 1 : 0;
  }
  return column;
}

bool measured(const Column& column) {
  return std::any_of(column.gains.begin(), column.gains.end(),
                     [](double gain) { return !std::isnan(gain); });
}

// The one scale all heads ran with; NaN when they differ.
double common_scale(const Report& report) {
  double scale = std::numeric_limits<double>::quiet_NaN();
  for (const ReportHead& head : report.heads) {
    if (head.what_ifs.empty()) continue;
    if (std::isnan(scale)) scale = head.scale;
    if (!close(scale, head.scale)) return std::numeric_limits<double>::quiet_NaN();
  }
  return scale;
}

std::string scale_name(const Report& report) {
  const double scale = common_scale(report);
  if (std::isnan(scale)) return "as it is";
  const auto dim = static_cast<double>(report.head_dim);
  if (dim > 0 && close(scale, 1 / std::sqrt(dim))) return "1/√" + std::to_string(report.head_dim);
  return "as it is, " + number(scale);
}

// Where neither an undivided nor another usual scale was run: the largest and the smallest factor
// that every head ran with, and the heads as they are between them.
std::vector<Column> columns_of_factors(const Report& report) {
  std::vector<double> factors;
  for (const WhatIfReadout& w : report.heads.front().what_ifs) {
    const double factor = w.scale / report.heads.front().scale;
    const bool everywhere =
        !std::isnan(w.first_order_entropy_change) && !close(factor, 1) && factor > 0 &&
        std::all_of(report.heads.begin(), report.heads.end(), [&](const ReportHead& head) {
          return at_scale(head, head.scale * factor) != nullptr;
        });
    if (everywhere) factors.push_back(factor);
  }
  if (factors.empty()) return {};
  const auto column = [&](double factor) {
    std::vector<std::optional<double>> scales;
    for (const ReportHead& head : report.heads) scales.emplace_back(head.scale * factor);
    return column_of(report, times(factor), scales);
  };
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  std::vector<Column> columns;
  if (*high > 1) columns.push_back(column(*high));
  columns.push_back(column_of(report, scale_name(report),
                              std::vector<std::optional<double>>(report.heads.size())));
  if (*low < 1) columns.push_back(column(*low));
  return columns;
}

std::vector<Column> columns_of_scales(const Report& report) {
  const std::size_t n = report.heads.size();
  std::vector<Column> columns;
  const double scale = common_scale(report);
  const auto dim = static_cast<double>(report.head_dim);
  if (!close(scale, 1)) {
    columns.push_back(column_of(report, "no scale", std::vector<std::optional<double>>(n, 1.0)));
  }
  columns.push_back(column_of(report, scale_name(report), std::vector<std::optional<double>>(n)));
  if (report.head_dim > 0) {
    if (!close(scale, 1 / std::sqrt(dim))) {
      columns.push_back(column_of(report, "1/√" + std::to_string(report.head_dim),
                                  std::vector<std::optional<double>>(n, 1 / std::sqrt(dim))));
    }
    if (!close(scale, 1 / dim)) {
      columns.push_back(column_of(report, "1/" + std::to_string(report.head_dim),
                                  std::vector<std::optional<double>>(n, 1 / dim)));
    }
  }
  std::erase_if(columns, [](const Column& column) { return !measured(column); });
  return columns.size() < 2 ? columns_of_factors(report) : columns;
}

std::string dead_text(std::int64_t dead) {
  return dead == 0 ? "none dead" : plural(dead, "head") + " dead";
}

std::string slope_title(const Report& report, const std::vector<Column>& columns) {
  const Column& first = columns.front();
  const auto heads = static_cast<std::int64_t>(std::count_if(
      first.gains.begin(), first.gains.end(), [](double g) { return !std::isnan(g); }));
  if (first.name != "no scale") {
    const Column& last = columns.back();
    const Column& other = last.as_it_is ? first : last;
    const Column& now = *std::find_if(columns.begin(), columns.end(),
                                      [](const Column& column) { return column.as_it_is; });
    return "At " + other.name + ", " + dead_text(other.dead) + "; now " + dead_text(now.dead);
  }
  const std::string without = report.head_dim > 0 && scale_name(report).starts_with("1/√")
                                  ? scale_name(report)
                                  : "the scale";
  if (first.dead == 0) {
    return "Even without " + without +
           (heads == 1 ? " the head passes gradient" : " every head passes gradient");
  }
  const Column& now = *std::find_if(columns.begin(), columns.end(),
                                    [](const Column& column) { return column.as_it_is; });
  if (now.dead >= first.dead) {
    return plural(now.dead, "head") + agree(now.dead, " is", " are") + " dead now; without " +
           without + " too";
  }
  return "Without " + without + ", " +
         (first.dead == heads && heads > 1 ? "all " + plural(heads, "head")
                                           : plural(first.dead, "head")) +
         " would be dead";
}

}  // namespace

std::string slope_figure(const Report& report) {
  const std::vector<Column> columns = columns_of_scales(report);
  if (columns.size() < 2) return "";
  constexpr double kLeft = 44, kRight = 334, kTop = 46, kBottom = 290, kHeight = 312, kInset = 24;
  const double dead = report.input.thresholds.dead_gain;
  double low = std::max(kFloor, dead / 2), high = 2;
  for (const Column& column : columns) {
    for (const double gain : column.gains) {
      if (std::isnan(gain)) continue;
      low = std::min(low, std::max(kFloor, gain));
      high = std::max(high, gain);
    }
  }
  const Axis y{std::pow(10, std::floor(std::log10(low) + 1e-9)), 1.2 * high, kBottom, kTop, true};
  const auto x = [&](std::size_t column) {
    return kLeft + kInset +
           (kRight - kLeft - 2 * kInset) * static_cast<double>(column) /
               static_cast<double>(columns.size() - 1);
  };
  const auto up = [&](double gain) { return y.at(std::max(gain, y.low)); };
  const std::string title = slope_title(report, columns);
  std::string spoken = "Median gain per head.";
  for (const Column& column : columns)
    spoken += " " + column.name + ": " + dead_text(column.dead) + ".";
  Svg svg("slopes", kHeight, title, spoken);
  std::vector<Tick> levels = decades(y, 6);
  if (low <= kFloor) levels.front().label = "≤" + levels.front().label;
  draw_levels(svg, y, kLeft, kRight, levels);
  Path calm;
  Path alarm;
  MarkPath dots(report), alarm_dots(report);
  const bool many = report.heads.size() >= kManyHeads;
  std::set<std::vector<std::int64_t>> drawn;
  int named = -1;
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const bool bad = report.heads[i].health.readout.gain < dead;
    std::vector<std::int64_t> way;
    for (const Column& column : columns) way.push_back(std::llround(up(column.gains[i])));
    const bool gap = std::any_of(columns.begin(), columns.end(),
                                 [&](const Column& c) { return std::isnan(c.gains[i]); });
    if (gap) continue;
    // Lines that would lie on one another are drawn once where there are many.
    const bool fresh = !many || drawn.insert(way).second;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double gain = columns[c].gains[i];
      (bad ? alarm_dots : dots).dot(x(c), up(gain));
      if (!fresh) continue;
      Path& path = bad ? alarm : calm;
      const double at = many ? static_cast<double>(way[c]) : up(gain);
      if (c == 0) {
        path.move(x(c), at);
      } else {
        path.line(x(c), at);
      }
    }
    if (bad && (named < 0 || report.heads[i].health.readout.gain <
                                 report.heads[static_cast<std::size_t>(named)].health.readout.gain))
      named = static_cast<int>(i);
  }
  svg.path("thin", calm);
  svg.path("disc accent small", dots.path());
  svg.path("curve alarm", alarm);
  svg.path("disc alarm", alarm_dots.path());
  svg.line("limit", kLeft, y.at(dead), kRight, y.at(dead));
  svg.text("", kRight, y.at(dead) + 15, Anchor::end, "dead below " + number(dead));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const Anchor anchor = c == 0                    ? Anchor::start
                          : c + 1 == columns.size() ? Anchor::end
                                                    : Anchor::middle;
    const double at = c == 0 ? kLeft : c + 1 == columns.size() ? kRight : x(c);
    svg.text("strong", at, 12, anchor, columns[c].name);
    svg.text(columns[c].dead > 0 ? "al" : "ac", at, 28, anchor, dead_text(columns[c].dead));
  }
  if (named >= 0) {
    const auto head = static_cast<std::size_t>(named);
    const double now = up(report.heads[head].health.readout.gain);
    svg.text("strong al", x(columns.size() / 2) + 8, std::min(now + 16, kBottom - 4), Anchor::start,
             report.heads[head].name);
  }
  svg.text("s", kLeft, kHeight - 4, Anchor::start, "median gain ‖J‖n/√(n−1); 1 = a uniform row");
  return figure_html("slopes-figure", title,
                     "Median gain of each head, recomputed with other scales; one line per head.",
                     svg.finish());
}

// ---- what the factor buys
// -------------------------------------------------------------------------

namespace {

struct Trial {
  double factor;
  const WhatIfReadout* reading;
};

std::vector<Trial> trials_of(const ReportHead& head) {
  std::vector<Trial> trials;
  for (const WhatIfReadout& w : head.what_ifs) {
    const double factor = w.scale / head.scale;
    if (std::isnan(w.first_order_entropy_change) || !(factor > 0) || !std::isfinite(factor))
      continue;
    trials.push_back({factor, &w});
  }
  std::sort(trials.begin(), trials.end(),
            [](const Trial& a, const Trial& b) { return a.factor < b.factor; });
  trials.erase(
      std::unique(trials.begin(), trials.end(),
                  [](const Trial& a, const Trial& b) { return close(a.factor, b.factor); }),
      trials.end());
  return trials;
}

// The factor on the scale that flags of this head ask for, else 1.
double advised(const ReportHead& head) {
  const double factor = advised_factor(head.health);
  return factor > 0 ? factor : 1;
}

const WhatIfReadout& nearest(const std::vector<Trial>& trials, double factor) {
  return *std::min_element(trials.begin(), trials.end(), [&](const Trial& a, const Trial& b) {
            return std::abs(std::log(a.factor / factor)) < std::abs(std::log(b.factor / factor));
          })->reading;
}

std::string factor_label(double factor) {
  if (factor >= 1) return number(factor);
  return "1/" + number(1 / factor);
}

template <class Value>
Path curve_of(const std::vector<Trial>& trials, const Axis& x, const Axis& y, Value value) {
  Path path;
  bool open = false;
  for (const Trial& trial : trials) {
    const double here = value(*trial.reading);
    if (std::isnan(here)) {
      open = false;
      continue;
    }
    if (open) {
      path.line(x.at(trial.factor), y.at(here));
    } else {
      path.move(x.at(trial.factor), y.at(here));
    }
    open = true;
  }
  return path;
}

// Where a curve's name stands: beside its leftmost point, moved off the names placed before.
double place_label(double wanted, std::vector<double>* taken) {
  constexpr double kApart = 14;
  double y = wanted;
  for (int tries = 0; tries < 8; ++tries) {
    const auto hit = std::find_if(taken->begin(), taken->end(),
                                  [&](double other) { return std::abs(other - y) < kApart; });
    if (hit == taken->end()) break;
    y = *hit + kApart;
  }
  taken->push_back(y);
  return y;
}

}  // namespace

std::string remedy_figure(const Report& report) {
  int chosen = -1;
  for (const int i : report.order) {
    const ReportHead& head = report.heads[static_cast<std::size_t>(i)];
    if (trials_of(head).size() < 3) continue;
    if (chosen < 0) chosen = i;
    if (advised(head) != 1) {
      chosen = i;
      break;
    }
  }
  if (chosen < 0) return "";
  const ReportHead& head = report.heads[static_cast<std::size_t>(chosen)];
  const std::vector<Trial> trials = trials_of(head);
  constexpr double kLeft = 30, kRight = 334, kTop = 44, kBottom = 210, kHeight = 248;
  const Axis x{trials.front().factor, trials.back().factor, kLeft, kRight, true};
  const Axis y{0, 1, kBottom, kTop};
  double top_gain = 0;
  for (const Trial& trial : trials) {
    if (!std::isnan(trial.reading->gain)) top_gain = std::max(top_gain, trial.reading->gain);
  }
  const double factor = advised(head);
  const WhatIfReadout& now = head.what_ifs.front();
  const WhatIfReadout& then = nearest(trials, factor);
  const std::string at = times(then.scale / head.scale);
  const auto from_to = [](double a, double b, auto text) { return text(a) + " → " + text(b); };
  std::string title, reading;
  if (factor == 1) {
    // A hot head has a factor, of its scores' size; their spread is what is told here.
    const bool is_hot = find_flag(head, VerdictKind::hot) != nullptr;
    title = (is_hot ? "The spread of " : "") + head.name + " needs no factor: entropy " +
            fraction(now.entropy_ratio) + " as it is";
  } else if (then.gain > now.gain && now.above_99 >= 0.005) {
    title = at + " brings " + head.name + " from " + percent_sign(now.above_99) +
            " one-hot rows to " + percent_sign(then.above_99);
  } else {
    title = at + " brings the entropy of " + head.name + " from " + fraction(now.entropy_ratio) +
            " to " + fraction(then.entropy_ratio);
  }
  reading = "Recomputed at " + plural(static_cast<std::int64_t>(trials.size()), "scale") +
            ", not estimated; medians over rows, no refit of the weights.";
  if (factor != 1) {
    reading += " At " + at + ": H/ln n " +
               from_to(now.entropy_ratio, then.entropy_ratio, fraction) + ", gain " +
               from_to(now.gain, then.gain, number) + ".";
    if (!std::isnan(then.first_order_entropy_change)) {
      reading += " A first-order guess of ΔH says " + number(then.first_order_entropy_change) +
                 " nats where " + number(then.entropy - now.entropy) + " come.";
    }
  }
  Svg svg("remedy-chart", kHeight, title,
          "Entropy, share of one-hot rows and gain of " + head.name +
              " against a factor on its scale.");
  draw_levels(svg, y, kLeft, kRight, {{0, "0"}, {0.5, ".5"}, {1, "1"}});
  std::vector<Tick> ticks;
  const double step = std::max(1.0, std::ceil(std::log2(x.high / x.low) / 5));
  for (double power = std::ceil(std::log2(x.low) - 1e-9); power <= std::log2(x.high) + 1e-9;
       ++power) {
    if (std::fmod(power, step) == 0)
      ticks.push_back({std::exp2(power), factor_label(std::exp2(power))});
  }
  draw_places(svg, x, kBottom, ticks);
  svg.text("s", (kLeft + kRight) / 2, kHeight - 6, Anchor::middle, "factor on the scale");
  const auto stem = [&](double value, const std::string& label, double label_y) {
    const double place = x.at(value);
    svg.line("mark-line", place, label_y + 5, place, kBottom);
    svg.text("strong", place, label_y,
             place > kRight - 30  ? Anchor::end
             : place < kLeft + 30 ? Anchor::start
                                  : Anchor::middle,
             label);
  };
  stem(1, "now", 14);
  // On the line of "now" where that is far away, so that the names of the curves have theirs.
  constexpr double kRoom = 80;
  const double chosen_factor = std::clamp(then.scale / head.scale, x.low, x.high);
  if (factor != 1)
    stem(chosen_factor, at, std::abs(x.at(chosen_factor) - x.at(1)) > kRoom ? 14 : 30);
  const auto entropy = [](const WhatIfReadout& w) { return w.entropy_ratio; };
  const auto sharp = [](const WhatIfReadout& w) { return w.above_99; };
  const auto gain = [&](const WhatIfReadout& w) {
    return top_gain > 0 ? w.gain / top_gain : std::nan("");
  };
  svg.path("curve", curve_of(trials, x, y, gain));
  svg.path("curve accent", curve_of(trials, x, y, entropy));
  svg.path("curve alarm", curve_of(trials, x, y, sharp));
  std::vector<double> taken;
  const WhatIfReadout& first = *trials.front().reading;
  const WhatIfReadout& last = *trials.back().reading;
  if (!std::isnan(entropy(first)))
    svg.text("strong ac", kLeft + 4, place_label(y.at(entropy(first)) + 14, &taken), Anchor::start,
             "entropy");
  if (!std::isnan(gain(first)))
    svg.text("strong", kLeft + 4, place_label(y.at(gain(first)) - 6, &taken), Anchor::start,
             "gain (top " + number(top_gain) + ")");
  if (!std::isnan(sharp(last)))
    svg.text("strong al", kRight - 2,
             std::clamp(y.at(sharp(last)) + (sharp(last) > 0.5 ? 18 : -8), kTop + 12, kBottom - 6),
             Anchor::end, "rows > .99");
  return figure_html("remedy-figure", title, reading, svg.finish());
}

}  // namespace poise::report
