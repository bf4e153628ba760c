// From statistics to judged heads: read-outs, ordering of flags, the verdict, a short text.
//
// In: Stats of any engine. Out: Health. The rules live in verdicts_size.cpp and verdicts_shape.cpp,
// advice in advice.cpp, theory in theory.cpp; here nothing compares a number with a threshold.
// Signals that were not measured read NaN, which no rule counts as crossed.
#include <poise/health.h>
#include <poise/theory.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "verdicts.h"
#include "wording.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestF16 = 65504;

// Measured rows to divide by: 0 / NaN and n / NaN read as NaN, nothing was measured.
double rows_of(const HeadStats& head) {
  return head.measured_rows > 0 ? static_cast<double>(head.measured_rows) : kNaN;
}

// The place most rows agree on, with its share; ties go to the smallest place.
std::pair<std::int64_t, double> most_frequent(const PlaceCounts& counts, double rows) {
  std::int64_t place = 0, most = 0;
  for (const auto& [candidate, count] : counts)
    if (count > most) std::tie(place, most) = std::pair(candidate, count);
  return {place, most > 0 ? static_cast<double>(most) / rows : kNaN};
}

double max_abs_dot(const HeadStats& head) {
  SpreadStats dots;
  dots.max = head.max_dot;
  dots.min = head.min_dot;
  // With a negative scale and level max only the smallest dot is known.
  if (std::isinf(dots.max) && std::isfinite(dots.min)) return std::fabs(dots.min);
  return dots.max_abs();
}

void read_sink(const HeadStats& head, const StatsRequest& request, Readout* r) {
  const auto consider = [&](std::int64_t key, const TrackedKey& tracked) {
    const double weight = tracked.sum_weight / static_cast<double>(head.measured_rows);
    if (!(weight > r->sink_weight)) return;
    r->sink_weight = weight;
    r->sink_key = key;
  };
  for (std::size_t k = 0; k < kTrackedKeys; ++k) consider(request.tracked[k], head.tracked[k]);
  if (head.column.key >= 0) consider(head.column.key, head.column.tracked);
}

// The distance of neighbouring numbers of `bits` significant bits at this size; infinite beyond the
// largest of the type, NaN where nothing was measured.
double step_at(double size, int bits, double largest) {
  if (std::isnan(size) || size == 0) return size;
  if (size > largest) return std::numeric_limits<double>::infinity();
  return std::ldexp(1.0, std::ilogb(size) - bits + 1);
}

WhatIfReadout read_what_if(const HeadStats& head, const Stats& stats, const std::string& label) {
  const Readout r = read_out(head, stats);
  WhatIfReadout w;
  w.label = label;
  w.scale = head.scale;
  w.softcap = stats.softcap;
  w.sigma = r.logit_sigma;
  w.entropy = std::isnan(r.entropy_ratio) ? kNaN : head.sum_entropy / rows_of(head);
  w.entropy_ratio = r.entropy_ratio;
  w.above_99 = r.above_99;
  w.trace = r.trace;
  w.gain = r.gain;
  w.expected_transmission = r.expected_transmission;
  return w;
}

ScoreFacts facts_of(const Case& c) {
  const auto heads = static_cast<std::int64_t>(c.stats.heads.size());
  const JudgedSpread spread = judged_spread(c);
  ScoreFacts facts;
  facts.rule = weight_rule(heads, c.stats.kv_heads, c.context.layers_share_weights);
  facts.group = c.stats.kv_heads > 0 ? heads / c.stats.kv_heads : 1;
  facts.scale = c.head.scale;
  facts.max_score = c.readout.max_score;
  facts.tau = c.thresholds.hot_bad;
  facts.sigma = spread.sigma;
  facts.target_sigma = target_sigma(spread.keys, c.thresholds, c.context);
  return facts;
}

HeadHealth judge_head(const Stats& stats, std::size_t index, const Thresholds& thresholds,
                      const JudgeContext& context) {
  const HeadStats& head = stats.heads[index];
  HeadHealth health;
  health.head = static_cast<int>(index);
  health.readout = read_out(head, stats, context, thresholds);
  health.expectation = expect(head, stats.head_dim);
  Case c{stats, head, thresholds, context, health.readout, health.expectation, {}};
  health.advice = c.advice = advise(facts_of(c));
  judge_size(c, &health.flags);
  judge_shape(c, &health.flags);
  order_flags(&health);
  return health;
}

std::string plural(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

void order_flags(HeadHealth* head) {
  std::sort(head->flags.begin(), head->flags.end(), [](const Flag& a, const Flag& b) {
    return std::tuple(b.severity, a.kind) < std::tuple(a.severity, b.kind);
  });
  if (head->flags.empty()) return;
  head->verdict = head->flags.front().kind;
  head->severity = head->flags.front().severity;
}

const char* name(Severity severity) {
  switch (severity) {
    case Severity::healthy:
      return "healthy";
    case Severity::information:
      return "information";
    case Severity::watch:
      return "watch";
    case Severity::warn:
      return "warn";
    case Severity::bad:
      return "bad";
    case Severity::critical:
      return "critical";
  }
  return "?";
}

const char* name(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::overflow_f16:
      return "overflow fp16";
    case VerdictKind::precision_16bit:
      return "precision 16-bit";
    case VerdictKind::tie_bias_bf16:
      return "tie-bias bf16";
    case VerdictKind::exploding:
      return "exploding";
    case VerdictKind::hot:
      return "hot";
    case VerdictKind::saturated:
      return "saturated";
    case VerdictKind::peaked_by_design:
      return "peaked by design";
    case VerdictKind::sink_dominated:
      return "sink-dominated";
    case VerdictKind::diffuse:
      return "diffuse";
    case VerdictKind::dead_gradient:
      return "dead gradient";
    case VerdictKind::healthy:
      return "healthy";
  }
  return "?";
}

Readout read_out(const HeadStats& head, const Stats& stats, const JudgeContext& context,
                 const Thresholds& thresholds) {
  Readout r;
  const double rows = rows_of(head);
  const bool core = head.entropy_ratio.count() > 0, full = head.gain.count() > 0;
  r.measured_rows = head.measured_rows;
  r.nonfinite_rows = head.nonfinite_rows;
  r.sigma = head.scores.sigma.quantile(0.5);
  r.keys = std::exp(head.sum_log_keys / rows);
  r.x = r.sigma / saturation_threshold(r.keys);
  r.target_sigma = target_sigma(r.keys, thresholds, context);
  r.factor = spread_factor(r.sigma, r.target_sigma);
  r.max_score = std::isfinite(head.scores.max) ? head.scores.max : kNaN;
  const SpreadStats& logits = stats.logits_differ() ? head.logits : head.scores;
  r.max_logit = std::isfinite(logits.max) ? logits.max : kNaN;
  r.logit_sigma = logits.sigma.quantile(0.5);
  const double logit = logits.max_abs();
  r.max_abs_logit = std::isfinite(logit) ? logit : kNaN;
  r.f16_step = step_at(r.max_abs_logit, 11, kLargestF16);
  r.bf16_step = step_at(r.max_abs_logit, 8, std::numeric_limits<double>::infinity());
  const double dot = max_abs_dot(head);
  r.max_abs_dot = std::isfinite(dot) ? dot : kNaN;
  r.f16_headroom_bits = std::log2(kLargestF16 / r.max_abs_dot);
  r.entropy_ratio = core ? head.sum_entropy_ratio / rows : kNaN;
  r.kl = core ? head.sum_kl / rows : kNaN;
  r.top1 = head.top1.quantile(0.5);
  r.above_99 = static_cast<double>(head.rows_above_99) / rows;
  r.trace = head.trace.quantile(0.5);
  r.gain = head.gain.quantile(0.5);
  r.dead = full ? static_cast<double>(head.dead_rows) / rows : kNaN;
  const GradientStats& gradient = head.gradient;
  r.transmission = gradient.rms_transmission();
  r.expected_transmission = head.expected_transmission();
  r.passed_gain = gradient.row_gain.quantile(0.5);
  r.passed_dead =
      static_cast<double>(gradient.dead_rows) / static_cast<double>(gradient.measured_rows);
  r.effective_keys = head.effective_keys.quantile(0.5);
  r.near_tie = static_cast<double>(head.near_tie_rows) / rows;
  r.entropy_slope = stats.entropy_slope(head);
  if (full) read_sink(head, stats.request, &r);
  std::tie(r.argmax_column, r.argmax_column_share) = most_frequent(head.argmax_column, rows);
  std::tie(r.argmax_offset, r.argmax_offset_share) = most_frequent(head.argmax_offset, rows);
  return r;
}

std::vector<WhatIfReadout> read_what_ifs(const Stats& as_it_is,
                                         const std::vector<WhatIfStats>& what_ifs,
                                         std::size_t head) {
  std::vector<WhatIfReadout> all;
  if (what_ifs.empty() || head >= as_it_is.heads.size()) return all;
  const HeadStats& now = as_it_is.heads[head];
  all.push_back(read_what_if(now, as_it_is, "as it is"));
  all.back().first_order_entropy_change = 0;
  const double slope = as_it_is.entropy_slope(now);
  for (const WhatIfStats& what_if : what_ifs) {
    if (head >= what_if.stats.heads.size()) continue;
    const HeadStats& then = what_if.stats.heads[head];
    if (what_if.scale_only && then.scale == now.scale) continue;
    WhatIfReadout& r = all.emplace_back(read_what_if(then, what_if.stats, what_if.label));
    // A scale of 0 or of another sign has no logarithm to step along.
    const double ratio = what_if.scale_only ? then.scale / now.scale : kNaN;
    r.first_order_entropy_change = ratio > 0 ? slope * std::log(ratio) : kNaN;
  }
  return all;
}

double advised_factor(const HeadHealth& head) {
  for (const Flag& flag : head.flags) {
    const bool of_scale = flag.kind == VerdictKind::saturated ||
                          flag.kind == VerdictKind::diffuse ||
                          flag.kind == VerdictKind::dead_gradient;
    if (of_scale && std::isfinite(flag.factor)) return flag.factor;
  }
  return kNaN;
}

Health judge(const Stats& stats, const Thresholds& thresholds, const JudgeContext& context) {
  Health health;
  for (std::size_t h = 0; h < stats.heads.size(); ++h) {
    health.heads.push_back(judge_head(stats, h, thresholds, context));
    const Severity severity = health.heads.back().severity;
    ++health.counts[static_cast<std::size_t>(severity)];
    health.worst = std::max(health.worst, severity);
  }
  return health;
}

std::string to_text(const Health& health) {
  std::string text = plural(health.heads.size(), "head") + ":";
  const char* separator = " ";
  for (int s = kSeverities - 1; s >= 0; --s) {
    const int count = health.counts[static_cast<std::size_t>(s)];
    if (count == 0) continue;
    text += separator + std::to_string(count) + " " + name(static_cast<Severity>(s));
    separator = ", ";
  }
  text += health.heads.empty() ? " nothing was measured.\n" : ".\n";
  for (const HeadHealth& head : health.heads) {
    const std::string label = "H" + std::to_string(head.head);
    if (head.readout.nonfinite_rows > 0)
      text += label + "  " + plural(static_cast<std::size_t>(head.readout.nonfinite_rows), "row") +
              " with NaN or infinity, left out of every number\n";
    for (const Flag& flag : head.flags) {
      text += label + "  " + name(flag.severity) + "  " + name(flag.kind) + ": " + flag.evidence +
              ".\n";
      if (!flag.cause.empty()) text += "      " + flag.cause + ".\n";
      if (!flag.remedy.empty()) text += "    → " + flag.remedy + ".\n";
    }
  }
  return text;
}

}  // namespace poise
