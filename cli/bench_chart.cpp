// The chart of `poise bench`: a bar per shape in percent of its limit, the limit as a line.
//
// In: a BenchResult. Out: one SVG file that refers to nothing outside itself and follows the
// reader's preference for light or dark. Bars are medians; a tick marks the best run.
// Must not happen here: a figure that the table does not have.
#include "bench_faces.h"

#include <algorithm>
#include <cmath>

#include "report/svg.h"

namespace poise::cli {
namespace {

using report::Anchor;
using report::Axis;
using report::Path;
using report::Svg;

// Text has a contrast of at least 7 : 1 on its background, bars at least 5 : 1. What bounds a shape
// is told by the unit beside its bar, not by the colour alone.
constexpr const char* kStyle = R"css(
svg { color-scheme: light dark; --bg: #ffffff; --ink: #16191d; --soft: #4a5159; --grid: #d9dde1;
  --compute: #0b5cad; --memory: #a2521b; --limit: #16191d }
@media (prefers-color-scheme: dark) { svg { --bg: #121518; --ink: #e8eaed; --soft: #b3bac2;
  --grid: #343a41; --compute: #5b9fe3; --memory: #e0925a; --limit: #e8eaed } }
text { fill: var(--ink); font: 13px -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  font-variant-numeric: tabular-nums }
.title { font-size: 17px; font-weight: 650 }
.strong { font-weight: 650 }
.soft { fill: var(--soft); font-size: 12px }
.name { font: 12.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
path { fill: none; stroke: none }
.page { fill: var(--bg) }
.grid { stroke: var(--grid) }
.compute { fill: var(--compute) }
.memory { fill: var(--memory) }
.best { stroke: var(--ink); stroke-width: 2 }
.limit { stroke: var(--limit); stroke-width: 2 }
)css";

constexpr double kMargin = 20, kRow = 26, kBar = 16, kHead = 112, kFoot = 30;
constexpr double kNameUnits = 7.8;  // per character of a name
constexpr double kBars = 420;       // 0 ... 100 %
// Where the columns of words end, from the end of the axis.
constexpr double kPercentEnd = 62, kRateEnd = 180, kTimeEnd = 280;

Path box(double x, double y, double width, double height) {
  Path path;
  path.move(x, y).horizontal(x + width).vertical(y + height).horizontal(x).close();
  return path;
}

struct Words {
  std::string percent, rate, time;
};

Words words(const BenchCase& bench, const BenchFigures& figures) {
  const bool memory = figures.memory_bound();
  const double work = memory ? static_cast<double>(bench.kv_bytes()) : bench.flops();
  return {fixed(figures.nearer().percent_median, 1) + " %",
          digits(work / figures.median_s / 1e9) + (memory ? " GB/s read" : " GFLOP/s"),
          digits(1e3 * figures.median_s) + " ms"};
}

std::string description(const BenchResult& result) {
  std::string text = "Percent of the limit, median:";
  for (std::size_t i = 0; i < result.figures.size(); ++i) {
    const Words said = words(result.cases[i], result.figures[i]);
    text += (i == 0 ? " " : "; ") + result.cases[i].name() + ' ' + said.percent + ", " + said.rate +
            ", " + said.time;
  }
  return text + '.';
}

}  // namespace

std::string bench_chart(const BenchResult& result) {
  std::size_t longest = 0;
  double most = 100;
  for (std::size_t i = 0; i < result.figures.size(); ++i) {
    longest = std::max(longest, result.cases[i].name().size());
    // A noisy machine may time a case faster than its limit; the bar must still end in the picture.
    for (const double percent :
         {result.figures[i].nearer().percent_best, result.figures[i].nearer().percent_median})
      if (std::isfinite(percent)) most = std::max(most, percent);
  }
  const double left = kMargin + kNameUnits * static_cast<double>(longest) + 12;
  const Axis axis{0, most, left, left + kBars * most / 100};
  const double bottom = kHead + kRow * static_cast<double>(result.figures.size());
  const double width = axis.to + kTimeEnd + kMargin, height = bottom + kFoot;
  const std::string title = "poise: percent of this machine's limit";
  Svg svg(width, height, title, description(result), kStyle);
  svg.path("page", box(0, 0, width, height));
  svg.text("title", kMargin, 32, Anchor::start, title);
  svg.text("soft", kMargin, 52, Anchor::start,
           cpu_text(result) + ", " + threads_text(result.settings.threads) +
               "; poise " POISE_VERSION ", " + compiler_text() + ", " + result.date);
  svg.path("compute", box(kMargin, 64, 11, 11));
  svg.text("soft", kMargin + 17, 74, Anchor::start, "of multiply-adds");
  svg.path("memory", box(kMargin + 124, 64, 11, 11));
  svg.text("soft", kMargin + 141, 74, Anchor::start,
           "of reading the keys and values; bars are medians, the tick is the best run");

  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = axis.at(percent);
    if (percent < 100) svg.line("grid", x, kHead - 8, x, bottom);
    svg.text("soft", x, kHead - 14, Anchor::middle,
             percent < 100 ? std::to_string(percent) : "100 % = limit");
  }
  for (std::size_t i = 0; i < result.figures.size(); ++i) {
    const BenchFigures& figures = result.figures[i];
    const double top = kHead + kRow * static_cast<double>(i), base = top + kRow / 2 + 4.5;
    const double end = axis.at(figures.nearer().percent_median);
    const double best = axis.at(figures.nearer().percent_best);
    svg.text("name", left - 12, base, Anchor::end, result.cases[i].name());
    svg.path(figures.memory_bound() ? "memory" : "compute",
             box(left, top + (kRow - kBar) / 2, end - left, kBar));
    svg.line("best", best, top + 3, best, top + kRow - 3);
    const Words said = words(result.cases[i], figures);
    svg.text("strong", axis.to + kPercentEnd, base, Anchor::end, said.percent);
    svg.text("", axis.to + kRateEnd, base, Anchor::end, said.rate);
    svg.text("", axis.to + kTimeEnd, base, Anchor::end, said.time);
  }
  svg.line("limit", axis.at(100), kHead - 8, axis.at(100), bottom);
  svg.text("soft", kMargin, bottom + 20, Anchor::start, result.command);
  return svg.finish() + '\n';
}

}  // namespace poise::cli
