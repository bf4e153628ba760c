// Timing on a shared machine: alternating runs, best and median, the machine's peak beside every
// call.
//
// The machine has quiet and slow states that last tens of seconds, so nothing is compared across
// time: contestants run in turn, A B A B ..., and only ratios of neighbours are taken.
#pragma once

#include <functional>
#include <vector>

namespace bench {

struct Series {
  std::vector<double> seconds;  // one per turn, in the order they ran

  double best() const;
  double median() const;
};

// Runs the contestants in turn, once each per round, until `seconds` have passed, at least 3 rounds
// after one warm-up round.
std::vector<Series> alternate(const std::vector<std::function<void()>>& contestants,
                              double seconds);

// Median over rounds of a's time divided by b's.
double median_ratio(const Series& a, const Series& b);

// Bytes the process has ever had resident, and a reset of that mark (Linux; 0 where unknown).
double peak_resident_bytes();
void reset_peak_resident();

}  // namespace bench
