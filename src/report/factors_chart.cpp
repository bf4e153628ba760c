// Why scores are wide, per head: the factor that the sizes of q and k make of the textbook variance
// against the factor that their shared directions add, both axes logarithmic. Which of the two it
// is decides the remedy: QK-norm for norms, another scale or a learned temperature for alignment.
// In: expectations of the model. Out: one figure; empty where moments are unknown.
#include "report/charts.h"
#include "report/figure.h"
#include "report/variance.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>

namespace poise::report {
namespace {

constexpr double kLeft = 44, kRight = 330, kTop = 34, kBottom = 256, kHeight = 292;

bool drawable(const Expectation& e) {
  return e.moments_known && e.norm_factor > 0 && e.alignment_factor > 0 &&
         std::isfinite(e.norm_factor) && std::isfinite(e.alignment_factor);
}

}  // namespace

std::string factors_figure(const Report& report) {
  double low = 1, high = 10;
  std::int64_t heads = 0, norms_first = 0;
  const ReportHead* widest = nullptr;
  for (const ReportHead& head : report.heads) {
    const Expectation& e = head.health.expectation;
    if (!drawable(e)) continue;
    ++heads;
    norms_first += e.norm_factor >= e.alignment_factor ? 1 : 0;
    low = std::min({low, e.norm_factor, e.alignment_factor});
    high = std::max({high, e.norm_factor, e.alignment_factor});
    const auto product = [](const Expectation& of) { return of.norm_factor * of.alignment_factor; };
    if (!widest || product(e) > product(widest->health.expectation)) widest = &head;
  }
  if (heads == 0) return "";
  low = std::pow(10, std::floor(std::log10(low) + 1e-9));
  high = std::pow(10, std::ceil(std::log10(high) - 1e-9));
  const Axis x{low, high, kLeft, kRight, true}, y{low, high, kBottom, kTop, true};
  const Expectation& top = widest->health.expectation;
  const std::string title = "Norms make " + widest->name + " " + times(top.norm_factor) +
                            ", alignment " + times(top.alignment_factor);
  Svg svg("factors-chart", kHeight, title,
          plural(norms_first, "head") + " of " + std::to_string(heads) +
              " have more from norms than from alignment.");
  draw_levels(svg, y, kLeft, kRight, decades(y));
  draw_places(svg, x, kBottom, decades(x));
  svg.line("axis", kLeft, kBottom, kRight, kTop);
  svg.line("leader dotted", x.at(1), kTop, x.at(1), kBottom);
  svg.line("leader dotted", kLeft, y.at(1), kRight, y.at(1));
  svg.text("s", 0, 11, Anchor::start, "alignment, factor on the variance");
  svg.text("s", (kLeft + kRight) / 2, kHeight - 4, Anchor::middle, "norms, factor on the variance");
  MarkPath calm(report), alarm(report);
  for (const ReportHead& head : report.heads) {
    const Expectation& e = head.health.expectation;
    if (!drawable(e)) continue;
    (alarming(head) ? alarm : calm).dot(x.at(e.norm_factor), y.at(e.alignment_factor));
  }
  svg.path("disc everyone", calm.path());
  svg.path("disc alarm", alarm.path());
  const double at = x.at(top.norm_factor);
  const bool leftwards = at > (kLeft + kRight) / 2;
  svg.text(alarming(*widest) ? "strong al" : "strong", leftwards ? at - 8 : at + 8,
           y.at(top.alignment_factor) - 8, leftwards ? Anchor::end : Anchor::start, widest->name);
  return figure_html("factors", title,
                     "One dot per head; the dotted lines are the textbook, " +
                         plural(norms_first, "head") + " of " + std::to_string(heads) +
                         " below the diagonal owe more to norms.",
                     svg.finish());
}

}  // namespace poise::report
