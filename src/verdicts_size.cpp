// Rules about magnitude: overflow in float16, precision in 16 bits, ties, exploding and hot scores.
//
// These protect arithmetic and training from large numbers; they say nothing about the shape of the
// softmax (verdicts_shape.cpp). In: a Case. Out: flags. A signal that was not measured is NaN or
// infinite with the sign that crosses no threshold.
#include <algorithm>
#include <cmath>
#include <string>

#include "verdicts.h"
#include "wording.h"

namespace poise {
namespace {

std::string limit(double threshold) { return " (limit " + number(threshold) + ")"; }

constexpr const char* kSubtractMean = "subtract the mean key (exact; lse += scale · q·mean)";

std::string beginning(std::string sentence) {
  sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  return sentence;
}

std::string mean_cause(double mean) {
  return "The mean vectors of q and k alone give " + number(mean) +
         ", which every key of a row shares and the softmax ignores";
}

// The part of a head's scores that comes from the mean vectors of q and k; NaN where unknown.
double mean_score(const Case& c) {
  return c.head.inputs.q_rows > 0 ? c.head.inputs.qk_mean * c.head.scale : std::nan("");
}

// Hot through the mean alone: a factor small enough for it would leave the softmax next to nothing
// of what it sees, and subtracting it costs nothing.
bool hot_through_mean(const Case& c) {
  const double score = c.readout.max_score, mean = mean_score(c);
  return mean > score / 2 && score - mean <= c.thresholds.hot_bad;
}

void judge_overflow(const Case& c, std::vector<Flag>* flags) {
  const double dot = c.readout.max_abs_dot;
  if (!(dot >= c.thresholds.f16_warn)) return;
  const bool critical = dot >= c.thresholds.f16_overflow;
  Flag flag = fire(VerdictKind::overflow_f16, critical ? Severity::critical : Severity::warn);
  flag.evidence =
      "|q·k| reaches " + number(dot) + ", " + number(std::fabs(c.readout.f16_headroom_bits)) +
      (c.readout.f16_headroom_bits < 0 ? " bits above" : " bits below") + " the largest float16";
  const double mean = c.head.inputs.qk_mean;
  if (c.head.inputs.q_rows > 0 && std::fabs(mean) > dot / 2) flag.cause = mean_cause(mean);
  flag.remedy = "Multiply q by the scale before the product (|q·k| then reaches " +
                number(dot * std::fabs(c.head.scale)) + "), " + kSubtractMean +
                ", accumulate in float32";
  flags->push_back(flag);
}

void judge_precision(const Case& c, std::vector<Flag>* flags) {
  const bool is_bf16 = c.context.scores_stored == JudgeContext::Storage::bf16;
  if (!is_bf16 && c.context.scores_stored != JudgeContext::Storage::f16) return;
  const double warn = is_bf16 ? c.thresholds.bf16_score_warn : c.thresholds.f16_score_warn;
  const double bad = is_bf16 ? c.thresholds.bf16_score_bad : c.thresholds.f16_score_bad;
  const double logit = c.readout.max_abs_logit;
  if (!(logit >= warn)) return;
  Flag flag = fire(VerdictKind::precision_16bit, logit >= bad ? Severity::bad : Severity::warn);
  const double step = is_bf16 ? c.readout.bf16_step : c.readout.f16_step;
  flag.evidence = "|logit| reaches " + number(logit) + limit(logit >= bad ? bad : warn) + "; " +
                  (is_bf16 ? "bfloat16" : "float16") + " steps there are " + number(step) +
                  ", so weights are wrong by up to " + share(std::expm1(step / 2));
  flag.remedy = "Keep the logits in float32";
  flags->push_back(flag);
}

void judge_ties(const Case& c, std::vector<Flag>* flags) {
  if (!c.context.pv_in_bf16) return;
  const auto ties = static_cast<double>(c.head.near_tie_rows);
  if (!(c.readout.near_tie > c.thresholds.tie_share && ties >= c.thresholds.tie_rows)) return;
  Flag flag = fire(VerdictKind::tie_bias_bf16, Severity::warn);
  flag.evidence = std::to_string(c.head.near_tie_rows) + " of " +
                  std::to_string(c.head.measured_rows) + " rows have two or more keys within " +
                  number(c.stats.request.near_tie_gap) + " of their maximum" +
                  limit(c.thresholds.tie_share);
  flag.cause = "Equal weights near 1 round the same way in bfloat16, so the errors add up";
  flag.remedy = "Multiply weights by values in float32";
  flags->push_back(flag);
}

void judge_exploding(const Case& c, std::vector<Flag>* flags) {
  const double logit = c.readout.max_abs_logit;
  if (!(logit >= c.thresholds.exploding_bad)) return;
  const bool critical = logit >= c.thresholds.exploding_critical;
  Flag flag = fire(VerdictKind::exploding, critical ? Severity::critical : Severity::bad);
  flag.evidence = "|logit| reaches " + number(logit) +
                  limit(critical ? c.thresholds.exploding_critical : c.thresholds.exploding_bad);
  flag.cause = "Training runs that diverged went through logits of this size";
  flag.remedy = hot_through_mean(c) ? beginning(kSubtractMean)
                                    : "QK-norm, or QK-clip at " + number(c.thresholds.hot_bad);
  flags->push_back(flag);
}

void judge_hot(const Case& c, std::vector<Flag>* flags) {
  const double score = c.readout.max_score, tau = c.thresholds.hot_bad;
  if (!(score >= c.thresholds.hot_watch)) return;
  Flag flag = fire(VerdictKind::hot, score > tau ? Severity::bad : Severity::watch);
  flag.evidence =
      "The largest score is " + number(score) + limit(score > tau ? tau : c.thresholds.hot_watch);
  if (c.stats.has_softcap)
    flag.evidence += "; after the softcap " + number(c.stats.softcap) + " the largest logit is " +
                     number(c.readout.max_logit);
  if (score <= tau) {
    flag.remedy = "Watch it over training: QK-clip acts above " + number(tau);
    flags->push_back(flag);
    return;
  }
  const WeightFactors& clip = c.advice.clip;
  const double factor = c.advice.facts.rule == WeightRule::scale ? clip.scale : clip.query;
  if (hot_through_mean(c)) {
    const double left = c.readout.sigma * c.advice.gamma;
    flag.cause = mean_cause(mean_score(c));
    flag.remedy = beginning(kSubtractMean) + "; QK-clip, γ = " + number(c.advice.gamma) +
                  ", would narrow the spread from " + number(c.readout.sigma) + " to " +
                  number(left) + " as well";
    // A factor that leaves the head diffuse, KL = σ²/2, corrects nothing.
    if (left * left / 2 >= c.thresholds.diffuse_kl) flag.factor = factor;
  } else {
    flag.factor = factor;
    flag.remedy = clip_text(c.advice);
  }
  flags->push_back(flag);
}

}  // namespace

void judge_size(const Case& c, std::vector<Flag>* flags) {
  judge_overflow(c, flags);
  judge_precision(c, flags);
  judge_ties(c, flags);
  judge_exploding(c, flags);
  judge_hot(c, flags);
}

}  // namespace poise
