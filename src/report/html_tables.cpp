// The tables at the end of the page: every head, the rules with their sources, the glossary.
// In: the model. Out: markup. Which numbers are in the table is decided in columns.cpp.
#include "report/columns.h"
#include "report/encoding.h"
#include "report/facts.h"
#include "report/html_parts.h"
#include "report/words.h"

#include <cmath>
#include <vector>

namespace poise::report {

std::string mark_html(Severity severity) {
  const std::string sign = mark(severity);
  if (sign.empty()) return "";
  return std::string("<i aria-hidden=\"true\" class=\"mark ") +
         (severity >= Severity::warn ? "warn" : "info") + "\">" + sign + "</i>";
}

const char* mark_class(Severity severity) {
  if (severity >= Severity::bad) return "b";
  if (severity >= Severity::warn) return "w";
  return severity > Severity::healthy ? "n" : "";
}

namespace {

// Sentences of flags that the page carries, in bytes; heads beyond have their numbers and factors.
// With it a page whose every head is in trouble stays within its megabyte.
constexpr std::size_t kSentenceBytes = 24'000;

std::string sentences(const ReportHead& head) {
  std::string out;
  for (const Flag& flag : head.health.flags) {
    std::string text = capitalised(std::string(name(flag.kind))) + ": " + flag.evidence + ".";
    if (!flag.cause.empty()) text += " " + flag.cause + ".";
    out += "<p>" + html_escape(text);
    if (!flag.remedy.empty())
      out += "<span class=\"remedy\">" + html_escape(flag.remedy) + "</span>";
    out += "</p>";
  }
  return out;
}

}  // namespace

std::string table_html(const Report& report) {
  const std::vector<Column> columns = page_columns(report);
  std::string out =
      "<p class=\"hint\" aria-hidden=\"true\">more columns: scroll the table sideways</p>"
      "<p class=\"tools\" hidden=\"hidden\">Download these numbers: <button type=\"button\" "
      "id=\"csv\">CSV</button> <button type=\"button\" id=\"json\">JSON</button></p>"
      "<div class=\"scroll\" role=\"region\" aria-label=\"Table of heads\" tabindex=\"0\">"
      "<p class=\"all\"><a href=\"#heads\">all heads</a>" +
      std::string(has_grid(report) ? " · <a href=\"#grid\">back to the grid</a>" : "") +
      "</p><table class=\"heads nojs" + std::string(report.has_gradient ? " backward" : "") +
      (has_long_labels(report) ? " named" : "") +
      "\"><thead><tr><th scope=\"col\">head</th><th scope=\"col\">verdict</th>";
  for (const Column& column : columns) {
    out += "<th scope=\"col\">" + html_escape(column.heading);
    if (*column.unit) out += " <small>" + html_escape(column.unit) + "</small>";
    out += "</th>";
  }
  out += "</tr></thead><tbody>\n";
  std::size_t left = kSentenceBytes;
  for (const int i : report.order) {
    const ReportHead& head = report.heads[static_cast<std::size_t>(i)];
    std::string words = sentences(head);
    if (words.size() > left) words.clear();
    left -= words.size();
    const std::string marked = mark_class(head.health.severity);
    out += "<tr id=\"h" + std::to_string(i) + "\"><th>" + html_escape(head.name) + "<td" +
           (marked.empty() ? "" : " class=\"" + marked + "\"") + ">" + flag_names(head) + words;
    for (const Column& column : columns) {
      const std::string text = html_escape(column.text(head));
      out += broken_rule(head, column) ? "<td><em>" + text + "</em>" : "<td>" + text;
    }
    out += "\n";
  }
  return out + "</tbody></table></div>";
}

std::string table_style() {
  // A row that stands as a card names its numbers itself: its header is not above it any more.
  std::string out;
  for (const bool backward : {false, true}) {
    int child = 3;  // after the head and its verdict
    for (const Column& column : all_columns()) {
      if (column.backward && !backward) continue;
      out += std::string(".nojs") + (backward ? ".backward" : ":not(.backward)") +
             " tr:target td:nth-child(" + std::to_string(child++) + ")::before { content: \"" +
             column.heading + (*column.unit ? std::string(" ") + column.unit : std::string()) +
             "\" }\n";
    }
  }
  return out;
}

std::string numbers_html(const Report& report) {
  std::string out = "<dl class=\"facts\">";
  for (const Fact& fact : numeric_facts(report)) {
    out += "<dt>" + html_escape(fact.label) + "</dt><dd>" + html_escape(fact.value) + "</dd>";
  }
  return out + "</dl>";
}

std::string rules_html(const Report& report) {
  std::string out =
      "<div class=\"scroll\" role=\"region\" aria-label=\"Rules\" tabindex=\"0\">"
      "<table class=\"rules\"><thead><tr><th scope=\"col\">threshold</th><th scope=\"col\">value"
      "</th><th scope=\"col\">meaning</th><th scope=\"col\">source</th></tr></thead><tbody>\n";
  for (const ThresholdInfo& rule : list_thresholds(report.input.thresholds)) {
    out += "<tr><th scope=\"row\"><code>" + html_escape(rule.name) + "</code></th><td>" +
           html_escape(number(rule.value)) + "</td><td>" + html_escape(rule.meaning) + "</td><td>" +
           html_escape(rule.source) + "</td></tr>\n";
  }
  return out + "</tbody></table></div>";
}

std::string glossary_html(const Report& report) {
  const std::string keys = std::isnan(report.typical_keys)
                               ? ""
                               : "; typically " + fixed(report.typical_keys, 0) + " here";
  const std::string target =
      std::isnan(report.target_sigma) ? "" : ", typically " + number(report.target_sigma) + " here";
  std::vector<Fact> entries = {
      {"σ", "standard deviation of the scaled scores within a row, median over rows"},
      {"x", "σ over √(2 ln n); at 1 a row of n random scores freezes onto its largest"},
      {"n", "visible keys of a row" + keys},
      {"H/ln n", "row entropy over its maximum, mean over rows; 1 uniform, 0 one-hot"},
      {"top-1", "largest weight of a row, median over rows"},
      {">.99", "share of rows that put more than .99 on one key"},
      {"tr J", "trace of the softmax Jacobian, 1 − Σp², median over rows; near 0 nothing moves"},
      {"gain", "‖J‖·n/√(n−1), median over rows: 1 for a uniform row; below " +
                   number(report.input.thresholds.dead_gain) + " the row is dead"},
      {"norms", "what the sizes of q and k make of the textbook variance"},
      {"alignment", "what shared directions of q and k add to that"},
      {"|q·k|", "largest raw product, before the scale"},
      {"sink", "a key that most rows weigh heavily, often the first; normal"},
      {"watches",
       "most frequent place of the largest weight, as an offset from the query or a key"},
      {"factor", "multiply the scale by this to reach the target σ" + target +
                     "; where a head is hot and not too wide, a largest score of " +
                     number(report.input.thresholds.hot_bad)},
  };
  if (report.has_gradient) {
    entries.push_back({"passes",
                       "‖dS‖/‖dP − mean‖ as backward measured it, root mean square over "
                       "rows: what arrives at the scores of what is sent to the weights"});
    entries.push_back({"expected",
                       "‖J‖/√(n−1), root mean square over rows: the same for "
                       "independent gradients; below " +
                           number(report.input.thresholds.dead_transmission) +
                           " of it the values hide what the softmax would pass"});
  }
  std::string out = "<dl class=\"glossary\">";
  for (const Fact& entry : entries) {
    out += "<div><dt>" + html_escape(entry.label) + "</dt> <dd>" + html_escape(entry.value) +
           "</dd></div>\n";
  }
  return out + "</dl>";
}

}  // namespace poise::report
