// Timing: contestants take turns, short ones are repeated, medians are medians.
// ctest-labels: fast unit
#include "timing/series.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace poise::timing {
namespace {

TEST(Series, contestants_take_turns_after_one_warm_up_each) {
  std::string order;
  const auto series =
      alternate({[&] { order += 'a'; }, [&] { order += 'b'; }, [&] { order += 'c'; }}, 0);
  EXPECT_EQ(order, "abcabcabcabc");
  ASSERT_EQ(series.size(), 3u);
  for (const Series& one : series) EXPECT_EQ(one.seconds.size(), 3u);
}

TEST(Series, a_short_contestant_is_repeated_within_its_turn) {
  constexpr double kTurn = 2e-3;
  for (const Clock clock : {Clock::wall, Clock::thread_cpu}) {
    volatile double sink = 0;
    int runs = 0;
    const auto series = alternate({[&] {
                                    ++runs;
                                    for (int i = 0; i < 1000; ++i) sink = sink + 1;
                                  }},
                                  0, clock, kTurn);
    EXPECT_GT(runs, 20);
    EXPECT_EQ(series[0].seconds.size(), 3u);
    EXPECT_LT(series[0].best(), kTurn / 2) << "a run's time, not its turn's";
  }
}

TEST(Series, best_and_median_are_of_the_turns) {
  const Series series{{5, 1, 4, 2, 3}};
  EXPECT_EQ(series.best(), 1);
  EXPECT_EQ(series.median(), 3);
  EXPECT_EQ(Series{}.best(), 0);
  EXPECT_EQ(Series{}.median(), 0);
  EXPECT_EQ(median_of({2, 1}), 2);
}

TEST(Series, ratios_are_of_neighbours_not_of_medians) {
  // A slow spell in the middle hits both.
  EXPECT_EQ(median_ratio({{2, 20, 4}}, {{1, 10, 2}}), 2);
  EXPECT_EQ(median_ratio({{1, 5, 9}}, {{1, 10, 3}}), 1);
}

void touch(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  std::memset(memory, 1, bytes);
  asm volatile("" : : "r"(memory) : "memory");  // somebody may read it: the writing stays
  std::free(memory);
}

TEST(Series, the_resident_mark_sees_memory_that_is_touched_after_its_reset) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  touch(2 * kBytes);
  if (!reset_peak_resident()) GTEST_SKIP() << "this system has no such mark";
  const double start = peak_resident_bytes();
  touch(kBytes);
  const double added = peak_resident_bytes() - start;
  EXPECT_GT(added, 0.9 * kBytes);
  EXPECT_LT(added, 1.5 * kBytes);
}

}  // namespace
}  // namespace poise::timing
