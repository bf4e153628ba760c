// Timing on a shared machine: clocks, alternation, medians, the resident-memory mark.
// The contract is in series.h.
#include "timing/series.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace poise::timing {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double now(Clock clock) {
  return seconds_of(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}

// Seconds of `repeats` runs.
double turn(const std::function<void()>& run, std::int64_t repeats, Clock clock) {
  const double start = now(clock);
  for (std::int64_t i = 0; i < repeats; ++i) run();
  return now(clock) - start;
}

// How often a contestant runs in a turn: once when it is long enough. Its first run is slower than
// the others (cold caches, memory not yet mapped), so short ones are looked at once more.
std::int64_t repeats_of(const std::function<void()>& run, Clock clock, double least_turn) {
  constexpr double kShortest = 1e-7;  // below what the clock resolves
  double seconds = turn(run, 1, clock);
  if (seconds >= least_turn) return 1;
  seconds = std::max(turn(run, 1, clock), kShortest);
  return std::max<std::int64_t>(1, std::llround(least_turn / seconds));
}

}  // namespace

double Series::best() const {
  return seconds.empty() ? 0 : *std::min_element(seconds.begin(), seconds.end());
}

double Series::median() const { return median_of(seconds); }

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Series> alternate(const std::vector<std::function<void()>>& contestants, double seconds,
                              Clock clock, double least_turn) {
  constexpr int kLeastRounds = 3;
  std::vector<Series> series(contestants.size());
  std::vector<std::int64_t> repeats;
  for (const auto& run : contestants) repeats.push_back(repeats_of(run, clock, least_turn));
  const double end = now(Clock::wall) + seconds;
  for (int round = 0; round < kLeastRounds || now(Clock::wall) < end; ++round)
    for (std::size_t i = 0; i < contestants.size(); ++i)
      series[i].seconds.push_back(turn(contestants[i], repeats[i], clock) /
                                  static_cast<double>(repeats[i]));
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

bool reset_peak_resident() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  // Writing 5 resets VmHWM: Linux Documentation/filesystems/proc.rst, clear_refs.
  std::FILE* marks = std::fopen("/proc/self/clear_refs", "w");
  if (marks == nullptr) return false;
  const bool written = std::fputs("5", marks) >= 0;
  return std::fclose(marks) == 0 && written;
}

void share_one_heap() {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace poise::timing
