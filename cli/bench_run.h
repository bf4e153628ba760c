// Runs one case of `poise bench` beside the machine's limits and says how close it came.
//
// In: a case, how long, how many threads. Out: times, rates, percentages, the cost of statistics,
// memory. Must not happen here: words, files.
#pragma once

#include <poise/stats.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bench_case.h"

namespace poise::cli {

struct BenchSettings {
  int threads = 1;                    // of a call and of the limit beside it
  double seconds = 2;                 // per case
  bool stats = false;                 // also with statistics at each level
  std::int64_t last_cache_bytes = 0;  // the machine's; 0 = unknown
};

// A limit that ran in turn with the case.
struct LimitShare {
  double rate = 0;            // the limit's own best: flops or bytes per second
  double percent_best = 0;    // best run of the case against best run of the limit
  double percent_median = 0;  // median of the ratios of neighbouring runs
};

// More time than without statistics.
struct StatsCost {
  StatsLevel level = StatsLevel::max;
  double percent_best = 0, percent_median = 0;
};

struct BenchFigures {
  std::int64_t turns = 0;
  std::int64_t layers = 1;          // keys and values that took turns
  double best_s = 0, median_s = 0;  // seconds of one call
  LimitShare arithmetic;            // needed flops against multiply-adds on registers
  LimitShare stream;                // needed keys and values against reading just them
  std::vector<StatsCost> stats;
  std::optional<double> memory_bytes;  // added by a first call; absent where unknown

  // Which of the two takes longer for what the case needs: the limit it is judged by.
  bool memory_bound() const { return stream.percent_best > arithmetic.percent_best; }
  const LimitShare& nearer() const { return memory_bound() ? stream : arithmetic; }
};

// Decode (one query) takes its keys and values from as many layers in turn as fill the last-level
// cache four times, at most 64: in a model the other layers would have evicted them.
// Throws Failure when attention refuses the case, std::bad_alloc when its tensors do not fit.
BenchFigures run_case(const BenchCase& bench, const BenchSettings& settings);

}  // namespace poise::cli
