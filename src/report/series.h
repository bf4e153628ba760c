// A run over time in the report: the model's part, its sentences, and its sections in two faces.
// In: the series of a ReportInput, later the model. Out: ReportSeries, sentences not yet escaped,
// text, markup. Not here: fits and rules (src/verdicts_growth.cpp), reading of logs (run_log.cpp).
#pragma once

#include <poise/report.h>

#include <string>
#include <vector>

namespace poise::report {

class Terminal;

// Fits every head, finds who crosses tau first and who was sick first. Empty for a series of fewer
// than two steps. Names of layers have at most max_name characters, their labels max_label.
ReportSeries build_series(const ReportInput& input, std::size_t max_name, std::size_t max_label);

// Lets the growth of each head of a layer speak in its verdict; layer: as in ReportInput::layers.
void judge_series(const ReportInput& input, const ReportSeries& series, const LayerInput& layer,
                  HeadHealth* head);

// Layers, the first to look at first: those that crossed tau or will, by when, then by S+.
std::vector<int> series_order(const ReportSeries& series);

// The growth of a layer's first head to cross tau; null when none does.
const Growth* hot_growth(const ReportSeriesLayer& layer);

// A step that is expected, as a whole number without groups of digits: steps are names.
std::string step_text(double step);

// One sentence each: who reaches tau and when, or that nobody does; who was sick first.
std::string growth_sentence(const Report& report);
std::string sick_sentence(const Report& report);
// Of the head among these (positions in Report::heads) that reaches tau first: "L0 H1 doubles every
// 310 steps and reaches 100 at about step 1290."; empty when none does.
std::string growth_clause(const Report& report, const std::vector<int>& heads);

// The sections. Without a series nothing.
void series_text(Terminal& page, const Report& report, bool all_layers);
std::string series_html(const Report& report);

// The four charts of the page: largest score, entropy, rows on one key, transmission.
std::string series_figures(const Report& report);

}  // namespace poise::report
