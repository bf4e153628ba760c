// Runs the units of an experiment on several threads.
//
// In: a number of units and what one unit does. Out: every unit done, or the refusal of the first
// one that was refused. A unit draws from a Random of its own and keeps its outcome in a place of
// its own, which the caller folds in order afterwards: so no number depends on the thread count.
// Must not happen here: anything about attention.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <functional>

namespace poise::lab {

// Hears how far an experiment is. Calls never overlap; they come from any thread.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void begin(std::int64_t units) = 0;  // how many advance() will follow
  virtual void advance() = 0;
};

struct RunSettings {
  std::uint64_t seed = 1;
  int threads = 0;  // 0 = default_threads()
  Watcher* watcher = nullptr;
};

// Calls unit(0) ... unit(count - 1), each once, and advances the watcher after each. Once a unit
// has been refused no further one begins. Exceptions of a unit leave here. A unit that calls the
// library uses one thread: the units are what runs at the same time.
Error run_units(const RunSettings& settings, std::int64_t count,
                const std::function<Error(std::int64_t unit)>& unit);

}  // namespace poise::lab
