// What backward() measured beside what the Jacobians promise: root mean square transmission per
// head against its expectation for independent gradients, log-log, diagonal = as expected. A head
// far below the diagonal is sent gradients that its softmax cannot see.
// In: read-outs of the model. Out: one figure; empty where backward measured nothing.
#include "report/charts.h"
#include "report/figure.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise::report {
namespace {

constexpr double kLeft = 44, kRight = 330, kTop = 34, kBottom = 256, kHeight = 292;

bool drawable(const Readout& r) { return r.transmission > 0 && r.expected_transmission > 0; }

}  // namespace

std::string transmission_figure(const Report& report) {
  double low = std::numeric_limits<double>::infinity(), high = 0, least = low;
  const ReportHead* lowest = nullptr;
  std::int64_t heads = 0, short_of = 0;
  const double limit = report.input.thresholds.dead_transmission;
  for (const ReportHead& head : report.heads) {
    const Readout& r = head.health.readout;
    if (!drawable(r)) continue;
    ++heads;
    low = std::min({low, r.transmission, r.expected_transmission});
    high = std::max({high, r.transmission, r.expected_transmission});
    const double ratio = r.transmission / r.expected_transmission;
    short_of += ratio < limit ? 1 : 0;
    if (ratio < least) {
      least = ratio;
      lowest = &head;
    }
  }
  if (heads == 0) return "";
  low = std::pow(10, std::floor(std::log10(low)));
  high = std::pow(10, std::ceil(std::log10(high) + 1e-9));
  const Axis x{low, high, kLeft, kRight, true}, y{low, high, kBottom, kTop, true};
  const std::string title =
      short_of > 0
          ? plural(short_of, "head") + agree(short_of, " passes", " pass") + " less than " +
                number(limit) + " of what the Jacobian would"
          : (heads == 1 ? std::string("The head passes") : "Every head passes") + " at least " +
                number(std::floor(least * 100) / 100) + " of what its Jacobian would";
  Svg svg("transmission-chart", kHeight, title,
          plural(heads, "head") + ". The lowest share is " + number(least) + " in " + lowest->name +
              ".");
  draw_levels(svg, y, kLeft, kRight, decades(y));
  draw_places(svg, x, kBottom, decades(x));
  svg.line("axis", kLeft, kBottom, kRight, kTop);
  svg.line("limit", x.at(low / limit), kBottom, kRight, y.at(high * limit));
  svg.text("s", 0, 11, Anchor::start, "measured ‖dS‖ / ‖dP − mean‖");
  svg.text("s", (kLeft + kRight) / 2, kHeight - 4, Anchor::middle, "expected ‖J‖/√(n−1)");
  MarkPath calm(report), alarm(report);
  for (const ReportHead& head : report.heads) {
    const Readout& r = head.health.readout;
    if (!drawable(r)) continue;
    const bool bad = r.transmission < limit * r.expected_transmission;
    (bad ? alarm : calm).dot(x.at(r.expected_transmission), y.at(r.transmission));
  }
  svg.path("disc accent", calm.path());
  svg.path("disc alarm", alarm.path());
  const double at = x.at(lowest->health.readout.expected_transmission);
  const bool leftwards = at > (kLeft + kRight) / 2;
  svg.text(short_of > 0 ? "strong al" : "strong", leftwards ? at - 7 : at + 7,
           y.at(lowest->health.readout.transmission) + 14, leftwards ? Anchor::end : Anchor::start,
           lowest->name);
  return figure_html("transmission", title,
                     "Root mean square over rows, as backward measured it. On the diagonal as "
                     "independent gradients would have it; below the dashed line the values hide "
                     "what the softmax would pass.",
                     svg.finish());
}

}  // namespace poise::report
