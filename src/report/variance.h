// Measured variance of q.k against its three predictions, over all heads: what the finding says and
// what the chart draws.
#pragma once

#include <poise/report.h>

#include <cstdint>
#include <string>

namespace poise::report {

struct VarianceSummary {
  std::int64_t heads = 0;           // heads with a measured variance and a textbook value
  std::int64_t above_textbook = 0;  // of these, measured > D
  int widest = -1;                  // the head with the largest measured / D
  double median = 0;                // of the measured variances; NaN without heads
  std::int64_t with_moments = 0;    // heads that know norms and full moments
  double norms_short_low = 0, norms_short_high = 0;  // range of measured / norms over these
  double full_error = 0;                             // largest |full / measured - 1| over these
};
VarianceSummary summarise_variance(const Report& report);

// True when the measured variance is clearly above the textbook's.
bool is_wide(const Expectation& expectation);

// What the widest head says about its width, in one sentence.
std::string variance_claim(const Report& report, const VarianceSummary& summary);

// The chart's title, a statement with the number.
std::string variance_title(const Report& report, const VarianceSummary& summary);

}  // namespace poise::report
