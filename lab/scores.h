// Moments of the scores of one set of queries and keys, as attention() measured and handed them
// out.
//
// In: q and k of one set, drawn afresh, and a scale. Out: numbers of that set, one unit of an
// experiment. Must not happen here: a score that attention() did not compute.
#pragma once

#include <poise/error.h>
#include <poise/stats.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/result.h"

namespace poise::lab {

struct SetMoments {
  double mean = 0;
  double variance = 0;            // within rows, dividing by n - 1: without bias
  double second = 0, fourth = 0;  // mean of the squares and fourth powers of the scores
  Histogram histogram;
};

// q [queries, head_dim], k [keys, head_dim]; scale absent = 1/sqrt(head_dim). One thread.
Error measure_set(std::span<const float> q, std::span<const float> k, std::int64_t head_dim,
                  std::optional<double> scale, SetMoments* moments);

// Excess kurtosis of scores of mean 0, from their moments in independent sets, with the jackknife's
// error and without its bias.
Estimate excess_kurtosis(const std::vector<SetMoments>& sets);

// The share of scores in (-bound, bound); bound is a border of bins.
double share_within(const Histogram& histogram, double bound);

}  // namespace poise::lab
