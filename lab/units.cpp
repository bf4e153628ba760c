// Threads that take the next unit until there is none.
//
// In: units. Out: the refusal with the smallest index, whoever met it first. Must not happen here:
// an order in which outcomes are folded.
#include "lab/units.h"

#include <poise/cpu.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace poise::lab {

Error run_units(const RunSettings& settings, std::int64_t count,
                const std::function<Error(std::int64_t unit)>& unit) {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stopped{false};
  std::mutex mutex;  // of everything below
  std::int64_t refused = count;
  Error error;
  std::exception_ptr exception;
  const auto work = [&] {
    while (!stopped) {
      const std::int64_t index = next++;
      if (index >= count) return;
      try {
        Error outcome = unit(index);
        const std::lock_guard lock(mutex);
        if (outcome) stopped = true;
        if (outcome && index < refused) {
          refused = index;
          error = std::move(outcome);
        }
        if (settings.watcher != nullptr) settings.watcher->advance();
      } catch (...) {
        const std::lock_guard lock(mutex);
        stopped = true;
        exception = std::current_exception();
      }
    }
  };
  const std::int64_t wanted = settings.threads > 0 ? settings.threads : default_threads();
  std::vector<std::jthread> threads;
  for (std::int64_t i = 1; i < std::min(wanted, count); ++i) threads.emplace_back(work);
  work();
  threads.clear();  // joins
  if (exception) std::rethrow_exception(exception);
  return error;
}

}  // namespace poise::lab
