// Calls in forked children: no hang, no crash at exit, the same bits, and threads of their own,
// whatever the parent's threads were doing when it forked.
#include <gtest/gtest.h>
#include <tbb/parallel_for.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "executor.h"
#include "support/child_process.h"
#include "support/problem.h"

namespace poise::test {
namespace {

// Several tasks of enough work to be worth two threads.
Problem parallel_problem() {
  Problem p = make_problem({1, 4, 2, 300, 700, 64, 64}, DType::f32, 301);
  p.options.causal = Causal::bottom_right();
  return p;
}

const Wish kTwoThreads{.stats = {.level = StatsLevel::full}, .threads = 2};

std::string call_again(const Problem& p, const Outputs& expected) {
  const Outputs o = run(p, kTwoThreads);
  if (o.error) return o.error.message();
  if (!(o.stats.heads == expected.stats.heads)) return "statistics differ";
  return first_difference(expected, o);
}

// First, while this process has not called anything.
TEST(fork, a_child_of_a_parent_that_never_called_may_call) {
  const Problem p = parallel_problem();
  EXPECT_EQ(in_forked_child([&] { return run(p, kTwoThreads).error.message(); }), "");
}

TEST(fork, a_call_in_a_child_gives_the_bits_of_the_parents_call) {
  const Problem p = parallel_problem();
  const Outputs expected = run(p, kTwoThreads);
  ASSERT_FALSE(expected.error);
  for (int n = 0; n < 3; ++n)
    EXPECT_EQ(in_forked_child([&] { return call_again(p, expected); }), "");
  EXPECT_EQ(call_again(p, expected), "") << "in the parent, afterwards";
}

TEST(fork, a_child_of_a_child_may_call) {
  const Problem p = parallel_problem();
  const Outputs expected = run(p, kTwoThreads);
  EXPECT_EQ(in_forked_child([&] {
              const std::string broken = call_again(p, expected);
              if (!broken.empty()) return broken;
              return in_forked_child([&] { return call_again(p, expected); });
            }),
            "");
}

// Such a child leaves at once: at exit() the finaliser of oneTBB's library may wait for a thread
// that the fork left behind, whoever used oneTBB last.
TEST(fork, a_child_forked_while_other_threads_are_inside_calls_may_call) {
  const Problem p = parallel_problem();
  const Outputs expected = run(p, kTwoThreads);
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int n = 0; n < 3; ++n)
    callers.emplace_back([&] {
      while (!stop) static_cast<void>(run(p, kTwoThreads));
    });
  std::string broken;
  for (int n = 0; n < 40 && broken.empty(); ++n)
    broken =
        in_forked_child([&] { return call_again(p, expected); }, kChildSeconds, Leaving::at_once);
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(broken, "");
}

// Not a law of bits: two tasks that wait for each other end only on two threads.
TEST(fork, a_child_runs_tasks_on_several_threads) {
  if (tbb_executor(2).slots() < 2) GTEST_SKIP() << "oneTBB runs one thread here";
  EXPECT_EQ(in_forked_child([] {
              std::atomic<int> arrived{0};
              const auto meet = [](void* context, std::int64_t, int) {
                auto& here = *static_cast<std::atomic<int>*>(context);
                ++here;
                while (here < 2) std::this_thread::yield();
              };
              tbb_executor(2).run(2, meet, &arrived);
              return std::string();
            }),
            "");
}

TEST(fork, a_child_of_a_parent_that_uses_tbb_itself_may_call) {
  std::atomic<int> sum{0};
  tbb::parallel_for(0, 1000, [&](int n) { sum += n; });
  const Problem p = parallel_problem();
  const Outputs expected = run(p, kTwoThreads);
  tbb::parallel_for(0, 8, [&](int) { static_cast<void>(run(p, kTwoThreads)); });
  // Memory that the parent's other threads kept for their next call has no owner in the child: at
  // exit it would be called a leak.
  EXPECT_EQ(
      in_forked_child([&] { return call_again(p, expected); }, kChildSeconds, Leaving::at_once),
      "");
}

}  // namespace
}  // namespace poise::test
