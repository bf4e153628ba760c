// "Over time" on the page: what the steps say in two sentences, then the charts. In: the model.
// Out: one section, or nothing without a series. The charts: series_chart.cpp.
#include "report/encoding.h"
#include "report/series.h"
#include "report/words.h"

namespace poise::report {

std::string series_html(const Report& report) {
  const ReportSeries& series = report.series;
  if (series.layers.empty()) return "";
  return "<section id=\"time\"><h2>Over time: what changes</h2><p class=\"lead\">" +
         html_escape(plural(series.steps, "step") + ", " + std::to_string(series.first_step) +
                     " to " + std::to_string(series.last_step) + ". " + growth_sentence(report) +
                     " " + sick_sentence(report)) +
         "</p>\n<div class=\"row\">" + series_figures(report) + "</div></section>\n";
}

}  // namespace poise::report
