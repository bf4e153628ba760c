// Frames, rules and marks of the figures. In: words, axes, coordinates. Out: markup. MarkPath that
// cannot be told apart are drawn once. Not here: any knowledge of a statistic.
#include "report/figure.h"

#include "report/encoding.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>

namespace poise::report {

std::string figure_html(std::string_view id, const std::string& title, const std::string& reading,
                        const std::string& drawing) {
  return "<figure" + (id.empty() ? std::string() : " id=\"" + std::string(id) + "\"") +
         "><figcaption><h3>" + html_escape(title) + "</h3>" + html_escape(reading) +
         "</figcaption>" + drawing + "</figure>\n";
}

void draw_levels(Svg& svg, const Axis& y, double left, double right,
                 const std::vector<Tick>& ticks) {
  for (const Tick& tick : ticks) {
    const double at = y.at(tick.value);
    svg.line("grid", left, at, right, at);
    svg.text("s", left - 4, at + 4, Anchor::end, tick.label);
  }
}

void draw_places(Svg& svg, const Axis& x, double bottom, const std::vector<Tick>& ticks) {
  svg.line("axis", x.from, bottom, x.to, bottom);
  for (const Tick& tick : ticks) {
    const double at = x.at(tick.value);
    svg.line("axis", at, bottom, at, bottom + 4);
    svg.text("s", at, bottom + 16, at > x.to - 12 ? Anchor::end : Anchor::middle, tick.label);
  }
}

std::vector<Tick> decades(const Axis& axis, int most) {
  const int first = static_cast<int>(std::ceil(std::log10(axis.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(axis.high) + 1e-9));
  const int every = std::max(1, (last - first + most - 1) / std::max(1, most - 1));
  std::vector<Tick> ticks;
  for (int decade = first; decade <= last; decade += every) {
    const double value = std::pow(10, decade);
    ticks.push_back({value, number(value)});
  }
  return ticks;
}

bool MarkPath::fresh(double* x, double* y) {
  if (!std::isfinite(*x) || !std::isfinite(*y)) return false;
  const double step = snap_ ? 1 : 10;  // units of the drawing, or the tenths that a path prints
  const std::int64_t column = std::llround(*x * step), row = std::llround(*y * step);
  if (snap_) {
    *x = static_cast<double>(column);
    *y = static_cast<double>(row);
  }
  return seen_.insert({column, row}).second;
}

void MarkPath::dot(double x, double y) { dash(x, y, 0); }

void MarkPath::tick(double x, double y, double height) {
  if (fresh(&x, &y)) path_.move(x, y).vertical(y + height);
}

void MarkPath::dash(double x, double y, double length) {
  if (fresh(&x, &y)) path_.dash(x, y, length);
}

bool alarming(const ReportHead& head) { return head.health.severity >= Severity::warn; }

}  // namespace poise::report
