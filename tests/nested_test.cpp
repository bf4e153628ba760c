// Calls from inside a host's own parallel regions, oneTBB's and OpenMP's: no deadlock, the same
// bits, at most cores - 1 threads beside the host's, and no other caller's work in a call's wait.
#include <gtest/gtest.h>
#include <poise/cpu.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "executor.h"
#include "support/problem.h"

namespace poise::test {
namespace {

constexpr int kCalls = 64;
constexpr int kHostThreads = 4;
const Wish kMachine{.threads = 16};  // as many as there are cores

Problem parallel_problem() {
  Problem p = make_problem({1, 4, 2, 200, 600, 64, 64}, DType::f32, 311);
  p.options.causal = Causal::bottom_right();
  return p;
}

int threads_of_process() {
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads += entry.path().empty() ? 0 : 1;
  return threads;
}

// What calls from many places at once saw.
struct Seen {
  const Problem problem = parallel_problem();
  const Outputs expected = run(problem, {.executor = &serial_executor()});
  const int threads_before = threads_of_process();  // pools that wait for more work stay
  std::atomic<int> different{0}, most_threads{0};

  void call() {
    const Outputs o = run(problem, kMachine);
    if (o.error || !first_difference(expected, o).empty()) ++different;
    const int threads = threads_of_process();
    for (int known = most_threads; threads > known;)
      if (most_threads.compare_exchange_weak(known, threads)) break;
  }
};

int cores() { return static_cast<int>(std::thread::hardware_concurrency()); }

TEST(nested, calls_inside_a_hosts_tbb_loop_keep_their_bits_and_add_no_threads) {
  Seen seen;
  tbb::parallel_for(0, kCalls, [&](int) { seen.call(); });
  EXPECT_EQ(seen.different, 0);
  EXPECT_LE(seen.most_threads, seen.threads_before + cores() - 1) << "those of the host's loop";
}

TEST(nested, calls_inside_nested_tbb_loops_keep_their_bits) {
  Seen seen;
  tbb::parallel_for(0, 8, [&](int) { tbb::parallel_for(0, 8, [&](int) { seen.call(); }); });
  EXPECT_EQ(seen.different, 0);
}

TEST(nested, calls_inside_an_openmp_region_keep_their_bits_and_add_cores_minus_one_threads) {
#ifdef _OPENMP
  Seen seen;
#pragma omp parallel for num_threads(kHostThreads) schedule(dynamic)
  for (int n = 0; n < kCalls; ++n) seen.call();
  EXPECT_EQ(seen.different, 0);
  EXPECT_LE(seen.most_threads, seen.threads_before + kHostThreads - 1 + cores() - 1);
#else
  GTEST_SKIP() << "this compiler came without OpenMP";
#endif
}

TEST(nested, calls_from_many_plain_threads_add_cores_minus_one_threads) {
  Seen seen;
  std::vector<std::thread> host;
  for (int n = 0; n < kHostThreads; ++n)
    host.emplace_back([&] {
      for (int call = 0; call < kCalls / kHostThreads; ++call) seen.call();
    });
  for (std::thread& thread : host) thread.join();
  EXPECT_EQ(seen.different, 0);
  EXPECT_LE(seen.most_threads, seen.threads_before + kHostThreads + cores() - 1);
}

// Two callers share one arena of four threads. The first waits for its second task, which a worker
// keeps until the other caller's tasks are done; in that wait it must not take one of them.
TEST(nested, a_call_that_waits_runs_no_task_of_another_call) {
  const tbb::global_control four(tbb::global_control::max_allowed_parallelism, 4);
  struct Meeting {
    std::atomic<bool> second_started{false}, other_done{false};
    std::thread::id waiting_thread;
    std::atomic<int> strayed{0};
  } meeting;
  const auto patiently = [](const std::atomic<bool>& flag) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  std::thread other([&] {
    patiently(meeting.second_started);
    const auto task = [](void* context, std::int64_t, int) {
      auto& m = *static_cast<Meeting*>(context);
      if (std::this_thread::get_id() == m.waiting_thread) ++m.strayed;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    tbb_executor(4).run(40, task, &meeting);
    meeting.other_done = true;
  });
  meeting.waiting_thread = std::this_thread::get_id();
  struct Pair {
    Meeting& meeting;
    const decltype(patiently)& wait;
  } pair{meeting, patiently};
  const auto task = [](void* context, std::int64_t, int) {
    auto& p = *static_cast<Pair*>(context);
    if (std::this_thread::get_id() == p.meeting.waiting_thread)
      return p.wait(p.meeting.second_started);
    p.meeting.second_started = true;
    p.wait(p.meeting.other_done);
  };
  tbb_executor(4).run(2, task, &pair);
  other.join();
  EXPECT_TRUE(meeting.other_done);
  EXPECT_EQ(meeting.strayed, 0);
}

}  // namespace
}  // namespace poise::test
