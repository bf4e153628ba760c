// The figures of the page: each a caption whose title is a statement with the number, and a
// drawing.
#pragma once

#include <poise/report.h>

#include <string>

namespace poise::report {

// Histograms of scaled scores, the standard normal dashed over them: of the head to look at first
// and of the healthy head of spread nearest 1, on the same axes. Empty without histograms.
std::string histogram_figures(const Report& report);

// Measured variance of q.k against three predictions, log-log, diagonal = exact. Empty when no head
// has a positive measured variance.
std::string variance_figure(const Report& report);

}  // namespace poise::report
