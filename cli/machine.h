// Where and when a figure was measured, as far as the operating system tells.
//
// In: /proc and /sys, the clock. Out: names and sizes; empty or 0 where a system does not say. Must
// not happen here: a measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poise::cli {

struct Cache {
  int level = 0;
  std::string type;        // "Data", "Instruction" or "Unified"
  std::int64_t bytes = 0;  // of one of them
  std::string shared_by;   // CPUs that share one: "0-1"
};

struct Machine {
  std::string cpu;            // "AMD EPYC"
  int cores = 0;              // this system shows
  std::vector<Cache> caches;  // of its first CPU
  std::int64_t last_cache_bytes() const;
};

Machine this_machine();

// Bytes that programs can still have without swapping; 0 where unknown.
std::int64_t available_memory_bytes();

// The compiler of this program, with its version.
std::string compiler_text();

// "30 Nov 2026 12:00 UTC".
std::string now_text();

}  // namespace poise::cli
