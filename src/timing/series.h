// Timing on a shared machine: alternating runs, best and median, the memory a run adds.
//
// The machine has quiet and slow states that last tens of seconds, so nothing is compared across
// time: contestants run in turn, A B A B ..., and only ratios of neighbours are taken. In:
// functions to run. Out: seconds per run. Must not happen here: anything about attention.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace poise::timing {

// What a run is timed by.
enum class Clock : std::uint8_t {
  thread_cpu,  // the calling thread's own, less what other processes took from it: one thread
  wall,        // work that several threads share
};

struct Series {
  std::vector<double> seconds;  // of one run, one entry per turn, in the order they ran

  double best() const;
  double median() const;
};

// The middle of the values, the upper one of two; 0 without any.
double median_of(std::vector<double> values);

// Runs the contestants in turn, once each per round, until `seconds` have passed, at least 3 rounds
// after one warm-up round. A contestant whose warm-up was shorter than `least_turn` seconds is
// repeated within its turn until it is about that long, so that the clock's own cost vanishes.
std::vector<Series> alternate(const std::vector<std::function<void()>>& contestants, double seconds,
                              Clock clock = Clock::thread_cpu, double least_turn = 0);

// Median over rounds of a's time divided by b's.
double median_ratio(const Series& a, const Series& b);

// Most bytes the process has had resident since the mark was reset (Linux; 0 where unknown), and
// the reset: false where there is none. It first hands freed memory back to the system, so that a
// run after it is charged for every page it touches; for what threads have freed that needs
// share_one_heap() before the first of them starts: malloc gives back only the end of its main
// heap.
double peak_resident_bytes();
bool reset_peak_resident();
void share_one_heap();

}  // namespace poise::timing
