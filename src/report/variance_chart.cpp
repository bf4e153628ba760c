// Measured variance of q.k (vertical) against three predictions (horizontal), one mark per head and
// prediction, both axes logarithmic: on the diagonal a prediction is exact.
// In: expectations of the model. Out: one figure.
#include "report/charts.h"
#include "report/figure.h"
#include "report/findings.h"
#include "report/variance.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise::report {
namespace {

constexpr double kLeft = 44, kRight = 330, kTop = 34, kBottom = 256, kAxisTitle = 290;
constexpr double kKeyTop = 314, kKeyStep = 17;  // base lines of the key below the axes

bool drawable(const Expectation& e) {
  return std::isfinite(e.measured) && e.measured > 0 && e.iid > 0;
}

// Both axes cover the same whole decades.
struct Frame {
  Axis x, y;
};
Frame frame_of(const Report& report) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const ReportHead& head : report.heads) {
    const Expectation& e = head.health.expectation;
    if (!drawable(e)) continue;
    for (const double v : {e.measured, e.iid, e.norms, e.full}) {
      if (!std::isfinite(v) || v <= 0) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  low = std::pow(10, std::floor(std::log10(low)));
  high = std::pow(10, std::ceil(std::log10(high) + 1e-9));
  return {{low, high, kLeft, kRight, true}, {low, high, kBottom, kTop, true}};
}

void draw_axes(Svg& svg, const Frame& frame) {
  draw_levels(svg, frame.y, kLeft, kRight, decades(frame.y));
  draw_places(svg, frame.x, kBottom, decades(frame.x));
  svg.line("axis", kLeft, kBottom, kRight, kTop);
  svg.text("s", 0, 11, Anchor::start, "measured");
  svg.text("s", (kLeft + kRight) / 2, kAxisTitle, Anchor::middle,
           "predicted variance of q·k within a row");
}

struct Marks {
  explicit Marks(const Report& report)
      : textbook(report), norms(report), full(report), full_alarm(report) {}
  MarkPath textbook, norms, full, full_alarm;
};
Marks marks_of(const Report& report, const Frame& frame) {
  Marks marks(report);
  for (const ReportHead& head : report.heads) {
    const Expectation& e = head.health.expectation;
    if (!drawable(e)) continue;
    const double y = frame.y.at(e.measured);
    marks.textbook.dash(frame.x.at(e.iid) - 3, y, 6);
    if (!e.moments_known || !(e.norms > 0) || !(e.full > 0)) continue;
    marks.norms.dot(frame.x.at(e.norms), y);
    const bool saturated = find_flag(head, VerdictKind::saturated) != nullptr;
    (saturated ? marks.full_alarm : marks.full).dot(frame.x.at(e.full), y);
  }
  return marks;
}

// One line for each kind of mark that was drawn.
int key_entries(const Marks& marks) {
  int lines = 0;
  for (const MarkPath* kind : {&marks.textbook, &marks.norms, &marks.full, &marks.full_alarm}) {
    lines += kind->empty() ? 0 : 1;
  }
  return lines;
}

std::string range(double low, double high) {
  const std::string a = fixed(low, 1), b = fixed(high, 1);
  return a == b ? a : a + "–" + b;
}

// The name of the head with the largest variance, above its marks, where no other mark can be.
void draw_name(Svg& svg, const Report& report, const Frame& frame) {
  const ReportHead* top = nullptr;
  for (const ReportHead& head : report.heads) {
    const Expectation& e = head.health.expectation;
    if (!drawable(e)) continue;
    if (!top || e.measured > top->health.expectation.measured) top = &head;
  }
  const Expectation& e = top->health.expectation;
  const bool alarm = top->health.severity >= Severity::warn;
  const double x = frame.x.at(e.moments_known && e.full > 0 ? e.full : e.iid);
  const bool leftwards = x > (kLeft + kRight) / 2;
  svg.text(alarm ? "strong al" : "strong", leftwards ? x + 3 : x - 3, frame.y.at(e.measured) - 8,
           leftwards ? Anchor::end : Anchor::start, top->name);
}

// What each kind of mark is and how good that prediction is. Below the axes: labels between the
// marks would cover some of them for some data.
void draw_key(Svg& svg, const Report& report, const Marks& marks, const VarianceSummary& summary) {
  constexpr double kSample = kLeft + 4, kName = kLeft + 16, kText = kLeft + 160;
  double y = kKeyTop;
  const auto entry = [&](const char* sample_class, const Path& sample, const char* name_class,
                         const char* name, const std::string& text) {
    svg.path(sample_class, sample);
    svg.text(name_class, kName, y, Anchor::start, name);
    svg.text("", kText, y, Anchor::start, text);
    y += kKeyStep;
  };
  const auto dot = [&] { return Path().dot(kSample, y - 4); };
  entry("tick", Path().dash(kSample - 3, y - 4, 6), "strong", "textbook",
        report.head_dim > 0 ? "always " + std::to_string(report.head_dim) : "D");
  if (marks.norms.empty()) return;
  entry("disc everyone", dot(), "strong", "norms only",
        summary.norms_short_high >= 1.05
            ? range(summary.norms_short_low, summary.norms_short_high) + "× short"
            : "as good as full");
  const std::string error =
      summary.full_error < 0.01 ? "exact" : "within " + percent_sign(summary.full_error);
  if (!marks.full.empty()) entry("disc accent", dot(), "strong ac", "full moments", error);
  if (!marks.full_alarm.empty()) {
    entry("disc alarm", dot(), "strong al", "full, saturated", marks.full.empty() ? error : "");
  }
}

}  // namespace

std::string variance_figure(const Report& report) {
  const bool some = std::any_of(report.heads.begin(), report.heads.end(),
                                [](const ReportHead& h) { return drawable(h.health.expectation); });
  if (!some) return "";
  const VarianceSummary summary = summarise_variance(report);
  const Frame frame = frame_of(report);
  const Expectation& e = report.heads[static_cast<std::size_t>(summary.widest)].health.expectation;
  std::string description = plural(summary.heads, "head") + ". The textbook predicts " +
                            number(e.iid) + "; the widest head measures " + number(e.measured) +
                            ".";
  std::string reading;
  if (summary.with_moments > 0) {
    reading =
        "Each head three times: textbook D, norms only, full moments. On the diagonal a "
        "prediction is exact.";
    description +=
        " Norms alone predict " + number(e.norms) + ", the full moments " + number(e.full) + ".";
  } else {
    reading =
        "Each head against the textbook D. On the diagonal it would be exact; the moments of "
        "q and k were not measured.";
  }
  const Marks marks = marks_of(report, frame);
  Svg svg("variance-chart", kKeyTop + (key_entries(marks) - 1) * kKeyStep + 6,
          "Measured variance of q·k against its predictions", description);
  draw_axes(svg, frame);
  svg.path("tick", marks.textbook.path());
  svg.path("disc everyone", marks.norms.path());
  svg.path("disc accent", marks.full.path());
  svg.path("disc alarm", marks.full_alarm.path());
  draw_name(svg, report, frame);
  draw_key(svg, report, marks, summary);
  return figure_html("variance", variance_title(report, summary), reading, svg.finish());
}

}  // namespace poise::report
