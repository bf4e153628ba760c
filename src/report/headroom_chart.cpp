// How far the numbers are from the edges of 16-bit formats: one tick per head on a base-2 axis,
// the free bits written between the largest and the edge. Two strips: raw dot products against
// float16's maximum, logits against the sizes at which 16-bit storage loses digits.
// In: read-outs of the model. Out: one figure.
#include "report/charts.h"
#include "report/figure.h"
#include "report/findings.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise::report {
namespace {

constexpr double kLeft = 6, kRight = 334, kFloat16Max = 65504, kLargest = 131072;
constexpr double kBeyond = 1e9;  // an axis that must hold larger numbers ends here
constexpr double kDotsTop = 46, kStrip = 20, kLogitsTop = 148, kHeight = 206;

std::string bits(double headroom) { return fixed(headroom, 1) + " bits"; }

// Ticks of the heads, alarm from `limit` on.
template <class Value>
void draw_ticks(Svg& svg, const Report& report, const Axis& x, double top, double limit,
                Value value) {
  MarkPath calm(report), alarm(report);
  for (const ReportHead& head : report.heads) {
    const double here = value(head);
    if (!std::isfinite(here)) continue;
    (here >= limit ? alarm : calm).tick(x.at(here), top, kStrip);
  }
  svg.path("tick accent", calm.path());
  svg.path("tick alarm", alarm.path());
  svg.line("axis", kLeft, top + kStrip, kRight, top + kStrip);
}

// A mark of the axis with its name above or below the strip.
void draw_mark(Svg& svg, const Axis& x, double top, double value, const std::string& label,
               bool above, Anchor anchor) {
  const double at = x.at(value);
  svg.line("mark-line", at, above ? top - 6 : top, at, above ? top + kStrip : top + kStrip + 6);
  svg.text("", at, above ? top - 10 : top + kStrip + 18, anchor, label);
}

}  // namespace

std::string headroom_figure(const Report& report) {
  const double dot = largest_dot(report);
  if (std::isnan(dot)) return "";
  double logit = 0;
  for (const ReportHead& head : report.heads) {
    if (const double here = head.health.readout.max_abs_logit; std::isfinite(here))
      logit = std::max(logit, here);
  }
  const Thresholds& rules = report.input.thresholds;
  const double headroom =
      dot > 0 ? std::log2(kFloat16Max / dot) : std::numeric_limits<double>::infinity();
  std::string title;
  if (!(headroom > 0)) {
    title = "q·k passes float16’s maximum by " +
            (dot > 0 && std::isfinite(dot) ? bits(-headroom) : "all bits");
  } else if (std::isinf(headroom)) {
    title = "Every q·k is 0: all of float16 is free";
  } else {
    title = bits(headroom) + " of room in float16";
  }
  const double end = std::clamp(2 * std::max(dot, logit), kLargest, kBeyond);
  const Axis x{1, end, kLeft, kRight, true};
  Svg svg("headroom", kHeight, title,
          "Largest |q·k| " + number(dot) + ", float16 ends at 65504. Largest |logit| " +
              number(logit) + ".");
  svg.text("strong", kLeft, 12, Anchor::start, "largest |q·k| of each head");
  const double edge = x.at(kFloat16Max);
  svg.path("zone", Path()
                       .move(edge, kDotsTop)
                       .horizontal(kRight)
                       .vertical(kDotsTop + kStrip)
                       .horizontal(edge)
                       .close());
  const auto dot_of = [](const ReportHead& h) {
    return std::max(1.0, h.health.readout.max_abs_dot);
  };
  draw_ticks(svg, report, x, kDotsTop, rules.f16_warn, [&](const ReportHead& h) {
    return std::isnan(h.health.readout.max_abs_dot) ? std::nan("") : dot_of(h);
  });
  draw_mark(svg, x, kDotsTop, kFloat16Max, "f16 max 65 504", false, Anchor::end);
  const double last = x.at(std::max(1.0, dot));
  svg.text("s", kLeft, kDotsTop + kStrip + 18, Anchor::start, "1");
  if (headroom > 0 && std::isfinite(headroom)) {
    svg.line("leader dotted", last + 3, kDotsTop + kStrip / 2, edge - 3, kDotsTop + kStrip / 2);
    svg.text("strong", (last + edge) / 2, kDotsTop - 6, Anchor::middle, bits(headroom) + " free");
  }
  if (last > kLeft + 30 && last < edge - 110)
    svg.text("strong", last, kDotsTop + kStrip + 18, Anchor::middle, number(dot));

  svg.text("strong", kLeft, kLogitsTop - 36, Anchor::start,
           "largest |logit|, if stored in 16 bits");
  draw_ticks(svg, report, x, kLogitsTop, rules.bf16_score_warn, [](const ReportHead& h) {
    const double here = h.health.readout.max_abs_logit;
    return std::isfinite(here) ? std::max(1.0, here) : std::nan("");
  });
  draw_mark(svg, x, kLogitsTop, rules.bf16_score_warn, "bf16 warn " + number(rules.bf16_score_warn),
            true, Anchor::end);
  draw_mark(svg, x, kLogitsTop, rules.bf16_score_bad, "bad " + number(rules.bf16_score_bad), true,
            Anchor::start);
  draw_mark(svg, x, kLogitsTop, rules.f16_score_warn, "f16 warn " + number(rules.f16_score_warn),
            false, Anchor::end);
  draw_mark(svg, x, kLogitsTop, rules.f16_score_bad, "bad " + number(rules.f16_score_bad), false,
            Anchor::start);
  const auto past = static_cast<std::int64_t>(
      std::count_if(report.heads.begin(), report.heads.end(), [&](const ReportHead& h) {
        return h.health.readout.max_abs_logit >= rules.bf16_score_warn;
      }));
  if (past > 0) {
    svg.text("al", kRight, kLogitsTop - 10, Anchor::end,
             plural(past, "head") + " past " + number(rules.bf16_score_warn));
  }
  return figure_html("headroom-figure", title,
                     "Base-2 axis from 1, one tick per head; smaller ones stand at 1. Shaded: "
                     "infinity in float16.",
                     svg.finish());
}

}  // namespace poise::report
