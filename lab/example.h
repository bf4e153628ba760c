// The worked figures of the lesson "why divide by sqrt(d_k)", computed by attention() itself.
//
// In: a seed for the one figure that is drawn, the histogram of scaled scores of standard normal q
// and k. Out: tables and a picture. Source of the figures: Vaswani et al. 2017 (1706.03762), 3.2.1,
// and softmax examples of its lesson. Must not happen here: a figure that is typed in.
#pragma once

#include <poise/error.h>

#include <cstdint>

#include "lab/result.h"
#include "lab/units.h"

namespace poise::lab {

struct ExampleRequest {
  std::int64_t head_dim = 64;  // of the histogram, 1 ... 4096
  std::int64_t sets = 400;     // independent sets of 64 queries and 64 keys, at least 2
};

Error run_example(const ExampleRequest& request, const RunSettings& settings, Outcome* outcome);

}  // namespace poise::lab
