// What another temperature would do to a head: the same queries and keys run again with another
// scale, with QK-norm, with a softcap. Recomputed by the kernels, never estimated from statistics.
//
// In: query, key and options of a call, and what to change. Out: statistics of each run, which
// read_what_ifs() (health.h) sets beside the call as it was. No value takes part: statistics are of
// the scores.
#pragma once

#include <poise/attention.h>
#include <poise/error.h>
#include <poise/health.h>
#include <poise/stats.h>
#include <poise/tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace poise {

// One change of a call. The default changes nothing.
struct WhatIf {
  std::string label;  // empty = what describe() says
  // Multiplies the scale of every head; finite.
  double scale_factor = 1;
  // [Hq], finite: multiplies each head's scale, beside scale_factor. Empty = 1 for all.
  std::vector<double> factor_per_head;
  // Log-n scaling (SSMax 2501.19399, YaRN): every scale times ln Lk / ln trained_keys. One factor
  // for the call, from the length of its keys, not from what a row sees of them. 0 = off, else
  // >= 2.
  double trained_keys = 0;
  // QK-norm without gains: every row of query and key divided by its root mean square (computed in
  // double, rounded to f32, f64 for f64; a row of zeros stays), and 1/sqrt(D) in place of every
  // scale. Scores then lie within sqrt(D); the factors above multiply that scale.
  bool qk_norm = false;
  // In place of the call's softcap; 0 = none.
  std::optional<double> softcap;
};

// "scale × 0.5", "QK-norm", "softcap 50", "log-n from 512", joined by commas; "scale per head" for
// factor_per_head.
std::string describe(const WhatIf& what_if);

// advised_factor() (health.h) of each head, 1 where there is none: WhatIf::factor_per_head.
std::vector<double> advised_factors(const Health& health);

// Runs the call once for each what-if and appends to *results, in their order.
//   query [B, Hq, Lq, D], key [B, Hkv, Lk, D], options: as for attention().
//   request: level, sampling and bins of every run; full for entropy slopes and gradients.
// Errors ([what_if]): those of attention() for query, key, options and request; bad_value for a
//   factor that is not finite, another number of factors than heads, trained_keys below 2 or a call
//   of fewer than two keys with it; out_of_memory. *results is unchanged on an error.
// Cost: of each run, attention with Dv = 1 and its statistics; with qk_norm copies of query and
// key.
//   No Lq x Lk memory. Thread-safe for distinct *results.
Error what_if(const ConstTensor& query, const ConstTensor& key, const Options& options,
              const std::vector<WhatIf>& what_ifs, std::vector<WhatIfStats>* results,
              const StatsRequest& request = {.level = StatsLevel::full});

}  // namespace poise
