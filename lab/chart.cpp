// Panels as SVG. In: a Picture. Out: markup.
//
// Everything is laid out in units of a drawing 400 wide: its smallest text of 12.5 units is 10
// pixels high where the screen has 320. Must not happen here: a measurement.
#include "lab/chart.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "report/svg.h"
#include "report/words.h"

namespace poise::lab {
namespace {

using report::Anchor;
using report::Axis;
using report::Path;
using report::Svg;

// Text has a contrast of at least 4.5 : 1 on its background, marks too.
constexpr const char* kStyle = R"css(
svg { color-scheme: light dark; max-width: 100%; height: auto; --bg: #ffffff; --ink: #16191d;
  --soft: #4a5159; --grid: #e1e5e8; --axis: #7f8791; --t1: #0b5cad; --t2: #a8480c; --t3: #1d7547;
  --t4: #7b3a9e; --t5: #846400 }
@media (prefers-color-scheme: dark) { svg { --bg: #121518; --ink: #e8eaed; --soft: #b3bac2;
  --grid: #2a3036; --axis: #737c86; --t1: #74b3f2; --t2: #f0975a; --t3: #67c58e; --t4: #c79be6;
  --t5: #d6b640 } }
text { fill: var(--ink); font: 13px -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  font-variant-numeric: tabular-nums; paint-order: stroke; stroke: var(--bg); stroke-width: 3px;
  stroke-linejoin: round }
.title { font-size: 17px; font-weight: 650 }
.strong { font-weight: 650 }
.soft { fill: var(--soft); font-size: 12.5px }
path { fill: none; stroke: none }
.page { fill: var(--bg) }
.grid { stroke: var(--grid) }
.axis { stroke: var(--axis) }
.line { stroke-width: 1.5; stroke-linejoin: round }
.form { stroke-width: 1.5; stroke-dasharray: 5 3 }
.disc { stroke-width: 5.5; stroke-linecap: round }
.bar { stroke-width: 1.5 }
path.k0 { stroke: var(--ink) } path.k1 { stroke: var(--t1) } path.k2 { stroke: var(--t2) }
path.k3 { stroke: var(--t3) } path.k4 { stroke: var(--t4) }
path.k5 { stroke: var(--t5) }
text.k0 { fill: var(--ink) } text.k1 { fill: var(--t1) } text.k2 { fill: var(--t2) }
text.k3 { fill: var(--t3) } text.k4 { fill: var(--t4) }
text.k5 { fill: var(--t5) }
)css";

constexpr double kWidth = 400, kMargin = 12;
constexpr double kTitleUnits = 8.9, kTextUnits = 6.4;  // of a character, on average
constexpr double kTitleLine = 22, kTextLine = 17;
constexpr double kPlotHeight = 168, kPanelHead = 26, kPanelFoot = 40, kPanelGap = 22;
constexpr double kLabelStep = 15;  // between labels of neighbouring series

std::string toned(const char* style_class, int tone) {
  return std::string(style_class) + " k" + std::to_string(tone);
}

// Bytes that begin a character of UTF-8.
double characters(std::string_view text) {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string> wrapped(const std::string& text, double units) {
  std::vector<std::string> lines{""};
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    std::string& line = lines.back();
    if (line.empty())
      line = word;
    else if ((characters(line) + 1 + characters(word)) * units > kWidth - 2 * kMargin)
      lines.push_back(word);
    else
      line += ' ' + word;
    i = end + 1;
  }
  return lines;
}

std::vector<double> ticks_of(const Scale& scale, int parts) {
  if (!scale.ticks.empty()) return scale.ticks;
  std::vector<double> ticks;
  if (scale.logarithmic) {
    const int first = static_cast<int>(std::ceil(std::log10(scale.low) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(scale.high) + 1e-9));
    const int every = std::max(1, (last - first + parts - 1) / parts);
    for (int decade = last; decade >= first; decade -= every)
      ticks.push_back(std::pow(10.0, decade));
    return ticks;
  }
  const double step = report::round_step(scale.high - scale.low, parts);
  for (double i = std::ceil(scale.low / step - 1e-9); i * step <= scale.high + 1e-9 * step; ++i)
    // A quotient is the double nearest to its decimal; a product need not be: 19 * 0.05.
    ticks.push_back(step < 1 ? i / std::round(1 / step) : i * step);
  return ticks;
}

std::string tick_text(double value) { return report::number(value); }

class Plot {
 public:
  Plot(Svg& svg, const Panel& panel, double top) : svg_(svg), panel_(panel) {
    const std::vector<double> y_ticks = ticks_of(panel.y, 4);
    double left = 0, right = 0;
    for (const double tick : y_ticks) left = std::max(left, characters(tick_text(tick)));
    for (const Series& series : panel.series) right = std::max(right, characters(series.label));
    left_ = kMargin + kTextUnits * left + 6;
    right_ = kWidth - kMargin - (right > 0 ? kTextUnits * right + 10 : 0);
    top_ = top + kPanelHead;
    bottom_ = top_ + kPlotHeight;
    x_ = {panel.x.low, panel.x.high, left_, right_, panel.x.logarithmic};
    y_ = {panel.y.low, panel.y.high, bottom_, top_, panel.y.logarithmic};
    svg.text("strong", kMargin, top + 12, Anchor::start, panel.title);
    for (const double tick : y_ticks) {
      svg.line("grid", left_, y_.at(tick), right_, y_.at(tick));
      svg.text("soft", left_ - 6, y_.at(tick) + 4.5, Anchor::end, tick_text(tick));
    }
    svg.line("axis", left_, bottom_, right_, bottom_);
    for (const double tick : ticks_of(panel.x, 5)) {
      svg.line("axis", x_.at(tick), bottom_, x_.at(tick), bottom_ + 4);
      svg.text("soft", x_.at(tick), bottom_ + 17, Anchor::middle, tick_text(tick));
    }
    svg.text("soft", (left_ + right_) / 2, bottom_ + 33, Anchor::middle, panel.x_label);
  }

  void draw() {
    for (const Series& series : panel_.series) draw(series);
    draw_labels();
  }

 private:
  bool visible(const Point& point) const {
    const auto inside = [](const Scale& scale, double value) {
      return std::isfinite(value) && value >= scale.low && value <= scale.high;
    };
    return inside(panel_.x, point.x) && inside(panel_.y, point.y);
  }

  void draw(const Series& series) {
    Path line, discs, bars;
    bool open = false;
    for (const Point& point : series.points) {
      if (!visible(point)) {
        open = false;
        continue;
      }
      const double x = x_.at(point.x), y = y_.at(point.y);
      open ? line.line(x, y) : line.move(x, y);
      open = true;
      if (series.look == Look::closed_form) continue;
      discs.dot(x, y);
      const double low = y_.at(point.y - point.error), high = y_.at(point.y + point.error);
      if (point.error > 0 && low - high > 6) bars.move(x, low).vertical(high);
    }
    if (series.look == Look::closed_form) svg_.path(toned("form", series.tone), line);
    if (series.look == Look::measured) svg_.path(toned("line", series.tone), line);
    svg_.path(toned("bar", series.tone), bars);
    svg_.path(toned("disc", series.tone), discs);
  }

  // Each label at the height of its last visible point, pushed apart where they would touch.
  void draw_labels() {
    struct Label {
      const Series* series;
      double wanted, y;
    };
    std::vector<Label> labels;
    for (const Series& series : panel_.series) {
      const auto last = std::find_if(series.points.rbegin(), series.points.rend(),
                                     [&](const Point& point) { return visible(point); });
      if (series.label.empty() || last == series.points.rend()) continue;
      // Where the line has left the axes below, the label stands at their end.
      labels.push_back({&series, y_.at(last->y), y_.at(last->y)});
    }
    std::sort(labels.begin(), labels.end(),
              [](const Label& a, const Label& b) { return a.wanted < b.wanted; });
    for (std::size_t i = 1; i < labels.size(); ++i)
      labels[i].y = std::max(labels[i].wanted, labels[i - 1].y + kLabelStep);
    double most = bottom_;
    for (std::size_t i = labels.size(); i-- > 0; most = labels[i].y - kLabelStep)
      labels[i].y = std::min(labels[i].y, most);
    for (const Label& label : labels)
      svg_.text(toned("strong", label.series->tone), right_ + 8, label.y + 4.5, Anchor::start,
                label.series->label);
  }

  Svg& svg_;
  const Panel& panel_;
  double left_, right_, top_, bottom_;
  Axis x_, y_;
};

}  // namespace

const char* chart_style() { return kStyle; }

std::string draw(const Picture& picture) {
  const std::vector<std::string> title = wrapped(picture.statement, kTitleUnits);
  const std::vector<std::string> lead = wrapped(picture.lead, kTextUnits);
  const double head = 16 + kTitleLine * static_cast<double>(title.size()) +
                      kTextLine * static_cast<double>(lead.size()) + 18;
  constexpr double kPanel = kPanelHead + kPlotHeight + kPanelFoot + kPanelGap;
  const double height = head + kPanel * static_cast<double>(picture.panels.size());
  Svg svg(kWidth, height, picture.statement, picture.description, kStyle);
  svg.path("page", Path().move(0, 0).horizontal(kWidth).vertical(height).horizontal(0).close());
  double y = 14;
  for (const std::string& line : title)
    svg.text("title", kMargin, y += kTitleLine, Anchor::start, line);
  y += 4;
  for (const std::string& line : lead)
    svg.text("soft", kMargin, y += kTextLine, Anchor::start, line);
  for (std::size_t i = 0; i < picture.panels.size(); ++i)
    Plot(svg, picture.panels[i], head + kPanel * static_cast<double>(i)).draw();
  return svg.finish() + '\n';
}

std::string typeset(std::string text) {
  const std::pair<std::string, std::string> signs[] = {
      {"sqrt(D)", "√D"}, {"q.k", "q·k"}, {"+-", "±"}};
  for (const auto& [plain, sign] : signs)
    for (std::size_t at = text.find(plain); at != std::string::npos; at = text.find(plain, at))
      text.replace(at, plain.size(), sign);
  return text;
}

std::vector<double> powers_of_two(double low, double high, int most) {
  const int first = static_cast<int>(std::ceil(std::log2(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(high) + 1e-9));
  const int every = std::max(1, (last - first + most - 1) / std::max(1, most - 1));
  std::vector<double> ticks;
  for (int power = first; power <= last; power += every) ticks.push_back(std::exp2(power));
  return ticks;
}

}  // namespace poise::lab
