// From statistics to a verdict per head: what theory expects, what is wrong, why, and the number
// that corrects it. Works on any engine's Stats: nothing here knows how attention was computed.
//
// A flag is one rule that fired, with its evidence, its cause and its remedy in words and numbers.
// All flags of a head are kept; its verdict is the one of highest severity, ties going to the order
// of VerdictKind. Rules, formulas and sources: docs/health.md.
#pragma once

#include <poise/advice.h>
#include <poise/stats.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace poise {

enum class Severity : std::uint8_t { healthy, information, watch, warn, bad, critical };
inline constexpr int kSeverities = 6;
const char* name(Severity severity);  // "healthy" ... "critical"

enum class VerdictKind : std::uint8_t {
  overflow_f16,
  precision_16bit,
  tie_bias_bf16,
  exploding,
  hot,
  saturated,
  peaked_by_design,
  sink_dominated,
  diffuse,
  dead_gradient,
  healthy,
};
const char* name(VerdictKind kind);  // "overflow fp16", "saturated", "peaked by design", ...

// Every threshold of every rule; list_thresholds() prints them with their sources.
struct Thresholds {
  double f16_overflow = 65520;  // |q.k| that rounds to infinity in float16: critical
  double f16_warn = 32752;      // half of it
  double bf16_score_warn = 16, bf16_score_bad = 64;      // |logit|, scores stored in bfloat16
  double f16_score_warn = 128, f16_score_bad = 512;      // |logit|, scores stored in float16
  double tie_share = 0.01;                               // share of rows with a near tie
  double tie_rows = 10;                                  // and at least this many
  double exploding_bad = 1e3, exploding_critical = 1e4;  // |logit|
  double hot_watch = 50, hot_bad = 100;  // signed score; hot_bad is also QK-clip's tau
  double saturated_share = 0.5;          // rows with top-1 > .99
  double saturated_trace = 0.02;         // median tr J
  double saturated_x = 1;                // sigma / sqrt(2 ln n)
  double peaked_place_share = 0.9;       // arg-max at one offset or in one column
  double peaked_rows = 10;               // and at least this many rows
  double sink_weight = 0.3;              // mean weight of a tracked key
  double diffuse_kl = 0.05;              // nats
  double dead_gain = kDeadGain;          // median gain
  double dead_transmission = 0.25;       // measured over expected transmission
  double target_x = 0.7;                 // sigma* = target_x sqrt(2 ln n); 1 at initialisation
};
struct ThresholdInfo {
  std::string name;  // the member's name
  double value;
  std::string meaning;  // one clause with its unit
  std::string source;   // paper, arXiv number, or "derived"
};
std::vector<ThresholdInfo> list_thresholds(const Thresholds& thresholds = {});

// What the reader of the scores does with them; changes which rules apply, never the statistics.
struct JudgeContext {
  enum class Storage : std::uint8_t { f32, f16, bf16 };
  Storage scores_stored = Storage::f32;  // the engine that runs this model stores scores as
  bool pv_in_bf16 = false;               // and multiplies weights by values in bfloat16
  bool at_initialisation = false;        // untrained weights: sigma* = 1
  bool layers_share_weights = false;     // advise the scale, not the weights
};

// Three predictions of the spread of q.k within a row, beside its measurement. In units of dots
// squared; multiply by scale^2 for scores.
struct Expectation {
  double iid = 0;          // D: independent elements of mean 0 and variance 1 (Bienayme)
  double norms = 0;        // D sigma_q^2 sigma_k^2: their true sizes, no alignment (A = 1)
  double full = 0;         // norms * A: exact when every key is visible to every query
  double measured = 0;     // mean within-row variance of scores / scale^2; NaN when the scale is 0
  double norm_factor = 1;  // norms / iid
  double alignment_factor = 1;    // full / norms = A
  bool moments_known = false;     // norms and full are NaN otherwise
  bool assumption_holds = false;  // elements look independent with mean 0 and variance 1
  std::string assumption;         // one sentence: holds, or which part fails by how much
};
Expectation expect(const HeadStats& head, std::int64_t head_dim);

struct Flag {
  VerdictKind kind = VerdictKind::healthy;
  Severity severity = Severity::healthy;
  std::string evidence;  // the numbers that fired the rule, beside the thresholds they crossed
  std::string cause;     // why, as far as the statistics tell; may be empty
  std::string remedy;    // what to do, with this head's number
  // Multiply by it the scale (saturated, diffuse, dead; hot too when layers share weights) or Wq
  // (hot); NaN where no number corrects it.
  double factor = std::numeric_limits<double>::quiet_NaN();
};

// Per-row read-outs of one head that rules and faces share; NaN where not measured.
struct Readout {
  double sigma = 0;         // median within-row standard deviation of the scores
  double keys = 0;          // geometric mean of the visible keys per measured row: exp(mean ln n)
  double x = 0;             // sigma / sqrt(2 ln keys): 1 and more is saturation
  double target_sigma = 0;  // sigma*
  double factor = 0;        // sigma* / sigma, NaN where that is not finite
  std::int64_t measured_rows = 0;   // what the shares below are shares of
  std::int64_t nonfinite_rows = 0;  // left out everywhere
  double max_score = 0;             // S+, signed, before softcap and bias
  // Of what the softmax sees, after softcap, ALiBi and bias; equal to sigma and max_score where
  // logits are the scores (Stats::logits_differ()).
  double logit_sigma = 0;    // median within-row standard deviation of the logits
  double max_logit = 0;      // signed
  double max_abs_logit = 0;  // S
  // Distance of neighbouring float16 (infinite beyond 65504) and bfloat16 numbers at S: what a
  // logit stored like that is rounded to.
  double f16_step = 0, bf16_step = 0;
  double max_abs_dot = 0;        // R
  double f16_headroom_bits = 0;  // log2(65504 / R)
  double entropy_ratio = 0;      // mean H / ln n
  double kl = 0;                 // mean, nats
  double top1 = 0;               // median
  double above_99 = 0;           // share of measured rows
  double trace = 0;              // median tr J
  double gain = 0;               // median (full)
  double dead = 0;               // share of rows with gain < .1 (full)
  // Of the gradients that backward() measured; root mean squares over rows, compare those two.
  double transmission = 0;           // |dS| / |dP - mean dP| as measured
  double expected_transmission = 0;  // the same for independent dP, from forward's Jacobians (full)
  double passed_gain = 0;            // median of n times the measured transmission
  double passed_dead = 0;            // share of rows in which that is < .1
  double effective_keys = 0;         // median 1 / sum p^2
  double near_tie = 0;               // share of rows
  double entropy_slope = 0;          // mean dH/d ln scale, nats (full)
  std::int64_t sink_key = -1;        // measured key of largest mean weight (full), -1 = none
  double sink_weight = 0;            // its mean weight
  double argmax_column_share = 0, argmax_offset_share = 0;  // most frequent place of the arg-max
  std::int64_t argmax_column = 0, argmax_offset = 0;        // and where it is (full)
};
Readout read_out(const HeadStats& head, const Stats& stats, const JudgeContext& context = {},
                 const Thresholds& thresholds = {});

// The statistics of one call run again with another temperature (whatif.h): the kernels' own, never
// estimated from those of the call as it was.
struct WhatIfStats {
  std::string label;        // "scale × 0.5", "QK-norm", "softcap 50"
  bool scale_only = false;  // nothing but the scale differs, so a first-order preview exists
  Stats stats;              // of the same heads; level full, lower levels leave numbers NaN
};

// What one head reads at one temperature; NaN where not measured.
struct WhatIfReadout {
  std::string label;
  double scale = 0;                  // the scale the head ran with
  double softcap = 0;                // 0 = off
  double sigma = 0;                  // median within-row standard deviation of the logits
  double entropy = 0;                // mean H, nats
  double entropy_ratio = 0;          // mean H / ln n
  double above_99 = 0;               // share of measured rows with top-1 > .99
  double trace = 0;                  // median tr J
  double gain = 0;                   // median
  double expected_transmission = 0;  // sqrt(mean |J|_F^2 / (n - 1)): of independent gradients
  // What the head as it was makes of it to first order: the change of mean H from its own,
  // dH/d ln scale times the change of ln scale. Far out it is wrong, which is why it stands beside
  // `entropy`. NaN where more than the scale differs.
  double first_order_entropy_change = 0;
};

// The head as it is, labelled so, then each what-if that has this head and changes something for
// it: one of the scale alone that leaves this head's scale is left out. Empty without what-ifs.
std::vector<WhatIfReadout> read_what_ifs(const Stats& as_it_is,
                                         const std::vector<WhatIfStats>& what_ifs,
                                         std::size_t head);

struct HeadHealth {
  int head = 0;
  VerdictKind verdict = VerdictKind::healthy;
  Severity severity = Severity::healthy;
  std::vector<Flag> flags;  // in order of severity, then of VerdictKind
  Readout readout;
  Expectation expectation;
  HeadAdvice advice;  // whether or not a flag asks for it
};

struct Health {
  std::vector<HeadHealth> heads;
  std::array<int, kSeverities> counts{};  // heads by the severity of their verdict
  Severity worst = Severity::healthy;
};

// Judges every head. Never fails: heads without measured rows are healthy with no flags.
Health judge(const Stats& stats, const Thresholds& thresholds = {},
             const JudgeContext& context = {});

// The factor by which the head's flags ask its scale to be multiplied (saturated, diffuse, dead
// gradient), the most severe first; NaN where none does. That of hot is not among them: it is of
// weights, and for the scale it is advice.gamma.
double advised_factor(const HeadHealth& head);

// A short plain-text summary: one line of counts, then each flag with evidence and remedy.
std::string to_text(const Health& health);

}  // namespace poise
