// The rules: each looks at one head's read-out and fires a flag or not.
//
// In: Readout, statistics, thresholds, context, advice. Out: flags with evidence, cause, remedy and
// factor. Pure functions; what a rule may use is in Case. Order and severity of the result:
// health.cpp. Rules, one by one: docs/health.md, "Verdicts".
#pragma once

#include <poise/health.h>

#include <vector>

namespace poise {

// One head before the rules.
struct Case {
  const Stats& stats;
  const HeadStats& head;
  const Thresholds& thresholds;
  const JudgeContext& context;
  const Readout& readout;
  const Expectation& expectation;
  HeadAdvice advice;
};

// A flag still without words.
inline Flag fire(VerdictKind kind, Severity severity) {
  Flag flag;
  flag.kind = kind;
  flag.severity = severity;
  return flag;
}

// The two families of rules; each appends every flag that fires, in no particular order.
void judge_size(const Case& c, std::vector<Flag>* flags);   // magnitude of dots and logits
void judge_shape(const Case& c, std::vector<Flag>* flags);  // shape of the softmax

// Sorts the flags of a head by severity, then kind, and takes its verdict from the first.
void order_flags(HeadHealth* head);

// The spread that saturation is judged by and remedies start from: of the whole row, or of the row
// without its sink. Needs no advice yet.
struct JudgedSpread {
  double sigma, keys;
};
JudgedSpread judged_spread(const Case& c);

// The spread that remedies aim at: 1 for untrained weights, else target_x sqrt(2 ln keys).
double target_sigma(double keys, const Thresholds& thresholds, const JudgeContext& context);

}  // namespace poise
