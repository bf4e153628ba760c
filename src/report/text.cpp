// The terminal face: head lines, verdict, findings, the grid of heads, a short table.
// In: a Report and a TextStyle. Out: text of at most the given width. Every number comes from the
// model, every word of a finding too; here they are only laid out. The grid adapts: values and
// strips side by side where they fit, else one strip of bars per metric, else the spread alone.
#include "report/columns.h"
#include "report/facts.h"
#include "report/grid.h"
#include "report/series.h"
#include "report/terminal.h"
#include "report/what_if.h"
#include "report/words.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace poise {
namespace report {
namespace {

constexpr int kGap = 3;         // columns between blocks
constexpr int kCell = 7;        // mark, value of four, bar, and a space before
constexpr int kBriefHeads = 5;  // rows of the short table
constexpr const char* kBriefHeading = "   spread σ";

std::size_t index(int i) { return static_cast<std::size_t>(i); }

void head_lines(Terminal& page, const std::string& lead, const std::vector<std::string>& facts) {
  page.put(lead, Tone::bold);
  int at = page.used(lead);
  for (const std::string& fact : facts) {
    const int need = page.used(fact) + (at > 0 ? kGap : 0);
    if (at > 0 && at + need > page.width()) {
      page.end_line();
      at = 0;
    }
    if (page.used(fact) > page.width()) {
      page.paragraph({}, 0, {{fact}});
      continue;
    }
    page.put((at > 0 ? std::string(kGap, ' ') : "") + fact);
    at += page.used(fact) + (at > 0 ? kGap : 0);
  }
  page.end_line();
}

std::string upper_case(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

void verdict(Terminal& page, const Report& report) {
  page.paragraph(
      {}, 0,
      {{upper_case(report.headline_alarm), Tone::alarm}, {report.headline_rest, Tone::bold}});
  bool first = true;
  for (const SeverityCount& count : severity_counts(report)) {
    if (!first) page.put("   ");
    first = false;
    const std::string sign = mark(count.severity);
    page.put(sign + (sign.empty() ? "" : " "), tone_of(count.severity));
    page.put(std::to_string(count.heads) + " " + words(count));
  }
  page.end_line();
}

void findings(Terminal& page, const Report& report) {
  constexpr int kIndent = 4;
  int number = 0;
  for (const Finding& finding : report.findings) {
    const std::string sign = mark(finding.severity);
    page.paragraph({std::to_string(++number) + " " + sign, tone_of(finding.severity)}, kIndent,
                   {{finding.claim, Tone::bold}, {" " + finding.numbers}});
    if (!finding.remedy.empty()) {
      page.paragraph({}, kIndent, {{"→", Tone::accent}, {" " + finding.remedy}});
    }
  }
}

const char* bar(double trouble) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (std::isnan(trouble)) return " ";
  const int level = static_cast<int>(trouble * 8);
  return kBars[index(std::clamp(level, 0, 7))];
}

double trouble(const ReportHead& head, GridMetric metric) {
  return head.trouble[static_cast<std::size_t>(metric)];
}

// Heads of each layer, in order.
std::vector<std::vector<const ReportHead*>> by_layer(const Report& report) {
  std::vector<std::vector<const ReportHead*>> layers(index(report.layers));
  for (const ReportHead& head : report.heads) layers[index(head.layer)].push_back(&head);
  return layers;
}

int label_width(const Terminal& page, const Report& report) {
  int width = 5;  // "layer"
  for (const std::string& label : report.layer_labels) width = std::max(width, page.used(label));
  return std::min(width, std::max(16, page.width() / 3));
}

// What the grid shows at this width.
struct GridPlan {
  int values = 0;                  // width of the spread as numbers, 0 = left out
  std::vector<GridMetric> strips;  // one character per head each
  int strip = 0;                   // width of a strip
};

const char* strip_heading(GridMetric metric) {
  switch (metric) {
    case GridMetric::spread:
      return "spread";
    case GridMetric::max_score:
      return "max";
    case GridMetric::entropy:
      return "entropy";
    case GridMetric::saturated:
      return "rows>.99";
    case GridMetric::gain:
      return "gain";
  }
  return "";
}

GridPlan plan_grid(const Terminal& page, const Report& report, int label) {
  GridPlan plan;
  const int heads = report.widest_layer;
  plan.strip = std::max(heads, 8);  // as wide as the longest heading
  const int room = page.width() - label;
  constexpr int kShortestHeading = 13;
  const int values = std::max({heads * kCell, kShortestHeading, page.used(kBriefHeading)});
  if (values <= room && measured(report, GridMetric::spread)) plan.values = values;
  std::vector<GridMetric> wanted = {GridMetric::entropy, GridMetric::saturated, GridMetric::gain};
  if (plan.values == 0) wanted.insert(wanted.begin(), GridMetric::spread);
  int left = room - plan.values;
  for (const GridMetric metric : wanted) {
    if (!measured(report, metric) || left < plan.strip + kGap) continue;
    plan.strips.push_back(metric);
    left -= plan.strip + kGap;
  }
  return plan;
}

void grid_heading(Terminal& page, const Report& report, const GridPlan& plan, int label) {
  page.left("layer", label);
  if (plan.values > 0) {
    constexpr const char* kFull = "   spread σ of the scaled scores, median row";
    page.left(page.used(kFull) <= plan.values ? kFull : kBriefHeading, plan.values);
  }
  for (const GridMetric metric : plan.strips) {
    page.put(std::string(kGap, ' '));
    page.left(strip_heading(metric), plan.strip);
  }
  page.end_line();
  page.left("", label);
  if (plan.values > 0) {
    for (int h = 0; h < report.widest_layer; ++h) page.right("H" + std::to_string(h) + " ", kCell);
    page.left("", plan.values - report.widest_layer * kCell);
  }
  std::string digits;
  for (int h = 0; h < report.widest_layer; ++h) digits += static_cast<char>('0' + h % 10);
  for (std::size_t i = 0; i < plan.strips.size(); ++i) {
    page.put(std::string(kGap, ' '));
    page.left(digits, plan.strip);
  }
  page.end_line();
}

void value_cell(Terminal& page, const ReportHead& head) {
  const Severity severity = head.health.severity;
  const std::string sign = mark(severity);
  const Tone tone = severity >= Severity::warn ? Tone::alarm : Tone::plain;
  const std::string text = value_text(head.health.readout, GridMetric::spread);
  page.put(" ");
  page.left(sign, 1, tone_of(severity));
  page.right(text, kCell - 3, tone);
  page.put(bar(trouble(head, GridMetric::spread)), tone);
}

void grid(Terminal& page, const Report& report) {
  const int label = label_width(page, report);
  const GridPlan plan = plan_grid(page, report, label);
  if (plan.values == 0 && plan.strips.empty()) return;
  grid_heading(page, report, plan, label);
  const auto layers = by_layer(report);
  for (int i = 0; i < report.layers; ++i) {
    page.right(page.ending(report.layer_labels[index(i)], label), label);
    const auto& heads = layers[index(i)];
    if (plan.values > 0) {
      for (const ReportHead* head : heads) value_cell(page, *head);
      page.left("", plan.values - static_cast<int>(heads.size()) * kCell);
    }
    for (const GridMetric metric : plan.strips) {
      page.put(std::string(kGap, ' '));
      for (const ReportHead* head : heads) {
        page.put(bar(trouble(*head, metric)), tone_of(head->health.severity));
      }
      page.left("", plan.strip - static_cast<int>(heads.size()));
    }
    page.end_line();
  }
  page.end_line();
  std::string legend;
  if (plan.values > 0) {
    for (const SeverityCount& count : severity_counts(report)) {
      if (!count.measured) continue;
      const std::string sign = mark(count.severity);
      legend += (sign.empty() ? "unmarked" : sign) + " " + name(count.severity) +
                (sign.empty() ? "; " : ", ");
    }
  }
  page.paragraph({}, 2, {{legend + "▁▂▃▄▅▆▇█ closer to trouble"}});
}

// Columns of the table that fit: the last one (the factor) always stays.
std::vector<std::pair<Column, int>> table_columns(const Terminal& page, const Report& report,
                                                  bool all, int room) {
  std::vector<std::pair<Column, int>> columns;
  for (const Column& column : columns_of(report)) {
    if (!all && !column.brief) continue;
    int width = page.used(std::string(column.heading) + column.unit);
    for (const ReportHead& head : report.heads)
      width = std::max(width, page.used(column.text(head)));
    columns.emplace_back(column, width + 2);
    room -= width + 2;
  }
  while (room < 0 && columns.size() > 2) {
    const auto victim = columns.end() - 2;
    room += victim->second;
    columns.erase(victim);
  }
  return columns;
}

void table(Terminal& page, const Report& report, bool all) {
  if (report.order.empty()) return;
  const std::size_t rows =
      all ? report.order.size() : std::min(report.order.size(), index(kBriefHeads));
  const std::string heading =
      rows == report.order.size()
          ? plural(static_cast<std::int64_t>(rows), "head")
          : "first " + std::to_string(rows) + " of " + std::to_string(report.order.size());
  int label = page.used(heading);
  for (const ReportHead& head : report.heads) label = std::max(label, page.used(head.name) + 2);
  label = std::min(label, std::max(24, page.width() * 2 / 5));
  const auto columns = table_columns(page, report, all, page.width() - label);
  if (columns.empty()) return;
  page.end_line();
  page.left(heading, label, Tone::bold);
  for (const auto& [column, width] : columns) {
    page.right(std::string(column.heading) + column.unit, width);
  }
  page.end_line();
  for (std::size_t i = 0; i < rows; ++i) {
    const ReportHead& head = report.heads[index(report.order[i])];
    const std::string sign = mark(head.health.severity);
    page.left(sign, 2, tone_of(head.health.severity));
    page.left(page.ending(head.name, label - 2), label - 2);
    for (const auto& [column, width] : columns) {
      page.right(column.text(head), width, broken_rule(head, column) ? Tone::alarm : Tone::plain);
    }
    page.end_line();
  }
}

void rules(Terminal& page, const Report& report) {
  page.put("rules and sources", Tone::bold);
  page.end_line();
  for (const ThresholdInfo& rule : list_thresholds(report.input.thresholds)) {
    page.paragraph(
        {rule.name}, 20,
        {{number(rule.value) + ": " + rule.meaning}, {" (" + rule.source + ")", Tone::dim}});
  }
}

}  // namespace
}  // namespace report

std::string to_text(const Report& report, const TextStyle& style) {
  using namespace report;
  Terminal page(style);
  head_lines(page, "poise report", what_was_measured(report));
  head_lines(page, "", how_it_was_measured(report));
  page.end_line();
  verdict(page, report);
  if (!report.findings.empty()) {
    page.end_line();
    findings(page, report);
  }
  if (!report.heads.empty()) {
    page.end_line();
    grid(page, report);
    table(page, report, style.all_heads);
    what_if_table(page, report);
  }
  if (!report.series.layers.empty()) {
    page.end_line();
    series_text(page, report, style.all_heads);
  }
  if (style.rules) {
    page.end_line();
    rules(page, report);
  }
  return page.take();
}

}  // namespace poise
