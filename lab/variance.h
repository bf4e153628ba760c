// Var(q.k) against head_dim, for elements of several kinds, with and without 1/sqrt(D).
//
// In: sizes. Out: tables and a picture; the scores are attention()'s own, theory is that of
// elements.h. Must not happen here: a score of its own.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <vector>

#include "lab/elements.h"
#include "lab/result.h"
#include "lab/units.h"

namespace poise::lab {

struct VarianceRequest {
  std::vector<std::int64_t> head_dims{2,   4,   8,   16,   32,   64,
                                      128, 256, 512, 1024, 2048, 4096};  // ascending, 1 ... 65536
  // Independent sets of 64 queries and 64 keys per kind of elements and width, at least 2; 64/D
  // times as many below 64, where the lengths of few vectors scatter.
  std::int64_t sets = 48;
  std::int64_t model_dim = 512;  // of layer_norm, 2 ... 65536
  double correlation = 0.1;      // of correlated elements, 0 ... 1
};

Error run_variance(const VarianceRequest& request, const RunSettings& settings, Outcome* outcome);

}  // namespace poise::lab
