// Rules about the shape of the softmax: saturated, peaked by design, sink, diffuse, dead gradient.
//
// In: a Case. Out: flags. A head that a sink dominates is judged for saturation by what is left
// without the sink; a head that is peaked by design has its saturation reported as a warning only.
// Not here: magnitudes (verdicts_size.cpp), closed forms (theory.cpp).
#include <poise/theory.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "verdicts.h"
#include "wording.h"

namespace poise {
namespace {

// A scale within a hundredth of a textbook value is meant to be that value.
constexpr double kSameScale = 0.01;

bool is_scale(double scale, double textbook) {
  return std::fabs(scale - textbook) <= kSameScale * std::fabs(textbook);
}

// What saturation is judged by: the whole row, or the row without its sink.
struct Shape {
  double sigma, keys, x, above_99, trace;
  bool without_sink;
};

bool has_sink(const Case& c) { return c.readout.sink_weight > c.thresholds.sink_weight; }

// The row's statistics without the key that read_out() names.
const TrackedKey& sink_of(const Case& c) {
  if (c.readout.sink_key == c.head.column.key) return c.head.column.tracked;
  const auto& tracked = c.stats.request.tracked;
  const auto slot = std::find(tracked.begin(), tracked.end(), c.readout.sink_key);
  return c.head.tracked[static_cast<std::size_t>(slot - tracked.begin())];
}

Shape shape_of(const Case& c) {
  const Readout& r = c.readout;
  if (has_sink(c)) {
    const TrackedKey& sink = sink_of(c);
    if (sink.rows_without > 0) {
      const double sigma = sink.sigma_without.quantile(0.5), keys = r.keys - 1;
      return {sigma,
              keys,
              sigma / saturation_threshold(keys),
              static_cast<double>(sink.above_99_without) / static_cast<double>(sink.rows_without),
              sink.trace_without.quantile(0.5),
              true};
    }
  }
  return {r.sigma, r.keys, r.x, r.above_99, r.trace, false};
}

bool is_saturated(const Shape& shape, const Thresholds& t) {
  return (shape.above_99 >= t.saturated_share || shape.trace <= t.saturated_trace) &&
         shape.x >= t.saturated_x;
}

bool is_diffuse(const Case& c) { return c.readout.kl < c.thresholds.diffuse_kl; }

// A fixed place counts only where it is a peak: a diffuse head has an arg-max too.
bool has_fixed_place(const Case& c) {
  const bool agrees = c.readout.argmax_offset_share >= c.thresholds.peaked_place_share ||
                      c.readout.argmax_column_share >= c.thresholds.peaked_place_share;
  const auto rows = static_cast<double>(c.readout.measured_rows);
  return agrees && rows >= c.thresholds.peaked_rows && !is_diffuse(c);
}

bool is_peaked_by_design(const Case& c) {
  const bool narrow_one_hot =
      c.readout.above_99 >= c.thresholds.saturated_share && c.readout.x < c.thresholds.saturated_x;
  return narrow_one_hot || has_fixed_place(c);
}

std::string root_of_dim(const Case& c) { return "√" + std::to_string(c.stats.head_dim); }

double textbook_scale(const Case& c) {
  return 1 / std::sqrt(static_cast<double>(c.stats.head_dim));
}

bool scale_forgotten(const Case& c) { return c.stats.head_dim > 1 && is_scale(c.head.scale, 1); }

bool scaled_twice(const Case& c) {
  return c.stats.head_dim > 1 && is_scale(c.head.scale, textbook_scale(c) * textbook_scale(c));
}

// Why the scores are as wide as they are.
std::string cause_of_width(const Case& c) {
  if (scale_forgotten(c))
    return "The scale is 1: the division by " + root_of_dim(c) + " was forgotten";
  std::string cause = is_scale(c.head.scale, textbook_scale(c))
                          ? "The scale is the usual 1/" + root_of_dim(c)
                          : "The scale is " + number(c.head.scale) + ", " +
                                number(c.head.scale / textbook_scale(c)) + " times 1/" +
                                root_of_dim(c);
  const Expectation& e = c.expectation;
  if (!e.moments_known) return cause;
  return cause + "; Var(q·k) " + number(e.full) + " against " + number(e.iid) + ": " +
         times(e.norm_factor) + " from norms, " + times(e.alignment_factor) + " from alignment";
}

// The number that brings the spread to sigma*, where to apply it, and how to keep it there.
void prescribe_scale(const Case& c, bool by_design, Flag* flag) {
  flag->cause = cause_of_width(c);
  flag->factor = c.advice.spread_factor;
  if (by_design) flag->remedy = "If that is its job, leave it. Otherwise: ";
  if (std::isnan(flag->factor)) {
    // Every score of a median row is the same: no scale can widen or narrow it.
    flag->remedy += "look at the bias: the scores themselves have no spread";
    return;
  }
  if (scale_forgotten(c))
    flag->remedy +=
        "scale 1/" + root_of_dim(c) + " = " + number(textbook_scale(c)) + "; for this head ";
  flag->remedy += spread_text(c.advice);
  if (scale_forgotten(c) || !c.expectation.moments_known) return;
  flag->remedy +=
      c.expectation.norm_factor >= c.expectation.alignment_factor
          ? ". When training on: QK-norm, or a lower learning rate for Wq and Wk"
          : ". When training on: a learned temperature, or 1/D instead of 1/" + root_of_dim(c);
}

void judge_saturated(const Case& c, std::vector<Flag>* flags) {
  const Shape shape = shape_of(c);
  const Thresholds& t = c.thresholds;
  if (!is_saturated(shape, t)) return;
  const bool by_design = is_peaked_by_design(c);
  Flag flag = fire(VerdictKind::saturated, by_design ? Severity::warn : Severity::bad);
  if (shape.without_sink)
    flag.evidence = "Without its sink, key " + std::to_string(c.readout.sink_key) + ": ";
  flag.evidence +=
      "σ " + number(shape.sigma) + ", " + number(shape.x) + " times the freezing spread √(2 ln " +
      number(shape.keys) + ") (limit " + number(t.saturated_x) + "); " + share(shape.above_99) +
      " of rows above .99 on one key (limit " + share(t.saturated_share) + "), median tr J " +
      number(shape.trace) + " (limit " + number(t.saturated_trace) + ")";
  if (c.stats.has_softcap)
    flag.evidence += ". σ is of the scores; after the softcap " + number(c.stats.softcap) +
                     " it is " + number(c.readout.logit_sigma);
  prescribe_scale(c, by_design, &flag);
  flags->push_back(flag);
}

std::string place(const Case& c) {
  const Readout& r = c.readout;
  if (r.argmax_offset_share < r.argmax_column_share)
    return share(r.argmax_column_share) + " of rows have their largest weight on key " +
           std::to_string(r.argmax_column);
  std::string where = "at offset " + std::to_string(r.argmax_offset);
  if (r.argmax_offset == -1) where = "on the previous token";
  if (r.argmax_offset == 0) where = "on their own token";
  if (r.argmax_offset == 1) where = "on the next token";
  return share(r.argmax_offset_share) + " of rows have their largest weight " + where;
}

void judge_peaked(const Case& c, std::vector<Flag>* flags) {
  if (!is_peaked_by_design(c)) return;
  Flag flag = fire(VerdictKind::peaked_by_design, Severity::information);
  flag.evidence =
      has_fixed_place(c)
          ? place(c) + " (limit " + share(c.thresholds.peaked_place_share) + ")"
          : share(c.readout.above_99) + " of rows above .99 on one key at a modest spread: σ " +
                number(c.readout.sigma) + ", " + number(c.readout.x) + " of the freezing spread";
  flag.remedy = "If that is its job, leave it";
  flags->push_back(flag);
}

void judge_sink(const Case& c, std::vector<Flag>* flags) {
  if (!has_sink(c)) return;
  const TrackedKey& sink = sink_of(c);
  const std::string number_of_key = std::to_string(c.readout.sink_key);
  Flag flag = fire(VerdictKind::sink_dominated, Severity::information);
  flag.evidence = "Key " + number_of_key + " holds " + share(c.readout.sink_weight) +
                  " of the weight (limit " + share(c.thresholds.sink_weight) + ")";
  if (sink.rows_without > 0)
    flag.evidence += "; the other keys have an entropy of " +
                     number(sink.sum_entropy_without / static_cast<double>(sink.rows_without)) +
                     " nats";
  flag.cause = "Attention sinks are normal in trained models";
  flag.remedy = "Keep key " + number_of_key + " when evicting from a KV cache";
  flags->push_back(flag);
}

void judge_diffuse(const Case& c, std::vector<Flag>* flags) {
  if (!is_diffuse(c)) return;
  Flag flag = fire(VerdictKind::diffuse, Severity::warn);
  flag.evidence = "KL from uniform " + number(c.readout.kl) + " nats (limit " +
                  number(c.thresholds.diffuse_kl) + "), σ " + number(c.readout.sigma) +
                  ": its output is close to the mean of " + number(c.readout.keys) + " values";
  if (c.head.scale == 0) {
    flag.cause = "The scale is 0";
    flag.remedy = "Set the scale to 1/" + root_of_dim(c) + " = " + number(textbook_scale(c));
  } else if (scaled_twice(c)) {
    flag.cause = "The scale is 1/D: divided by " + root_of_dim(c) + " twice, or meant as µP";
    flag.factor = textbook_scale(c) / c.head.scale;
    flag.remedy = "scale " + times(flag.factor) + ", which is 1/" + root_of_dim(c) + " = " +
                  number(textbook_scale(c));
  } else {
    flag.factor = spread_factor(c.readout.sigma, 1);
    if (std::isnan(flag.factor)) {
      flag.cause = "The scores of a row are all the same";
      flag.remedy = "Look at q and k: no scale changes that";
    } else {
      flag.remedy = "scale " + times(flag.factor) +
                    " brings σ to 1; where the context is longer than in training, "
                    "× ln n / ln n_train (log-n scaling, SSMax, YaRN)";
    }
  }
  flags->push_back(flag);
}

// What backward measured, beside what forward's Jacobians let through of independent gradients.
std::string measured_transmission(const Case& c) {
  const Readout& r = c.readout;
  const double limit = c.thresholds.dead_transmission;
  return "Of the gradients sent to the weights " + number(r.transmission) +
         " arrived at the logits, where " + number(r.expected_transmission) +
         " is expected of independent ones: " + times(r.transmission / r.expected_transmission) +
         " (limit " + times(limit) + ")";
}

void judge_dead_gradient(const Case& c, std::vector<Flag>* flags) {
  const bool no_gain = c.readout.gain < c.thresholds.dead_gain;
  const bool is_measured =
      !std::isnan(c.readout.transmission) && !std::isnan(c.readout.expected_transmission);
  const bool not_passed =
      c.readout.transmission < c.thresholds.dead_transmission * c.readout.expected_transmission;
  if (!no_gain && !not_passed) return;
  const bool by_design = is_peaked_by_design(c);
  Flag flag = fire(VerdictKind::dead_gradient, by_design ? Severity::warn : Severity::bad);
  if (no_gain)
    flag.evidence = "Median gain " + number(c.readout.gain) + " (1 uniform, limit " +
                    number(c.thresholds.dead_gain) + "); " + share(c.readout.dead) +
                    " of rows pass less than " + number(kDeadGain);
  if (is_measured) flag.evidence += (flag.evidence.empty() ? "" : ". ") + measured_transmission(c);
  if (!no_gain) {
    flag.cause =
        "The softmax would pass more: what the loss sends is nearly the same for the keys that "
        "hold "
        "the weight and differs where there is none";
    flag.remedy = by_design ? "If that is its job, leave it. Otherwise look" : "Look";
    flag.remedy += " at the values and the gradient of the output; no scale changes that";
    flags->push_back(flag);
    return;
  }
  const auto saturated = std::find_if(flags->begin(), flags->end(), [](const Flag& other) {
    return other.kind == VerdictKind::saturated;
  });
  if (saturated != flags->end()) {
    flag.factor = saturated->factor;
    flag.cause = "The same cause as saturated";
    flag.remedy = "The same factor, " + times(flag.factor);
  } else {
    prescribe_scale(c, by_design, &flag);
  }
  flags->push_back(flag);
}

}  // namespace

JudgedSpread judged_spread(const Case& c) {
  const Shape shape = shape_of(c);
  return {shape.sigma, shape.keys};
}

double target_sigma(double keys, const Thresholds& thresholds, const JudgeContext& context) {
  return context.at_initialisation ? 1 : thresholds.target_x * saturation_threshold(keys);
}

void judge_shape(const Case& c, std::vector<Flag>* flags) {
  judge_saturated(c, flags);
  judge_peaked(c, flags);
  judge_sink(c, flags);
  judge_diffuse(c, flags);
  judge_dead_gradient(c, flags);
}

}  // namespace poise
