// Timing on a shared machine: clocks, alternation, medians, the resident-memory mark.
// The contract is in measure.h.
#include "bench/measure.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wall_time() { return seconds_of(CLOCK_MONOTONIC); }

// Contestants run on the calling thread, so its own CPU time is their time, less what other
// processes took from it.
double thread_time() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double Series::best() const {
  return seconds.empty() ? 0 : *std::min_element(seconds.begin(), seconds.end());
}

double Series::median() const { return median_of(seconds); }

std::vector<Series> alternate(const std::vector<std::function<void()>>& contestants,
                              double seconds) {
  constexpr int kLeastRounds = 3;
  std::vector<Series> series(contestants.size());
  for (const auto& run : contestants) run();
  const double end = wall_time() + seconds;
  for (int round = 0; round < kLeastRounds || wall_time() < end; ++round)
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const double start = thread_time();
      contestants[i]();
      series[i].seconds.push_back(thread_time() - start);
    }
  return series;
}

double median_ratio(const Series& a, const Series& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.seconds.size() && i < b.seconds.size(); ++i)
    ratios.push_back(a.seconds[i] / b.seconds[i]);
  return median_of(std::move(ratios));
}

double peak_resident_bytes() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return 0;
  char line[256];
  double kilobytes = 0;
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::strncmp(line, "VmHWM:", 6) == 0) std::sscanf(line + 6, "%lf", &kilobytes);
  std::fclose(status);
  return kilobytes * 1024;
}

void reset_peak_resident() {
  // Writing 5 resets VmHWM: Linux Documentation/filesystems/proc.rst, clear_refs.
  if (std::FILE* marks = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", marks);
    std::fclose(marks);
  }
}

}  // namespace bench
