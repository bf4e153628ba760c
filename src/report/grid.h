// The numbers of the layer x head grid: one table of what each metric reads, how it is written and
// how near it is to trouble. The terminal and the page both draw from here.
#pragma once

#include <poise/report.h>

#include <array>
#include <string>

namespace poise::report {

inline constexpr std::array<GridMetric, kGridMetrics> kAllMetrics = {
    GridMetric::spread, GridMetric::max_score, GridMetric::entropy, GridMetric::saturated,
    GridMetric::gain};

const char* label(GridMetric metric);  // "spread σ", "max score", ...
double value(const Readout& readout, GridMetric metric);
std::string value_text(const Readout& readout, GridMetric metric);

// 0 ... 1, around 0.5 where a rule begins to bite, NaN where the value is NaN.
double trouble(const Readout& readout, GridMetric metric, const Thresholds& thresholds);

// True when some head has this metric.
bool measured(const Report& report, GridMetric metric);

// How to read it: meaning, reference values, range in this report.
std::string caption(const Report& report, GridMetric metric);

}  // namespace poise::report
