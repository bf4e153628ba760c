// The layer x head grid: a table of links to the rows of the table of heads. Tint is the value,
// the mark is the verdict; five metrics are in every cell and radio buttons choose one by CSS
// alone. In: the model. Out: markup of about 250 bytes a head.
#include "report/columns.h"
#include "report/encoding.h"
#include "report/grid.h"
#include "report/html_parts.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace poise::report {
namespace {

// From this many heads on the cells keep a width of their own and the grid scrolls sideways; from
// so many layers on it scrolls down as well, under its own head line.
constexpr int kFittingHeads = 10;
constexpr int kFittingLayers = 30;
constexpr int kWidestCellPixels = 70, kLabelPixels = 44, kLongLabelPixels = 134;
constexpr int kShortLabel = 6;  // columns that fit into kLabelPixels
constexpr int kTints = 20;      // steps of the tint, the classes "Ab" to "Au" of metric 0

std::vector<GridMetric> metrics_of(const Report& report) {
  std::vector<GridMetric> shown;
  for (const GridMetric metric : kAllMetrics) {
    if (measured(report, metric)) shown.push_back(metric);
  }
  return shown;
}

// The class that tints a cell for metric number `metric`: "Ak" = 10 twentieths of metric 0.
std::string tint_class(std::size_t metric, int step) {
  return {static_cast<char>('A' + metric), static_cast<char>('a' + step)};
}
int tint(double trouble) {
  return std::isnan(trouble)
             ? 0
             : static_cast<int>(std::lround(std::clamp(trouble, 0.0, 1.0) * kTints));
}

std::string cell(const ReportHead& head, std::size_t position,
                 const std::vector<GridMetric>& metrics) {
  std::string classes = mark_class(head.health.severity), values;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const int step = tint(head.trouble[static_cast<std::size_t>(metrics[i])]);
    if (step > 0) classes += (classes.empty() ? "" : " ") + tint_class(i, step);
    values += "<b>" + html_escape(value_text(head.health.readout, metrics[i])) + "</b>";
  }
  const Severity severity = head.health.severity;
  std::string spoken = html_escape(head.name) + ", ";
  if (severity >= Severity::watch) spoken += std::string(name(severity)) + ": ";
  spoken += flag_names(head) + " ";
  return "<td" + (classes.empty() ? std::string() : " class=\"" + classes + "\"") +
         "><a href=\"#h" + std::to_string(position) + "\"><span>" + spoken + "</span>" + values +
         "</a>";
}

std::string legend(const Report& report) {
  std::string out = "<p class=\"key\">";
  const auto has = [&](Severity from, Severity to) {
    return std::any_of(report.heads.begin(), report.heads.end(), [&](const ReportHead& head) {
      return head.health.severity >= from && head.health.severity <= to;
    });
  };
  const auto entry = [&](Severity severity, const char* text) {
    out += "<span>" + mark_html(severity) + " " + text + "</span>";
  };
  if (has(Severity::bad, Severity::critical)) entry(Severity::bad, "bad, hatched");
  if (has(Severity::warn, Severity::warn)) entry(Severity::warn, "warn");
  if (has(Severity::information, Severity::watch)) {
    entry(Severity::information,
          has(Severity::watch, Severity::watch) ? "information or watch" : "information");
  }
  return out + "<span>no mark: healthy</span></p>";
}

}  // namespace

bool has_grid(const Report& report) { return !metrics_of(report).empty(); }

bool has_long_labels(const Report& report) {
  return std::any_of(report.layer_labels.begin(), report.layer_labels.end(),
                     [](const std::string& label) { return columns(label) > kShortLabel; });
}

std::string grid_html(const Report& report) {
  const std::vector<GridMetric> metrics = metrics_of(report);
  if (metrics.empty()) return "";
  std::string out =
      "<fieldset class=\"switch\"><legend class=\"hidden\">Show in each cell</legend>";
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const std::string n = std::to_string(i);
    out += "<input type=\"radio\" name=\"metric\" id=\"m" + n + "\"" +
           (i == 0 ? " checked=\"checked\"" : "") + "/><label for=\"m" + n + "\">" +
           html_escape(label(metrics[i])) + "</label>";
  }
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    out += "<p class=\"note c" + std::to_string(i) + "\">" +
           html_escape(caption(report, metrics[i])) + "</p>";
  }
  const bool wide = report.widest_layer > kFittingHeads;
  const bool tall = report.layers > kFittingLayers;
  out += std::string("<div class=\"scroll") + (tall ? " tall" : "") + "\"";
  if (wide || tall) out += " role=\"region\" aria-label=\"Layers and heads\" tabindex=\"0\"";
  out += "><table class=\"grid " + (wide ? "wide" : "n" + std::to_string(report.widest_layer)) +
         (has_long_labels(report) ? " named" : "") + "\"";
  out +=
      "><caption class=\"hidden\">Layers down, heads across</caption><thead><tr>"
      "<th scope=\"col\">layer</th>";
  for (int h = 0; h < report.widest_layer; ++h) {
    out += "<th scope=\"col\">H" + std::to_string(h) + "</th>";
  }
  out += "</tr></thead><tbody>";
  std::size_t position = 0;
  for (int layer = 0; layer < report.layers; ++layer) {
    out += "<tr><th scope=\"row\">" +
           html_escape(report.layer_labels[static_cast<std::size_t>(layer)]);
    for (; position < report.heads.size() && report.heads[position].layer == layer; ++position) {
      out += cell(report.heads[position], position, metrics);
    }
    out += "\n";
  }
  return out + "</tbody></table></div></fieldset>" + legend(report);
}

std::string grid_style() {
  std::string out;
  for (std::size_t i = 0; i < kGridMetrics; ++i) {
    const std::string n = std::to_string(i);
    const std::string checked = "#m" + n + ":checked ~ ", tint(1, static_cast<char>('A' + i));
    out += checked + ".c" + n + " { display: block } " + checked + ".scroll td { --tint: var(--" +
           tint + ", 0%) } " + checked + ".scroll b:nth-of-type(" + std::to_string(i + 1) +
           ") { display: inline }\n";
    for (int step = 1; step <= kTints; ++step) {
      out += "." + tint_class(i, step) + " { --" + tint + ": " +
             std::to_string(100 * step / kTints) + "% }";
    }
    out += "\n";
  }
  for (int heads = 1; heads <= kFittingHeads; ++heads) {
    out += ".grid.n" + std::to_string(heads) +
           " { max-width: " + std::to_string(kLabelPixels + kWidestCellPixels * heads) + "px }" +
           " .named.n" + std::to_string(heads) +
           " { max-width: " + std::to_string(kLongLabelPixels + kWidestCellPixels * heads) +
           "px }\n";
  }
  return out;
}

}  // namespace poise::report
