// A run over time: what of a layer's statistics is kept at each step, and how its largest scores
// grow. Works on any engine's Stats; nothing here reads a file (run_log.h does) or draws
// (report.h).
//
// All functions are pure, never throw and may run on any thread.
#pragma once

#include <poise/health.h>
#include <poise/stats.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace poise {

// One layer at one step. NaN where nothing was measured.
struct SeriesPoint {
  std::int64_t step = 0;
  double max_score = std::numeric_limits<double>::quiet_NaN();  // S+: the largest signed score of
                                                                // any head, before softcap and bias
  // Over the measured rows of all heads, every row counting alike:
  double entropy_ratio = std::numeric_limits<double>::quiet_NaN();  // mean of H / ln n (core)
  double above_99 = std::numeric_limits<double>::quiet_NaN();       // share with top-1 > .99
  // Root mean square of |dS| / |dP - mean dP|: as measured where backward() measured any head,
  // otherwise expected of independent dP from forward's Jacobians (full).
  double transmission = std::numeric_limits<double>::quiet_NaN();
  bool transmission_measured = false;
  std::vector<double> head_max_score;  // S+ of each head
  // The head of the most severe verdict, if that is at least bad; ties go to the first.
  int sick_head = -1;
  VerdictKind sick_kind = VerdictKind::healthy;
  Severity sick_severity = Severity::healthy;
};

// What a series keeps of one layer's statistics. Cost: that of judge().
SeriesPoint series_point(std::int64_t step, const Stats& stats, const Thresholds& thresholds = {},
                         const JudgeContext& context = {});

struct SeriesLayer {
  std::string label;
  std::vector<SeriesPoint> points;  // ascending steps, none twice
};

// Fewest positive points that a fit takes, and how far ahead it is believed, in lengths of the
// fitted window.
inline constexpr int kGrowthPoints = 6;
inline constexpr double kGrowthHorizon = 10;

// How one head's largest score S+ grows: ln S+ = ln level + rate (step - last step), fitted to the
// later half of the points.
//   Why logarithmic: a score is a product of a query and a key that both grow by training, so it
//   grows by factors; for growth slower than that the crossing comes later than the fit says.
//   Why the later half: learning rates warm up, and a run that has calmed down must not alarm.
//   Why Theil-Sen (the median of the slopes of all pairs): S+ is a maximum over a batch, and least
//   squares follow every outlier, the median none until 29 % of the points are.
struct Growth {
  int points = 0;  // that were fitted; 0 = fewer than kGrowthPoints with S+ > 0
  double rate = std::numeric_limits<double>::quiet_NaN();   // of ln S+, per step
  double level = std::numeric_limits<double>::quiet_NaN();  // fitted S+ at the last step
  double trend = std::numeric_limits<double>::quiet_NaN();  // Mann-Kendall's z of the same points
  bool grows = false;  // rate > 0 and trend >= 2.326 (1 in 100 for points in random order)
  std::int64_t crossed_step = -1;  // first step with S+ > tau, -1 = none
  // Step at which the fit crosses tau. NaN when it has been crossed, does not grow, or lies further
  // than kGrowthHorizon windows ahead.
  double eta_step = std::numeric_limits<double>::quiet_NaN();
};

// steps ascend; max_scores[i] belongs to steps[i], NaN = not measured. Of more points than 128 in
// the window every k-th is fitted. Cost: quadratic in the fitted points.
Growth fit_growth(std::span<const std::int64_t> steps, std::span<const double> max_scores,
                  double tau);
// The same of one head of a layer.
Growth fit_growth(const SeriesLayer& layer, int head, double tau);

// "doubles every 310 steps and reaches 100 at about step 1290"; "was first above 100 at step 800";
// empty when the head neither crosses nor approaches tau.
std::string growth_text(const Growth& growth, double tau);

// The rule "hot" over steps: a head that is hot gets growth_text() as further evidence, a head that
// is not yet and whose fit reaches tau gets the flag with severity watch. Flags, verdict and
// severity of `head` are kept in order.
void judge_growth(const Growth& growth, const Thresholds& thresholds, HeadHealth* head);

}  // namespace poise
