// Four small charts against the step: largest score with tau, entropy, rows on one key,
// transmission. One line a layer; the layer to look at first is thick and named, the others are
// grey. In: the model. Out: figures. Lines of many steps are thinned out, keeping the worst of each
// stretch, so that a page of many layers stays small.
#include "report/figure.h"
#include "report/series.h"
#include "report/svg.h"
#include "report/words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace poise::report {
namespace {

constexpr double kLeft = 44, kRight = 330, kTop = 34, kBottom = 170, kHeight = 206;
constexpr std::size_t kMaxMarks = 72;  // points of one line
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// What one chart draws.
struct Signal {
  const char* id;
  double SeriesPoint::*value;
  const char* axis;
  bool logarithmic;
  bool high_is_worse;
};
constexpr Signal kMaxScore = {"time-score", &SeriesPoint::max_score, "largest score", true, true};
constexpr Signal kEntropy = {"time-entropy", &SeriesPoint::entropy_ratio, "H / ln n", false, false};
constexpr Signal kSaturation = {"time-one-key", &SeriesPoint::above_99, "share of rows", false,
                                true};
constexpr Signal kTransmission = {"time-gradient", &SeriesPoint::transmission, "|dS| / |dP|", true,
                                  false};

bool drawable(const Signal& signal, double value) {
  return std::isfinite(value) && (!signal.logarithmic || value > 0);
}

// First and last drawable value of a layer.
struct Ends {
  double first = kNaN, last = kNaN;
};
Ends ends_of(const ReportSeriesLayer& layer, const Signal& signal) {
  Ends ends;
  for (const SeriesPoint& point : layer.layer.points) {
    const double value = point.*signal.value;
    if (!drawable(signal, value)) continue;
    if (std::isnan(ends.first)) ends.first = value;
    ends.last = value;
  }
  return ends;
}

// The layer whose last value is worst; -1 when no layer has any.
int worst_layer(const ReportSeries& series, const Signal& signal) {
  int worst = -1;
  double value = kNaN;
  for (std::size_t l = 0; l < series.layers.size(); ++l) {
    const double last = ends_of(series.layers[l], signal).last;
    if (std::isnan(last)) continue;
    if (worst >= 0 && !(signal.high_is_worse ? last > value : last < value)) continue;
    worst = static_cast<int>(l);
    value = last;
  }
  return worst;
}

struct Frame {
  Axis x, y;
};

// Values from `low` to `high` that a reader expects on an axis, at most six.
std::vector<double> ticks_of(const Axis& axis) {
  std::vector<double> ticks;
  if (!axis.logarithmic) return {0, 0.5, 1};
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  const bool fine = std::log10(axis.high / axis.low) < 1.7;
  const int every = std::max(1, (last - first) / 5);
  for (int decade = first; decade <= last; decade += every) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10, decade);
      if ((digit == 1 || fine) && value >= axis.low && value <= axis.high) ticks.push_back(value);
    }
  }
  return ticks;
}

Frame frame_of(const Report& report, const Signal& signal, double x_end) {
  const ReportSeries& series = report.series;
  Frame frame;
  frame.x = {static_cast<double>(series.first_step), x_end, kLeft, kRight, false};
  frame.y = {0, 1, kBottom, kTop, signal.logarithmic};
  if (!signal.logarithmic) return frame;
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const ReportSeriesLayer& layer : series.layers) {
    for (const SeriesPoint& point : layer.layer.points) {
      const double value = point.*signal.value;
      if (!drawable(signal, value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (&signal == &kMaxScore) high = std::max(high, report.input.thresholds.hot_bad);
  // A little room around the data, and never less than a factor of five in all: noise stays
  // small, and at least two of 1, 2 and 5 lie in it.
  low /= 1.15;
  high *= 1.15;
  if (high < 5 * low) {
    const double middle = std::sqrt(low * high);
    low = middle / std::sqrt(5.0);
    high = middle * std::sqrt(5.0);
  }
  frame.y.low = low;
  frame.y.high = high;
  return frame;
}

void draw_axes(Svg& svg, const Frame& frame, const Signal& signal) {
  for (const double tick : ticks_of(frame.y)) {
    const double y = frame.y.at(tick);
    svg.line("grid", kLeft, y, kRight, y);
    svg.text("s", kLeft - 4, y + 4, Anchor::end,
             &signal == &kSaturation ? percent_sign(tick)
             : signal.logarithmic    ? number(tick)
                                     : fraction(tick));
  }
  svg.line("axis", kLeft, kBottom, kRight, kBottom);
  svg.text("s", 0, 11, Anchor::start, signal.axis);
  const double step = std::max(1.0, round_step(frame.x.high - frame.x.low, 4));
  for (double tick = std::ceil(frame.x.low / step) * step; tick <= frame.x.high; tick += step) {
    const double x = frame.x.at(tick);
    svg.line("axis", x, kBottom, x, kBottom + 4);
    svg.text("s", x, kBottom + 16, x > kRight - 12 ? Anchor::end : Anchor::middle, fixed(tick, 0));
  }
  svg.text("s", (kLeft + kRight) / 2, kHeight - 4, Anchor::middle, "step");
}

// The line of a layer: of each stretch of steps its worst value; a gap where nothing was measured.
Path trace(const SeriesLayer& layer, const Signal& signal, const Frame& frame) {
  Path path;
  const std::size_t stride = (layer.points.size() + kMaxMarks - 1) / kMaxMarks;
  bool open = false;
  for (std::size_t begin = 0; begin < layer.points.size(); begin += stride) {
    const SeriesPoint* worst = nullptr;
    for (std::size_t p = begin; p < std::min(begin + stride, layer.points.size()); ++p) {
      const SeriesPoint& point = layer.points[p];
      if (!drawable(signal, point.*signal.value)) continue;
      const bool worse =
          !worst || (signal.high_is_worse ? point.*signal.value > worst->*signal.value
                                          : point.*signal.value < worst->*signal.value);
      if (worse) worst = &point;
    }
    if (!worst) {
      open = false;
      continue;
    }
    const double x = frame.x.at(static_cast<double>(worst->step));
    const double y = frame.y.at(worst->*signal.value);
    if (open)
      path.line(x, y);
    else
      path.move(x, y);
    open = true;
  }
  return path;
}

void draw_traces(Svg& svg, const Report& report, const Signal& signal, const Frame& frame,
                 int worst, bool alarm) {
  const ReportSeries& series = report.series;
  for (std::size_t l = 0; l < series.layers.size(); ++l) {
    if (static_cast<int>(l) == worst) continue;
    svg.path("trend", trace(series.layers[l].layer, signal, frame));
  }
  const SeriesLayer& layer = series.layers[index(worst)].layer;
  svg.path(alarm ? "trend first alarm" : "trend first", trace(layer, signal, frame));
  // The name at the end of its line, on the side where the other lines are not: above where high is
  // worse, below where low is; on the other side where it would leave the drawing or cover tau.
  const double last = ends_of(series.layers[index(worst)], signal).last;
  const SeriesPoint* end = nullptr;
  for (const SeriesPoint& point : layer.points) {
    if (drawable(signal, point.*signal.value)) end = &point;
  }
  const double x = frame.x.at(static_cast<double>(end->step)), y = frame.y.at(last);
  const double tau = frame.y.at(report.input.thresholds.hot_bad);
  const bool covers_tau = &signal == &kMaxScore && std::abs(y - 12 - tau) < 12;
  const bool above = signal.high_is_worse ? y - 8 >= kTop + 4 && !covers_tau : y + 16 > kBottom - 4;
  svg.text(alarm ? "strong al" : "strong ac", x, above ? y - 8 : y + 16, Anchor::end,
           series.layers[index(worst)].label);
}

std::string change(const Ends& ends, std::string (*text)(double)) {
  const std::string first = text(ends.first), last = text(ends.last);
  if (first == last) return " stays at " + last;
  return (ends.last > ends.first ? " rises from " : " falls from ") + first + " to " + last;
}

std::string score_figure(const Report& report) {
  const ReportSeries& series = report.series;
  const double tau = report.input.thresholds.hot_bad;
  const bool reached = series.hot_layer >= 0;
  const int first = reached ? series.hot_layer : worst_layer(series, kMaxScore);
  if (first < 0) return "";
  const ReportSeriesLayer& layer = series.layers[index(first)];
  const Ends ends = ends_of(layer, kMaxScore);
  if (std::isnan(ends.last)) return "";
  const Growth* growth = hot_growth(layer);
  const double last = static_cast<double>(series.last_step);
  double x_end = last;
  // The axis goes on to the crossing while that leaves two thirds of it to what was measured.
  const bool ahead = growth && !std::isnan(growth->eta_step) &&
                     growth->eta_step - last <= (last - static_cast<double>(series.first_step)) / 2;
  if (ahead) x_end = std::max(last, growth->eta_step);

  const std::string head =
      growth ? layer.label + " H" + std::to_string(layer.hot_head) : layer.label;
  std::string title;
  if (!growth)
    title = "Largest score: " + layer.label + change(ends, spread);
  else if (growth->crossed_step >= 0)
    title = head + " passes " + number(tau) + " at step " + std::to_string(growth->crossed_step);
  else
    title = head + " reaches " + number(tau) + " at about step " + step_text(growth->eta_step);
  const std::string reading =
      "Largest score of any head of each layer, logarithmic, so a straight line grows by factors. "
      "Dashed: τ = " +
      number(tau) + (ahead ? ", and how the fit goes on." : ", where QK-clip acts.");

  const Frame frame = frame_of(report, kMaxScore, x_end);
  Svg svg(kMaxScore.id, kHeight, "Largest score against the step",
          layer.label + change(ends, spread) + ". " + growth_sentence(report) + " " +
              sick_sentence(report));
  draw_axes(svg, frame, kMaxScore);
  const double y_tau = frame.y.at(tau);
  svg.line("normal", kLeft, y_tau, kRight, y_tau);
  svg.text("s", kLeft + 2, y_tau - 4, Anchor::start, "τ = " + number(tau));
  draw_traces(svg, report, kMaxScore, frame, first, reached);
  if (ahead) {
    const double x = frame.x.at(growth->eta_step);
    svg.line("ahead", frame.x.at(last), frame.y.at(growth->level), x, y_tau);
    svg.path("disc alarm", Path().dot(x, y_tau));
  }
  if (series.sick_layer >= 0) {
    const SeriesPoint& sick =
        series.layers[index(series.sick_layer)].layer.points[index(series.sick_point)];
    const double x = frame.x.at(static_cast<double>(sick.step));
    const bool right_half = x > (kLeft + kRight) / 2;
    svg.line("sick", x, kTop - 6, x, kBottom);
    svg.text("strong al", right_half ? x + 3 : x - 3, kTop - 10,
             right_half ? Anchor::end : Anchor::start, "■ first sick: " + series.sick_name);
  }
  return figure_html("", title, reading, svg.finish());
}

// A chart of a signal between 0 and 1, or of the transmission.
std::string signal_figure(const Report& report, const Signal& signal, const std::string& what,
                          std::string (*text)(double), const std::string& reading, bool alarm) {
  const int worst = worst_layer(report.series, signal);
  if (worst < 0) return "";
  const ReportSeriesLayer& layer = report.series.layers[index(worst)];
  const Ends ends = ends_of(layer, signal);
  const std::string title = what + ": " + layer.label + change(ends, text);
  const Frame frame = frame_of(report, signal, static_cast<double>(report.series.last_step));
  Svg svg(signal.id, kHeight, what + " against the step", title + ".");
  draw_axes(svg, frame, signal);
  draw_traces(svg, report, signal, frame, worst, alarm);
  return figure_html("", title, reading, svg.finish());
}

}  // namespace

std::string series_figures(const Report& report) {
  const ReportSeries& series = report.series;
  const int one_key = worst_layer(series, kSaturation);
  const bool saturated = one_key >= 0 && ends_of(series.layers[index(one_key)], kSaturation).last >=
                                             report.input.thresholds.saturated_share;
  const int gradient = worst_layer(series, kTransmission);
  const bool measured =
      gradient >= 0 && series.layers[index(gradient)].layer.points.back().transmission_measured;
  return score_figure(report) +
         signal_figure(report, kEntropy, "Entropy", fraction,
                       "Mean of H / ln n over all rows of a layer: 1 is uniform, 0 sits on one "
                       "key.",
                       false) +
         signal_figure(report, kSaturation, "Rows on one key", percent_sign,
                       "Share of a layer’s rows that put more than .99 on one key.", saturated) +
         signal_figure(
             report, kTransmission, "Gradient that passes", number,
             std::string("Root mean square over a layer’s rows of the share of a "
                         "gradient that arrives at the scores, logarithmic; ") +
                 (measured ? "as measured by backward." : "as expected of independent gradients."),
             false);
}

}  // namespace poise::report
