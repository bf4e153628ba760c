// The sections of poise_bench. Each prints one table; a row is one shape beside the machine's
// limit.
#pragma once

#include <string>

#include "kernels/kernels.h"

namespace bench {

struct Settings {
  double seconds = 3;     // per row
  bool tolerant = false;  // a goal missed does not change the exit code (smoke runs)
};

// Percent of the FMA peak of forward attention, full and causal, f32 and f64. Returns missed goals.
int forward_section(const poise::Kernels& kernels, const Settings& settings);

// What measuring costs, by level and sampling, in percent of the same call without it.
int tally_section(const poise::Kernels& kernels, const Settings& settings);

// What gradient statistics cost, in percent of the same backward call without them.
int gradient_section(const poise::Kernels& kernels, const Settings& settings);

// What bias, masks and dropout cost, in percent of a call without them that sees the same keys.
int mask_section(const Settings& settings);

// Time against the spread of the logits: subnormal weights must cost nothing.
int spread_section(const Settings& settings);

// Memory a long call adds to the process.
int memory_section(const Settings& settings);

}  // namespace bench
