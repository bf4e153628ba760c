// The rule about time: how the largest score of a head grows over steps, and when it reaches tau.
//
// In: points of a series, or the statistics one is made of. Out: a fit, and the flag "hot" with the
// step it expects. Missing points are NaN and are skipped. Nothing here knows where steps come
// from.
#include <poise/series.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "verdicts.h"
#include "wording.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMaxFitted = 128;
constexpr double kTrendLimit = 2.326;  // one-sided 1 % of a normal variable

struct Point {
  double step, log_score;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// The later half of the points with a logarithm, thinned out evenly from the last one back.
std::vector<Point> window_of(std::span<const std::int64_t> steps,
                             std::span<const double> max_scores) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < std::min(steps.size(), max_scores.size()); ++i) {
    if (std::isfinite(max_scores[i]) && max_scores[i] > 0)
      points.push_back({static_cast<double>(steps[i]), std::log(max_scores[i])});
  }
  constexpr std::size_t kLeast = kGrowthPoints;
  const std::size_t wanted = std::max(kLeast, (points.size() + 1) / 2);
  if (points.size() < wanted) return {};
  points.erase(points.begin(), points.end() - static_cast<std::ptrdiff_t>(wanted));
  const std::size_t stride = (wanted + kMaxFitted - 1) / kMaxFitted;
  std::vector<Point> kept;
  for (std::size_t back = 0; back < wanted; back += stride)
    kept.push_back(points[wanted - 1 - back]);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

// Mann-Kendall: pairs that rise less pairs that fall, in standard deviations of a random order.
// Ties make the true deviation smaller, so they only make it harder to call a trend.
double trend_of(std::int64_t rising_less_falling, std::size_t count) {
  const auto n = static_cast<double>(count);
  const auto s = static_cast<double>(rising_less_falling);
  const double deviation = std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
  return s == 0 ? 0 : (s - std::copysign(1.0, s)) / deviation;
}

void fit(const std::vector<Point>& window, Growth* growth) {
  std::vector<double> slopes;
  std::int64_t rising_less_falling = 0;
  for (std::size_t i = 0; i < window.size(); ++i) {
    for (std::size_t j = i + 1; j < window.size(); ++j) {
      const double rise = window[j].log_score - window[i].log_score;
      const double run = window[j].step - window[i].step;
      if (!(run > 0)) continue;
      slopes.push_back(rise / run);
      rising_less_falling += rise > 0 ? 1 : rise < 0 ? -1 : 0;
    }
  }
  if (slopes.empty()) return;
  growth->points = static_cast<int>(window.size());
  growth->rate = median(std::move(slopes));
  std::vector<double> levels;
  for (const Point& p : window)
    levels.push_back(p.log_score + growth->rate * (window.back().step - p.step));
  growth->level = std::exp(median(std::move(levels)));
  growth->trend = trend_of(rising_less_falling, window.size());
  growth->grows = growth->rate > 0 && growth->trend >= kTrendLimit;
}

// Steps are whole numbers; a fitted one is told to three digits of its distance at best.
std::string step_text(double step) { return std::to_string(std::llround(step)); }

}  // namespace

SeriesPoint series_point(std::int64_t step, const Stats& stats, const Thresholds& thresholds,
                         const JudgeContext& context) {
  SeriesPoint point;
  point.step = step;
  double rows = 0, core_rows = 0, entropy = 0, above = 0;
  double sent_rows = 0, sent = 0, expected_rows = 0, expected = 0;
  const Health health = judge(stats, thresholds, context);
  for (const HeadHealth& head : health.heads) {
    const HeadStats& s = stats.heads[static_cast<std::size_t>(head.head)];
    const auto measured = static_cast<double>(s.measured_rows);
    point.head_max_score.push_back(head.readout.max_score);
    point.max_score = std::fmax(point.max_score, head.readout.max_score);
    rows += measured;
    above += static_cast<double>(s.rows_above_99);
    if (!std::isnan(head.readout.entropy_ratio)) {
      core_rows += measured;
      entropy += s.sum_entropy_ratio;
    }
    sent_rows += static_cast<double>(s.gradient.measured_rows);
    sent += s.gradient.sum_transmission_squared;
    if (!std::isnan(head.readout.expected_transmission)) {
      expected_rows += measured;
      expected += s.sum_expected_transmission_squared;
    }
    if (head.severity >= Severity::bad && head.severity > point.sick_severity) {
      point.sick_head = head.head;
      point.sick_kind = head.verdict;
      point.sick_severity = head.severity;
    }
  }
  const auto ratio = [](double sum, double count) { return count > 0 ? sum / count : kNaN; };
  point.entropy_ratio = ratio(entropy, core_rows);
  point.above_99 = ratio(above, rows);
  point.transmission_measured = sent_rows > 0;
  point.transmission = std::sqrt(point.transmission_measured ? ratio(sent, sent_rows)
                                                             : ratio(expected, expected_rows));
  return point;
}

Growth fit_growth(std::span<const std::int64_t> steps, std::span<const double> max_scores,
                  double tau) {
  Growth growth;
  for (std::size_t i = 0; i < std::min(steps.size(), max_scores.size()); ++i) {
    if (!(max_scores[i] > tau)) continue;
    growth.crossed_step = steps[i];
    break;
  }
  const std::vector<Point> window = window_of(steps, max_scores);
  if (window.empty()) return growth;
  fit(window, &growth);
  if (!growth.grows || growth.crossed_step >= 0 || !(tau > 0)) return growth;
  const double last = window.back().step, length = last - window.front().step;
  const double ahead = std::max(0.0, std::log(tau / growth.level) / growth.rate);
  if (ahead <= kGrowthHorizon * length) growth.eta_step = last + ahead;
  return growth;
}

Growth fit_growth(const SeriesLayer& layer, int head, double tau) {
  std::vector<std::int64_t> steps;
  std::vector<double> scores;
  for (const SeriesPoint& point : layer.points) {
    if (head < 0 || static_cast<std::size_t>(head) >= point.head_max_score.size()) continue;
    steps.push_back(point.step);
    scores.push_back(point.head_max_score[static_cast<std::size_t>(head)]);
  }
  return fit_growth(steps, scores, tau);
}

std::string growth_text(const Growth& growth, double tau) {
  if (growth.crossed_step >= 0)
    return "was first above " + number(tau) + " at step " + std::to_string(growth.crossed_step);
  if (std::isnan(growth.eta_step)) return "";
  return "doubles every " + number(std::log(2) / growth.rate) + " steps and reaches " +
         number(tau) + " at about step " + step_text(growth.eta_step);
}

void judge_growth(const Growth& growth, const Thresholds& thresholds, HeadHealth* head) {
  const double tau = thresholds.hot_bad;
  const std::string text = growth_text(growth, tau);
  if (text.empty()) return;
  const auto hot = std::find_if(head->flags.begin(), head->flags.end(),
                                [](const Flag& flag) { return flag.kind == VerdictKind::hot; });
  if (hot != head->flags.end()) {
    hot->evidence += "; it " + text;
    return;
  }
  if (std::isnan(growth.eta_step)) return;  // it was above tau and has come down again
  Flag flag = fire(VerdictKind::hot, Severity::watch);
  flag.evidence = "The largest score is " + number(head->readout.max_score) + "; it " + text;
  flag.remedy = "Watch it over training: QK-clip acts above " + number(tau);
  head->flags.push_back(std::move(flag));
  order_flags(head);
}

}  // namespace poise
