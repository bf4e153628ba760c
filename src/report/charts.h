// The figures of the page: each a caption whose title is a statement with the number, and a
// drawing. A figure without anything to draw is empty text.
#pragma once

#include <poise/report.h>

#include <string>

namespace poise::report {

// Histograms of raw and of scaled scores, the standard normal dashed over them: of the head to look
// at first, and scaled of the healthy head of spread nearest 1, on the same axes.
std::string histogram_figures(const Report& report);

// Measured variance of q.k against three predictions, log-log, diagonal = exact.
std::string variance_figure(const Report& report);

// What makes scores wide: the factor from norms against the factor from alignment, log-log.
std::string factors_figure(const Report& report);

std::string entropy_figure(const Report& report);       // H / ln n against layer
std::string sharpness_figure(const Report& report);     // largest weights of rows, cumulative
std::string sink_figure(const Report& report);          // weight of sinks against layer
std::string gain_figure(const Report& report);          // gain of the Jacobian against layer
std::string slope_figure(const Report& report);         // gain with and without the scale
std::string transmission_figure(const Report& report);  // what backward measured
std::string headroom_figure(const Report& report);      // distance from the edges of 16 bits
std::string remedy_figure(const Report& report);        // what each factor on the scale buys
std::string cost_figure(const Report& report);          // time with and without statistics

}  // namespace poise::report
