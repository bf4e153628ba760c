// What measuring costs: attention of all layers without and with statistics, as two bars on one
// scale. In: times of the model. Out: one figure; empty where nothing was timed.
#include "report/charts.h"
#include "report/figure.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>

namespace poise::report {

std::string cost_figure(const Report& report) {
  const double plain = report.input.attention_ms, percent_more = report.input.measuring_percent;
  if (!(plain > 0) || !std::isfinite(plain) || !std::isfinite(percent_more)) return "";
  const double measured = plain * std::max(0.0, 1 + percent_more / 100);
  constexpr double kLeft = 4, kRight = 334, kHeight = 92, kBar = 12;
  const Axis x{0, std::max(plain, measured), kLeft, kRight};
  const std::string more = number(std::abs(measured - plain)) + " ms";
  const bool slower = measured >= plain;
  const std::string title = std::abs(percent_more) < 1
                                ? "Measuring costs less than 1 % of the attention"
                                : "Measuring " + std::string(slower ? "adds " : "took off ") +
                                      more + " to " + number(plain) + " ms of attention";
  Svg svg("cost-chart", kHeight, title,
          "Attention " + number(plain) + " ms, with statistics " + number(measured) + " ms.");
  const auto bar = [&](const char* style, double y, double value, const std::string& label) {
    svg.text("", kLeft, y - 5, Anchor::start, label);
    svg.path(
        style,
        Path().move(kLeft, y).horizontal(x.at(value)).vertical(y + kBar).horizontal(kLeft).close());
  };
  bar("bar", 20, plain, "attention alone, " + number(plain) + " ms");
  bar("bar accent", 64, measured,
      "with statistics at level " + std::string(name(report.level)) + ", " + number(measured) +
          " ms");
  return figure_html("cost-figure", title,
                     "Median time of all layers, runs with and without statistics alternating. The "
                     "scores are summed up while they are in registers: the fewer keys and the "
                     "smaller head_dim, the "
                     "larger the share.",
                     svg.finish());
}

}  // namespace poise::report
