// The picture of the training experiment: a block for each task, a row of panels for each metric, a
// column for each head_dim, and a last column with the end of training against head_dim.
//
// In: curves. Out: one SVG file that refers to nothing outside itself and follows the reader's
// preference for light or dark. Lines are means over seeds, bands and bars their 95 % confidence
// intervals (Student's t). A scale is told by colour, dashes and its name. Must not happen here: a
// number that the tables do not have.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "lab/chart.h"
#include "lab/table.h"
#include "lab/training/experiment.h"
#include "report/svg.h"
#include "report/words.h"

namespace poise::lab::training {
namespace {

using report::Anchor;
using report::Axis;
using report::Path;
using report::Svg;

constexpr const char* kStyle = R"css(
.band { opacity: .16 }
.curve { stroke-width: 2; stroke-linejoin: round }
.d1 { stroke-width: 2.6 } .d2 { stroke-dasharray: 9 4 } .d3 { stroke-dasharray: 2 3 }
.d4 { stroke-dasharray: 10 3 2 3 }
path.f0 { fill: var(--ink) } path.f1 { fill: var(--t1) } path.f2 { fill: var(--t2) }
path.f3 { fill: var(--t3) } path.f4 { fill: var(--t4) }
)css";

constexpr std::array kDrawn{Metric::loss,
                            Metric::accuracy,
                            Metric::entropy,
                            Metric::transmission,
                            Metric::middle_transmission,
                            Metric::query_key_grad,
                            Metric::all_grad};

constexpr double kLeft = 62, kRight = 96, kPanel = 196, kGap = 16, kHeight = 124, kRowGap = 30;
constexpr double kHead = 96, kBlockHead = 72, kBlockFoot = 52;

// The quantile of Student's t that leaves 2.5 % above it (any table of t, e.g. NIST/SEMATECH
// e-Handbook 1.3.6.7.2), for 1 ... 19 degrees of freedom.
double t_quantile(std::size_t seeds) {
  constexpr std::array kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                              2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093};
  return kTable.at(seeds - 2);
}

struct Interval {
  double low, mean, high;
};

Interval interval_of(const Estimate& estimate, bool logarithmic, double quantile) {
  if (!logarithmic)
    return {estimate.value - quantile * estimate.error, estimate.value,
            estimate.value + quantile * estimate.error};
  const double factor = std::exp(quantile * estimate.error / estimate.value);
  return {estimate.value / factor, estimate.value, estimate.value * factor};
}

std::string tone(ScaleRule rule) { return std::to_string(static_cast<int>(rule)); }
std::string plain(const char* kind, ScaleRule rule) { return kind + (" k" + tone(rule)); }
std::string dashed(const char* kind, ScaleRule rule) {
  return plain(kind, rule) + " d" + tone(rule);
}

// The axis of a metric over all panels of a task: whole decades, or from 0 on.
Axis axis_of(const std::vector<const Curve*>& curves, Metric metric) {
  Axis axis;
  axis.logarithmic = info(metric).logarithmic;
  double low = 1e300, high = 0;
  for (const Curve* curve : curves)
    for (const CurvePoint& point : curve->points) {
      low = std::min(low, point[metric].value);
      high = std::max(high, point[metric].value);
    }
  if (!axis.logarithmic) {
    const bool share = metric == Metric::accuracy || metric == Metric::entropy;
    axis.high = share ? 1 : std::max(0.5, std::ceil(high * 2) / 2);
    return axis;
  }
  // Six decades show any collapse; what lies deeper runs along the floor.
  axis.high = std::pow(10, std::ceil(std::log10(high) - 1e-9));
  axis.low = std::max(axis.high * 1e-6, std::pow(10, std::floor(std::log10(std::max(low, 1e-30)))));
  if (axis.low >= axis.high) axis.low = axis.high / 10;
  return axis;
}

std::vector<double> ticks_of(const Axis& axis) {
  std::vector<double> ticks;
  if (axis.logarithmic) {
    const double decades = std::round(std::log10(axis.high / axis.low));
    const double every = std::max(1.0, std::ceil(decades / 3));
    for (double at = axis.high; at > axis.low * 0.999; at /= std::pow(10, every))
      ticks.push_back(at);
    return ticks;
  }
  const double step = report::round_step(axis.high - axis.low, 4);
  for (double at = axis.low; at < axis.high + step / 2; at += step) ticks.push_back(at);
  return ticks;
}

class Grid {
 public:
  Grid(const TrainingRequest& request, const std::vector<Curve>& curves)
      : request_(request),
        curves_(curves),
        columns_(static_cast<double>(request.head_dims.size()) + 1),
        width_(kLeft + columns_ * (kPanel + kGap) - kGap + kRight),
        block_(kBlockHead + kDrawn.size() * (kHeight + kRowGap) + kBlockFoot),
        svg_(width_, kHead + block_ * static_cast<double>(request.tasks.size()), title(),
             description(), std::string(chart_style()) + kStyle) {}

  std::string draw() {
    const double height = kHead + block_ * static_cast<double>(request_.tasks.size());
    svg_.path("page", Path().move(0, 0).horizontal(width_).vertical(height).horizontal(0).close());
    svg_.text("title", 16, 32, Anchor::start, title());
    svg_.text("soft", 16, 54, Anchor::start,
              "One attention layer, " + std::to_string(request_.seeds) + " seeds, " +
                  std::to_string(request_.steps) +
                  " steps of Adam. Lines: means over seeds; bands and bars: 95 % "
                  "confidence. What lies below an axis runs along it.");
    double x = 16;
    for (const ScaleRule rule : request_.rules) {
      svg_.line(dashed("curve", rule), x, 74, x + 34, 74);
      svg_.text(plain("strong", rule), x + 42, 78.5, Anchor::start, rule_label(rule));
      x += 42 + 8.2 * static_cast<double>(rule_label(rule).size()) + 22;
    }
    for (std::size_t i = 0; i < request_.tasks.size(); ++i)
      draw_task(request_.tasks[i], kHead + block_ * static_cast<double>(i));
    return svg_.finish() + '\n';
  }

 private:
  static std::string title() { return "Training an attention layer with different scales"; }
  static std::string rule_label(ScaleRule rule) {
    return (rule == ScaleRule::qk_norm ? "" : "scale ") + std::string(name(rule));
  }

  std::string description() const {
    std::string text = "After the last step, accuracy and loss:";
    for (const Curve& curve : curves_)
      text += ' ' + std::string(name(curve.task)) + ", " + rule_label(curve.rule) +
              ", D = " + std::to_string(curve.head_dim) + ": " +
              to_text(curve.points.back()[Metric::accuracy]) + ", " +
              to_text(curve.points.back()[Metric::loss]) + ';';
    text.back() = '.';
    return text;
  }

  void draw_task(Task task, double top) {
    std::vector<const Curve*> curves;
    for (const Curve& curve : curves_)
      if (curve.task == task) curves.push_back(&curve);
    svg_.text("title", 16, top + 20, Anchor::start,
              task == Task::recall ? "Recall: one key is right" : "Averaging: every key counts");
    for (std::size_t i = 0; i <= request_.head_dims.size(); ++i)
      svg_.text("strong", panel_left(i), top + kBlockHead - 27, Anchor::start,
                i < request_.head_dims.size() ? "D = " + std::to_string(request_.head_dims[i])
                                              : "after the last step");
    for (std::size_t row = 0; row < kDrawn.size(); ++row) {
      const Metric metric = kDrawn[row];
      y_ = axis_of(curves, metric);
      y_.to = top + kBlockHead + static_cast<double>(row) * (kHeight + kRowGap);
      y_.from = y_.to + kHeight;
      svg_.text("soft", kLeft, y_.to - 8, Anchor::start, row_label(metric));
      const bool last = row + 1 == kDrawn.size();
      for (std::size_t i = 0; i < request_.head_dims.size(); ++i) {
        const Axis x{0, static_cast<double>(request_.steps), panel_left(i), panel_left(i) + kPanel};
        frame(x, i == 0);
        if (last) step_ticks(x);
        for (const Curve* curve : curves)
          if (curve->head_dim == request_.head_dims[i]) draw_curve(*curve, metric, x);
      }
      draw_ends(curves, metric, last);
    }
  }

  static std::string row_label(Metric metric) {
    switch (metric) {
      case Metric::loss:
        return "loss, nats";
      case Metric::accuracy:
        return "accuracy";
      case Metric::entropy:
        return "entropy, H / ln n";
      case Metric::transmission:
        return "transmission, root mean square over rows";
      case Metric::middle_transmission:
        return "transmission of the middle row";
      case Metric::query_key_grad:
        return "gradient of q and k";
      default:
        return "gradient of all weights";
    }
  }

  static double panel_left(std::size_t column) {
    return kLeft + static_cast<double>(column) * (kPanel + kGap);
  }

  void frame(const Axis& x, bool labelled) {
    for (const double tick : ticks_of(y_)) {
      svg_.line("grid", x.from, y_.at(tick), x.to, y_.at(tick));
      if (labelled)
        svg_.text("soft", x.from - 7, y_.at(tick) + 4.5, Anchor::end, report::number(tick));
    }
    svg_.line("axis", x.from, y_.from, x.to, y_.from);
  }

  void step_ticks(const Axis& x) {
    for (const double tick : {0.0, x.high / 2, x.high}) {
      svg_.line("axis", x.at(tick), y_.from, x.at(tick), y_.from + 4);
      svg_.text("soft", x.at(tick), y_.from + 18,
                tick <= 0       ? Anchor::start
                : tick < x.high ? Anchor::middle
                                : Anchor::end,
                report::number(tick));
    }
    svg_.text("soft", (x.from + x.to) / 2, y_.from + 36, Anchor::middle, "step");
  }

  void draw_curve(const Curve& curve, Metric metric, const Axis& x) {
    const double quantile = t_quantile(curve.runs.size());
    Path line, band;
    std::vector<Interval> intervals;
    for (const CurvePoint& point : curve.points)
      intervals.push_back(interval_of(point[metric], y_.logarithmic, quantile));
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      const double at = x.at(curve.points[i].step);
      i == 0 ? line.move(at, y_.at(intervals[i].mean)) : line.line(at, y_.at(intervals[i].mean));
      i == 0 ? band.move(at, y_.at(intervals[i].high)) : band.line(at, y_.at(intervals[i].high));
    }
    for (std::size_t i = intervals.size(); i-- > 0;)
      band.line(x.at(curve.points[i].step), y_.at(intervals[i].low));
    svg_.path("band f" + tone(curve.rule), band.close());
    svg_.path(dashed("curve", curve.rule), line);
  }

  // The last column: the end of every curve against head_dim, with the names of the scales.
  void draw_ends(const std::vector<const Curve*>& curves, Metric metric, bool last) {
    const double left = panel_left(request_.head_dims.size());
    const auto [least, most] =
        std::minmax_element(request_.head_dims.begin(), request_.head_dims.end());
    const double low = static_cast<double>(*least), high = static_cast<double>(*most);
    // One head_dim alone stands in the middle.
    Axis x{low, high, left + 12, left + kPanel - 12, true};
    if (low >= high) x = {low / 2, high * 2, left, left + kPanel, true};
    frame({0, 1, left, left + kPanel}, false);
    if (last) {
      for (const std::int64_t head_dim : request_.head_dims) {
        const double at = x.at(static_cast<double>(head_dim));
        svg_.line("axis", at, y_.from, at, y_.from + 4);
        svg_.text("soft", at, y_.from + 18, Anchor::middle, std::to_string(head_dim));
      }
      svg_.text("soft", left + kPanel / 2, y_.from + 36, Anchor::middle, "D");
    }
    std::vector<std::pair<double, ScaleRule>> labels;
    for (std::size_t i = 0; i < request_.rules.size(); ++i) {
      const ScaleRule rule = request_.rules[i];
      // Bars of different scales stand beside one another.
      const double aside =
          4 * (static_cast<double>(i) - (static_cast<double>(request_.rules.size()) - 1) / 2);
      Path line, bars, discs;
      double end = 0;
      for (const Curve* curve : curves) {
        if (curve->rule != rule) continue;
        const Interval interval = interval_of(curve->points.back()[metric], y_.logarithmic,
                                              t_quantile(curve->runs.size()));
        const double at = x.at(static_cast<double>(curve->head_dim)) + aside;
        end = y_.at(interval.mean);
        line.empty() ? line.move(at, end) : line.line(at, end);
        discs.dot(at, end);
        bars.move(at, y_.at(interval.low)).vertical(y_.at(interval.high));
      }
      svg_.path(plain("bar", rule), bars);
      svg_.path(dashed("curve", rule), line);
      svg_.path(plain("disc", rule), discs);
      labels.emplace_back(end, rule);
    }
    constexpr double kStep = 15;
    std::sort(labels.begin(), labels.end());
    for (std::size_t i = 1; i < labels.size(); ++i)
      labels[i].first = std::max(labels[i].first, labels[i - 1].first + kStep);
    double bound = y_.from;
    for (std::size_t i = labels.size(); i-- > 0; bound = labels[i].first - kStep)
      labels[i].first = std::min(labels[i].first, bound);
    for (const auto& [y, rule] : labels)
      svg_.text(plain("strong", rule), left + kPanel + 8, y + 4.5, Anchor::start, name(rule));
  }

  const TrainingRequest& request_;
  const std::vector<Curve>& curves_;
  double columns_, width_, block_;
  Svg svg_;
  Axis y_;
};

}  // namespace

std::string training_chart(const TrainingRequest& request, const std::vector<Curve>& curves) {
  return Grid(request, curves).draw();
}

}  // namespace poise::lab::training
