// The arithmetic of advice and its sentences: γ, the spread's factor, and who carries them.
//
// In: facts of one head. Out: factors and words. The rules that decide whether a head needs any of
// it are in verdicts_*.cpp, which quote what is computed here.
#include <poise/advice.h>

#include <algorithm>
#include <cmath>

#include "wording.h"

namespace poise {

const char* name(WeightRule rule) {
  switch (rule) {
    case WeightRule::mha:
      return "mha";
    case WeightRule::gqa:
      return "gqa";
    case WeightRule::mla:
      return "mla";
    case WeightRule::scale:
      return "scale";
  }
  return "?";
}

WeightRule weight_rule(std::int64_t q_heads, std::int64_t kv_heads, bool layers_share_weights) {
  if (layers_share_weights) return WeightRule::scale;
  return kv_heads > 0 && q_heads > kv_heads ? WeightRule::gqa : WeightRule::mha;
}

WeightFactors split_factor(double factor, WeightRule rule) {
  WeightFactors factors;
  const double root = std::sqrt(factor);
  switch (rule) {
    case WeightRule::mha:
      factors.query = factors.key = factors.query_rope = factors.key_rope = root;
      break;
    case WeightRule::gqa:
      factors.query = factors.query_rope = factor;
      break;
    case WeightRule::mla:
      factors.query = factors.key = root;
      factors.query_rope = factor;
      break;
    case WeightRule::scale:
      factors.scale = factor;
      break;
  }
  return factors;
}

double clip_gamma(double max_score, double tau) {
  return max_score > 0 ? std::min(1.0, tau / max_score) : 1;
}

double spread_factor(double sigma, double target_sigma) {
  const double factor = target_sigma / sigma;
  return std::isfinite(factor) ? factor : std::numeric_limits<double>::quiet_NaN();
}

HeadAdvice advise(const ScoreFacts& facts) {
  HeadAdvice advice;
  advice.facts = facts;
  advice.gamma = clip_gamma(facts.max_score, facts.tau);
  advice.clip = split_factor(advice.gamma, facts.rule);
  advice.spread_factor = spread_factor(facts.sigma, facts.target_sigma);
  advice.spread = split_factor(advice.spread_factor, facts.rule);
  return advice;
}

std::string clip_text(const HeadAdvice& advice) {
  const std::string text = "QK-clip, γ = " + number(advice.gamma) + ": ";
  switch (advice.facts.rule) {
    case WeightRule::scale:
      return text + "scale " + times(advice.clip.scale) +
             "; the layers share Wq and Wk, so leave them";
    case WeightRule::gqa:
      return text + "Wq of this head " + times(advice.clip.query) + "; its key head serves " +
             std::to_string(advice.facts.group) + " query heads, so leave Wk";
    case WeightRule::mla:
      return text + "no-position rows of Wq and Wk of this head " + times(advice.clip.query) +
             " each, its rotary rows of Wq " + times(advice.clip.query_rope) +
             "; the rotary key serves every head, so leave it";
    case WeightRule::mha:
      break;
  }
  return text + "Wq and Wk of this head " + times(advice.clip.query) + " each";
}

std::string spread_text(const HeadAdvice& advice) {
  const double factor = advice.spread_factor, scale = advice.facts.scale;
  const std::string text = "scale " + times(factor) + " (" + number(scale) + " → " +
                           number(scale * factor) + ") brings σ to " +
                           number(advice.facts.target_sigma);
  switch (advice.facts.rule) {
    case WeightRule::scale:
      return text + "; the layers share Wq and Wk, so change the scale";
    case WeightRule::gqa:
      return text + ", and so does Wq of this head " + times(advice.spread.query);
    case WeightRule::mla:
      return text + ", and so do the no-position rows of Wq and Wk " + times(advice.spread.query) +
             " each with the rotary rows of Wq " + times(advice.spread.query_rope);
    case WeightRule::mha:
      break;
  }
  return text + ", and so do Wq and Wk " + times(advice.spread.query) + " each";
}

std::string to_text(const HeadAdvice& advice) {
  const ScoreFacts& facts = advice.facts;
  if (std::isnan(facts.max_score)) return "Nothing was measured.";
  std::string text =
      "Largest score " + number(facts.max_score) + ", τ = " + number(facts.tau) + ": ";
  text += advice.gamma < 1 ? clip_text(advice) : "nothing to clip";
  text += ". Spread σ " + number(facts.sigma) + ": ";
  text += std::isnan(advice.spread_factor) ? "no scale changes it" : spread_text(advice);
  return text + ".";
}

}  // namespace poise
