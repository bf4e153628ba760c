// Histograms of the scores of one head on a logarithmic axis, in percent of scores per unit, so
// that the standard normal is a parabola whatever the width of the bins. Raw products q.k are the
// scaled scores over the scale: the same counts, in bins as much wider. In: histograms of the
// model. Out: figures. The figures of scaled scores share their axes, so widths compare.
#include "report/charts.h"
#include "report/figure.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace poise::report {
namespace {

constexpr double kLeft = 32, kRight = 334, kTop = 24, kBottom = 182, kHeight = 222;
constexpr int kTicks = 5;           // of the horizontal axis, about
constexpr double kDecades = 4;      // of the vertical axis at most
constexpr double kNormalReach = 4;  // the axis always shows the standard normal to 4 sigma

struct Frame {
  Axis x, y;
};

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Percent of all scores per unit of score in one bin.
double density(const HeadHistogram& h, std::size_t bin) {
  return 100 * static_cast<double>(h.counts[bin]) / static_cast<double>(h.total) / h.width;
}

double normal_density(double score) {
  return 100 * std::exp(-score * score / 2) / std::sqrt(2 * std::numbers::pi);
}

Frame frame_of(const std::vector<const HeadHistogram*>& histograms) {
  double low = -kNormalReach, high = kNormalReach, peak = normal_density(0), floor = peak;
  for (const HeadHistogram* histogram : histograms) {
    const HeadHistogram& h = *histogram;
    for (std::size_t bin = 0; bin < h.counts.size(); ++bin) {
      if (h.counts[bin] <= 0) continue;
      low = std::min(low, h.low + static_cast<double>(bin) * h.width);
      high = std::max(high, h.low + static_cast<double>(bin + 1) * h.width);
      peak = std::max(peak, density(h, bin));
      floor = std::min(floor, density(h, bin));
    }
  }
  const double step = round_step(high - low, kTicks);
  low = std::floor(low / step) * step;
  high = std::ceil(high / step) * step;
  const double top = 1.5 * peak;
  const double bottom = std::pow(10, std::floor(std::log10(floor)));
  return {{low, high, kLeft, kRight},
          {std::max(bottom, top * std::pow(10, -kDecades)), top, kBottom, kTop, true}};
}

Path steps(const HeadHistogram& h, const Frame& frame) {
  Path path;
  bool open = false;
  for (std::size_t bin = 0; bin < h.counts.size(); ++bin) {
    const double left = frame.x.at(h.low + static_cast<double>(bin) * h.width);
    const double right = frame.x.at(h.low + static_cast<double>(bin + 1) * h.width);
    if (h.counts[bin] > 0) {
      if (!open) path.move(left, kBottom);
      path.vertical(frame.y.at(density(h, bin))).horizontal(right);
      open = true;
    } else if (open) {
      path.vertical(kBottom).close();
      open = false;
    }
  }
  if (open) path.vertical(kBottom).close();
  return path;
}

Path normal_curve(const Frame& frame) {
  // Where the normal meets the bottom of the axis: exp(-s^2/2) = bottom / peak.
  const double reach = std::sqrt(2 * std::log(normal_density(0) / frame.y.low));
  constexpr int kPoints = 48;
  Path path;
  for (int i = 0; i <= kPoints; ++i) {
    const double score = reach * (2.0 * i / kPoints - 1);
    const double x = frame.x.at(score), y = frame.y.at(normal_density(score));
    if (i == 0) {
      path.move(x, y);
    } else {
      path.line(x, y);
    }
  }
  return path;
}

void draw_axes(Svg& svg, const Frame& frame) {
  for (double tick = 1e-6; tick < frame.y.high; tick *= 10) {
    if (tick < frame.y.low * 1.5) continue;
    const double y = frame.y.at(tick);
    svg.line("grid", kLeft, y, kRight, y);
    svg.text("s", kLeft - 4, y + 4, Anchor::end, number(tick));
  }
  svg.line("axis", kLeft, kBottom, kRight, kBottom);
  const double step = round_step(frame.x.high - frame.x.low, kTicks);
  for (double tick = std::ceil(frame.x.low / step) * step; tick <= frame.x.high + step * 1e-6;
       tick += step) {
    const double x = frame.x.at(tick);
    svg.line("axis", x, kBottom, x, kBottom + 4);
    svg.text("s", x, kBottom + 16, x > kRight - 12 ? Anchor::end : Anchor::middle,
             number(std::round(tick / step) * step));
  }
}

// One histogram to draw and what to say of it.
struct Picture {
  const char* id;
  const HeadHistogram* histogram;
  double sigma;
  bool alarm;
  std::string title, reading, axis;
};

std::string figure(const Picture& picture, const Frame& frame) {
  const HeadHistogram& h = *picture.histogram;
  Svg svg(picture.id, kHeight, picture.title,
          "Histogram on a logarithmic vertical axis. Within-row standard deviation " +
              spread(picture.sigma) + ". The standard normal lies between −4 and 4.");
  draw_axes(svg, frame);
  svg.path(picture.alarm ? "area alarm" : "area accent", steps(h, frame));
  svg.path("normal", normal_curve(frame));
  const double peak_x = frame.x.at(0);
  const bool room_left = peak_x > 165;  // for "% of scores" and the label
  const double label_x = room_left ? peak_x - 10 : peak_x + 10;
  svg.text("", label_x, 11, room_left ? Anchor::end : Anchor::start, "standard normal");
  svg.line("leader", label_x + (room_left ? 2 : -2), 8, peak_x, frame.y.at(normal_density(0)));
  svg.text("s", 0, 11, Anchor::start, "% of scores");
  svg.text(picture.alarm ? "strong al" : "strong ac", kRight, 11, Anchor::end,
           "σ " + spread(picture.sigma));
  svg.text("s", (kLeft + kRight) / 2, kHeight - 6, Anchor::middle, picture.axis);
  std::string reading = picture.reading;
  if (h.below + h.above > 0) {
    reading += " " +
               percent_sign(static_cast<double>(h.below + h.above) / static_cast<double>(h.total)) +
               " of its scores lie outside the bins.";
  }
  return figure_html("", picture.title, reading, svg.finish());
}

bool usual_scale(const ReportHead& head, std::int64_t head_dim) {
  return head_dim > 0 && std::abs(head.scale * std::sqrt(static_cast<double>(head_dim)) - 1) < 1e-3;
}

std::string scaled_axis(const ReportHead& head, std::int64_t head_dim) {
  return usual_scale(head, head_dim) ? "scaled score q·k / √" + std::to_string(head_dim)
                                     : "scaled score " + number(head.scale) + " q·k";
}

// What the scale did: "Divided by √32, L0 H3 is 15.1 times as wide as normal".
std::string statement(const ReportHead& head, std::int64_t head_dim) {
  const double sigma = head.health.readout.sigma;
  const bool near = sigma > 0.8 && sigma < 1.25;
  const std::string width =
      (near ? "about" : spread(sigma) + " times") + std::string(" as wide as normal");
  if (head.scale == 1) return "Undivided, " + head.name + " is " + width;
  const std::string how = usual_scale(head, head_dim) ? "Divided by √" + std::to_string(head_dim)
                                                      : "Times " + number(head.scale);
  return how + ", " + head.name + " is " + width;
}

// The same counts in units of q.k; without counts when the scale leaves no such units.
HeadHistogram raw_of(const ReportHead& head) {
  HeadHistogram raw = head.histogram;
  if (!(head.scale > 0)) return {};
  raw.low /= head.scale;
  raw.width /= head.scale;
  return raw;
}

std::string raw_figure(const ReportHead& head, bool alarm, std::int64_t head_dim) {
  const HeadHistogram raw = raw_of(head);
  if (raw.counts.empty() || head.scale == 1) return "";  // raw and scaled are one
  const double sigma = head.health.readout.sigma / head.scale;
  std::string reading = "Raw products of the same head, the same counts.";
  if (head_dim > 0) {
    reading += " Independent q and k of size 1 would have σ √" + std::to_string(head_dim) + " = " +
               number(std::sqrt(static_cast<double>(head_dim))) + ".";
  }
  return figure({"hist-raw", &raw, sigma, alarm,
                 "Before the scale, " + head.name + " spreads over σ " + spread(sigma), reading,
                 "raw product q·k"},
                frame_of({&raw}));
}

std::string flags_of(const ReportHead& head) {
  const Severity severity = head.health.severity;
  if (severity == Severity::healthy) return "The widest head, healthy.";
  std::string text = std::string(mark(severity)) + " ";
  for (std::size_t i = 0; i < head.health.flags.size(); ++i) {
    const Flag& flag = head.health.flags[i];
    text += (i > 0 ? " · " : "") + std::string(name(flag.kind)) + " (" + name(flag.severity) + ")";
  }
  return text + ".";
}

}  // namespace

std::string histogram_figures(const Report& report) {
  const auto with_histogram = [&](int position) -> const ReportHead* {
    if (position < 0) return nullptr;
    const ReportHead& head = report.heads[index(position)];
    return head.histogram.counts.empty() ? nullptr : &head;
  };
  const ReportHead* first = with_histogram(report.worst_head);
  const ReportHead* healthy = with_histogram(report.healthy_head);
  if (first == healthy) first = nullptr;
  if (!first && !healthy) return "";
  std::vector<const HeadHistogram*> shown;
  if (first) shown.push_back(&first->histogram);
  if (healthy) shown.push_back(&healthy->histogram);
  const Frame frame = frame_of(shown);
  const auto scaled = [&](const char* id, const ReportHead& head, bool alarm,
                          const std::string& reading) {
    return figure({id, &head.histogram, head.health.readout.sigma, alarm,
                   statement(head, report.head_dim), reading, scaled_axis(head, report.head_dim)},
                  frame);
  };
  const ReportHead& raw = first ? *first : *healthy;
  std::string out = raw_figure(raw, alarming(raw), report.head_dim);
  if (first) out += scaled("hist-first", *first, alarming(*first), flags_of(*first));
  if (healthy) {
    out += scaled("hist-healthy", *healthy, false,
                  first ? "The healthy head nearest to σ = 1, on the same axes."
                        : "The healthy head nearest to σ = 1.");
  }
  return out;
}

}  // namespace poise::report
