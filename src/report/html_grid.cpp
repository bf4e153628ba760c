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

// From this many heads on the cells keep a width of their own and the grid scrolls sideways.
constexpr int kFittingHeads = 10;
constexpr int kCellPixels = 50, kWidestCellPixels = 70, kLabelPixels = 44;

std::vector<GridMetric> metrics_of(const Report& report) {
  std::vector<GridMetric> shown;
  for (const GridMetric metric : kAllMetrics) {
    if (measured(report, metric)) shown.push_back(metric);
  }
  return shown;
}

std::string tint(double trouble) {
  if (std::isnan(trouble)) return "0";
  const std::string text = fraction(std::round(trouble * 100) / 100);
  return text == "<.01" ? "0" : text;
}

std::string cell(const ReportHead& head, std::size_t position,
                 const std::vector<GridMetric>& metrics) {
  const Severity severity = head.health.severity;
  std::string style, values;
  char variable = 'a';
  for (const GridMetric metric : metrics) {
    style += std::string(style.empty() ? "--" : ";--") + variable++ + ":" +
             tint(head.trouble[static_cast<std::size_t>(metric)]);
    values += "<b>" + html_escape(value_text(head.health.readout, metric)) + "</b>";
  }
  std::string spoken = html_escape(head.name) + ", ";
  if (severity > Severity::healthy) spoken += std::string(name(severity)) + ": ";
  spoken += flag_names(head) + " ";
  std::string sign = mark(severity);
  if (!sign.empty()) {
    const char* tone = severity >= Severity::bad    ? ""
                       : severity == Severity::warn ? "warn"
                                                    : "info";
    sign = "<i aria-hidden=\"true\"" +
           (*tone ? " class=\"" + std::string(tone) + "\"" : std::string()) + ">" + sign + "</i>";
  }
  return std::string("<td") + (severity >= Severity::bad ? " class=\"bad\"" : "") + " style=\"" +
         style + "\"><a href=\"#h" + std::to_string(position) + "\"><span class=\"hidden\">" +
         spoken + "</span>" + values + sign + "</a></td>";
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
  out += "<div class=\"scroll\"";
  if (wide) out += " role=\"region\" aria-label=\"Layers and heads\" tabindex=\"0\"";
  out += "><table class=\"grid\"";
  out += wide ? " style=\"min-width:" +
                    std::to_string(kLabelPixels + kCellPixels * report.widest_layer)
              : " style=\"max-width:" +
                    std::to_string(kLabelPixels + kWidestCellPixels * report.widest_layer);
  out += "px\"";
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
           html_escape(report.input.layers[static_cast<std::size_t>(layer)].label) + "</th>";
    for (; position < report.heads.size() && report.heads[position].layer == layer; ++position) {
      out += cell(report.heads[position], position, metrics);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div></fieldset>" + legend(report);
}

}  // namespace poise::report
