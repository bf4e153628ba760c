// Summary of the variance predictions. In: expectations of the heads. Out: counts, ranges, and the
// sentences that say why scores are wide.
#include "report/variance.h"

#include "report/median.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace poise::report {
namespace {

// A factor this close to 1 explains nothing: it is left out of "norms, alignment".
constexpr double kNegligibleFactor = 1.25;

const Expectation& of(const Report& report, int head) {
  return report.heads[static_cast<std::size_t>(head)].health.expectation;
}

}  // namespace

VarianceSummary summarise_variance(const Report& report) {
  VarianceSummary s;
  std::vector<double> measured;
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const Expectation& e = report.heads[i].health.expectation;
    if (!std::isfinite(e.measured) || !(e.iid > 0)) continue;
    measured.push_back(e.measured);
    ++s.heads;
    s.above_textbook += e.measured > e.iid ? 1 : 0;
    const bool wider = s.widest < 0 || e.measured / e.iid >
                                           of(report, s.widest).measured / of(report, s.widest).iid;
    if (wider) s.widest = static_cast<int>(i);
    if (!e.moments_known || !(e.measured > 0) || !(e.norms > 0)) continue;
    const double shortfall = e.measured / e.norms;
    const bool first = s.with_moments++ == 0;
    s.norms_short_low = first ? shortfall : std::min(s.norms_short_low, shortfall);
    s.norms_short_high = first ? shortfall : std::max(s.norms_short_high, shortfall);
    s.full_error = std::max(s.full_error, std::abs(e.full / e.measured - 1));
  }
  s.median = median(std::move(measured));
  return s;
}

bool is_wide(const Expectation& e) { return e.measured > kNegligibleFactor * e.iid; }

std::string variance_claim(const Report& report, const VarianceSummary& summary) {
  const Expectation& e = of(report, summary.widest);
  if (e.measured * kNegligibleFactor < e.iid) return "Scores are narrower than the textbook.";
  if (!is_wide(e)) return "No head is much wider than the textbook.";
  if (!e.moments_known) return "Scores are wider than the textbook.";
  const bool norms = e.norm_factor > kNegligibleFactor;
  const bool align = e.alignment_factor > kNegligibleFactor;
  if (norms && align) {
    return e.norm_factor >= e.alignment_factor ? "Norms first, alignment second."
                                               : "Alignment first, norms second.";
  }
  if (norms) return "The norms of q and k make scores wide.";
  if (align) return "Aligned q and k make scores wide.";
  return "Scores are wider than their moments explain.";
}

std::string variance_title(const Report& report, const VarianceSummary& summary) {
  const std::string textbook =
      report.head_dim > 0 ? fixed(static_cast<double>(report.head_dim), 0) : "D";
  if (summary.above_textbook == 0) {
    return "Var(q·k) stays below " + textbook +
           (summary.heads == 1 ? "" : " in all " + plural(summary.heads, "head"));
  }
  return textbook + " is too small for " + plural(summary.above_textbook, "head") +
         (summary.with_moments > 0 ? "; the moments say why" : "");
}

}  // namespace poise::report
