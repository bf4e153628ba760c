// The page: head, verdict, findings beside the grid, charts, the card of one head, tables, method.
// One file that refers to nothing outside itself; a content security policy admits its own style
// sheet and script by their hashes and nothing else.
// In: the model. Out: well-formed HTML. Everything from outside passes html_escape().
#include <poise/report.h>

#include "report/charts.h"
#include "report/encoding.h"
#include "report/facts.h"
#include "report/html_parts.h"
#include "report/page_hashes.h"
#include "report/series.h"
#include "report/words.h"

namespace poise {
namespace report {
namespace {

std::string joined(const std::vector<std::string>& facts) {
  std::string out;
  for (const std::string& fact : facts) {
    out += (out.empty() ? "" : " &nbsp;·&nbsp; ") + html_escape(fact);
  }
  return out;
}

std::string head_html(const Report& report) {
  const std::string& name = report.input.title.empty() ? report.input.model : report.input.title;
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'sha256-" +
         std::string(kStyleHash) + "'; script-src 'sha256-" + kScriptHash +
         "'; base-uri 'none'; form-action 'none'\"/>"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>"
         "poise report: " +
         html_escape(report.headline_alarm + report.headline_rest) +
         (name.empty() ? "" : " (" + html_escape(name) + ")") + "</title><style>" + page_style() +
         "</style></head>\n";
}

std::string header_html(const Report& report) {
  std::string out = "<header><p class=\"meta\"><b>poise report</b> &nbsp;" +
                    joined(what_was_measured(report)) + "<br/>" +
                    joined(how_it_was_measured(report)) + "</p>\n<h1>";
  if (!report.headline_alarm.empty()) {
    out += "<em>" + html_escape(report.headline_alarm) + "</em>";
  }
  out += html_escape(report.headline_rest) + "</h1>\n";
  const auto counts = severity_counts(report);
  if (counts.empty()) return out + "</header>\n";
  out += "<ul class=\"counts\">";
  for (const SeverityCount& count : counts) {
    const std::string sign = mark_html(count.severity);
    out += "<li>" + sign + (sign.empty() ? "<b>" : " <b>") + std::to_string(count.heads) + "</b> " +
           words(count) + "</li>";
  }
  return out + "</ul></header>\n";
}

std::string findings_html(const Report& report) {
  std::string out = "<h2>Findings</h2><ol class=\"findings\">\n";
  for (const Finding& finding : report.findings) {
    const std::string sign = mark_html(finding.severity);
    out += "<li><div>" + sign + (sign.empty() ? "" : " ") + "<b>" + html_escape(finding.claim) +
           "</b> " + html_escape(finding.numbers);
    if (!finding.section.empty()) {
      out += " <a href=\"#" + html_escape(finding.section) + "\">" + html_escape(finding.section) +
             "</a>";
    }
    if (!finding.remedy.empty()) {
      out += "<span class=\"remedy\">" + html_escape(finding.remedy) + "</span>";
    }
    out += "</div></li>\n";
  }
  return out + "</ol>";
}

// Findings beside the grid where both fit, else one after the other.
std::string top_html(const Report& report) {
  constexpr int kBesideHeads = 12;
  const std::string grid = grid_html(report);
  if (report.findings.empty() && grid.empty()) return "";
  const bool beside = !grid.empty() && report.widest_layer <= kBesideHeads;
  return std::string("<div class=\"top") + (beside ? " two" : "") + "\"><div>" +
         findings_html(report) + "</div>" +
         (grid.empty() ? ""
                       : "<div id=\"grid\"><h2>Where: layer × head</h2><a class=\"skip\" "
                         "href=\"#scores\">Skip "
                         "the grid</a>" +
                             grid + "</div>") +
         "</div>\n";
}

// A section of figures; nothing when there is none to show.
std::string figures_html(const char* id, const std::string& heading, const std::string& lead,
                         const std::string& figures) {
  if (figures.empty()) return "";
  return "<section id=\"" + std::string(id) + "\"><h2>" + html_escape(heading) + "</h2>" +
         (lead.empty() ? "" : "<p class=\"lead\">" + html_escape(lead) + "</p>\n") +
         "<div class=\"row\">" + figures + "</div></section>\n";
}

std::string scores_html(const Report& report) {
  const std::string figures = histogram_figures(report);
  std::string lead = "Dividing by √" +
                     (report.head_dim > 0 ? std::to_string(report.head_dim) : std::string("D")) +
                     " should leave scores as wide as a standard normal.";
  lead += figures.empty() ? " Histograms need statistics at level full."
                          : " The vertical axis of a histogram is logarithmic, in % of scores per "
                            "unit, so the normal curve is a parabola.";
  return "<section id=\"scores\"><h2>Scores: how wide</h2><p class=\"lead\">" + html_escape(lead) +
         "</p>\n<div class=\"row\">" + figures + variance_figure(report) + factors_figure(report) +
         "</div></section>\n";
}

std::string numbers_section(const Report& report) {
  return "<section id=\"numbers\"><h2>Numbers: how close to the edge</h2><div class=\"row\">" +
         headroom_figure(report) + "<div>" + numbers_html(report) + "</div>" + cost_figure(report) +
         "</div></section>\n";
}

std::string heads_html(const Report& report) {
  const auto heads = static_cast<std::int64_t>(report.heads.size());
  return "<section id=\"heads\"><h2>" +
         capitalised(heads == 1 ? std::string("the one head") : "all " + plural(heads, "head")) +
         "</h2><p class=\"lead\">Sorted by verdict, then σ; medians over rows. A number that broke "
         "a rule is bold.</p>" +
         table_html(report) + "</section>\n";
}

std::string method_html(const Report& report) {
  const ReportInput& in = report.input;
  std::string out =
      "<footer><p>Method: every number is of the scores as they were computed, row by row, inside "
      "the attention pass; medians over rows are good to 2 %; rows with fewer than two visible "
      "keys "
      "are counted and left out. The full moments are tr(E[qqᵀ] Σₖ), equal to the mean within-row "
      "variance when nothing is masked. Recomputed means run again by the same kernels with "
      "another "
      "scale, not extrapolated. Raw histograms are the counts of the scaled ones over the scale; "
      "those of head cards are good to 12 % of a bin. The numbers to download have three or four "
      "digits; "
      "<code>poise report --json</code> writes all of them.</p>\n";
  const auto line = [&](const char* label, const std::string& text) {
    if (!text.empty()) {
      out += std::string("<p>") + label + ": <code>" + html_escape(text) + "</code></p>\n";
    }
  };
  if (!in.model.empty()) {
    out += "<p>Model: " + html_escape(in.model) +
           (in.licence.empty() ? "" : " (" + html_escape(in.licence) + ")") + "</p>\n";
  }
  line("Input", in.text);
  line("Made by", in.command);
  return out + "</footer>\n";
}

}  // namespace
}  // namespace report

std::string to_html(const Report& report) {
  using namespace report;
  std::string out =
      head_html(report) + "<body>" + header_html(report) + "<main>" + top_html(report);
  out += series_html(report);
  if (!report.heads.empty()) {
    out += scores_html(report);
    out += figures_html("softmax", "Softmax: how sharp", "",
                        entropy_figure(report) + sharpness_figure(report) + sink_figure(report));
    out += "<div class=\"split\">" +
           figures_html("gradient", "Gradient: how much gets through", "",
                        gain_figure(report) + slope_figure(report) + transmission_figure(report)) +
           figures_html("remedy", "Remedy: what the factor buys", "", remedy_figure(report)) +
           "</div>";
    out += numbers_section(report) + card_html(report) + heads_html(report);
  }
  out += "<section id=\"rules\"><h2>Rules and their sources</h2>" + rules_html(report) +
         "</section>\n<section><h2>Glossary</h2>" + glossary_html(report) + "</section></main>\n" +
         method_html(report) + (report.heads.empty() ? "" : data_html(report)) + "<script>" +
         page_script() + "</script></body></html>\n";
  return out;
}

}  // namespace poise
