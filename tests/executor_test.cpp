// The executors: every index once, slots never shared, order of hand-out, nesting in a host's own
// oneTBB region, many callers at once.
#include "executor.h"

#include <gtest/gtest.h>
#include <tbb/parallel_for.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace poise {
namespace {

// What a run did: how often each index ran, and whether two tasks ever held one slot.
struct Log {
  explicit Log(std::size_t count, int slot_count)
      : runs(count), busy(static_cast<std::size_t>(slot_count)), slots(slot_count) {}

  std::vector<std::atomic<int>> runs;
  std::vector<std::atomic<bool>> busy;
  std::vector<std::int64_t> order;  // filled by serial runs only
  std::atomic<bool> shared{false}, bad_slot{false};
  int slots;
  bool keep_order = false;

  static void task(void* context, std::int64_t index, int slot) {
    Log& log = *static_cast<Log*>(context);
    if (slot < 0 || slot >= log.slots) {
      log.bad_slot = true;
      return;
    }
    auto& busy = log.busy[static_cast<std::size_t>(slot)];
    if (busy.exchange(true)) log.shared = true;
    ++log.runs[static_cast<std::size_t>(index)];
    if (log.keep_order) log.order.push_back(index);
    // Long enough for every worker to wake up and take part, also on one core.
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    busy = false;
  }

  void expect_each_once() const {
    for (const auto& run : runs) ASSERT_EQ(run, 1);
    EXPECT_FALSE(shared);
    EXPECT_FALSE(bad_slot);
  }
};

// First, since oneTBB warns once per process.
TEST(executor, more_threads_than_the_machine_has_are_asked_for_in_silence) {
  testing::internal::CaptureStderr();
  Log log(100, 64);
  tbb_executor(64).run(100, Log::task, &log);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  log.expect_each_once();
}

TEST(executor, the_serial_one_runs_every_index_in_order_on_slot_zero) {
  Log log(100, 1);
  log.keep_order = true;
  serial_executor().run(100, Log::task, &log);
  log.expect_each_once();
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(log.order[i], static_cast<std::int64_t>(i));
  EXPECT_EQ(serial_executor().slots(), 1);
}

TEST(executor, oversubscribed_threads_run_every_index_once_on_slots_of_their_own) {
  for (const int threads : {1, 2, 3, 4, 7, 16}) {
    Executor& executor = tbb_executor(threads);
    ASSERT_GE(executor.slots(), 1);
    ASSERT_LE(executor.slots(), threads);
    for (const std::int64_t count : {0, 1, 2, 5, 64}) {
      Log log(static_cast<std::size_t>(count), executor.slots());
      executor.run(count, Log::task, &log);
      log.expect_each_once();
    }
  }
}

TEST(executor, one_arena_serves_every_call_with_its_number_of_threads) {
  EXPECT_EQ(&tbb_executor(3), &tbb_executor(3));
  EXPECT_NE(&tbb_executor(3), &tbb_executor(2));
  EXPECT_EQ(&tbb_executor(1), &serial_executor());
}

TEST(executor, a_single_task_stays_on_the_calling_thread) {
  struct Seen {
    std::thread::id thread;
    int slot = -1;
  } seen;
  const auto remember = [](void* context, std::int64_t, int slot) {
    *static_cast<Seen*>(context) = {std::this_thread::get_id(), slot};
  };
  tbb_executor(4).run(1, remember, &seen);
  EXPECT_EQ(seen.thread, std::this_thread::get_id());
  EXPECT_EQ(seen.slot, 0);
}

TEST(executor, indices_are_handed_out_in_ascending_order) {
  // Each task takes a ticket first thing; with two threads a ticket can be late by one turn only
  // when the other thread is suspended, so only gross disorder fails: the second half of the
  // indices must not start before the first quarter is done.
  struct Order {
    std::atomic<int> started{0}, early{0};
  } order;
  const auto task = [](void* context, std::int64_t index, int) {
    auto& seen = *static_cast<Order*>(context);
    if (index >= 500 && seen.started < 250) ++seen.early;
    ++seen.started;
  };
  tbb_executor(4).run(1000, task, &order);
  EXPECT_EQ(order.started, 1000);
  EXPECT_EQ(order.early, 0);
}

TEST(executor, nested_in_a_hosts_tbb_loop_it_neither_deadlocks_nor_runs_host_tasks) {
  std::atomic<int> bad{0};
  thread_local bool inside = false;
  tbb::parallel_for(0, 64, [&](int) {
    if (inside) ++bad;  // a host task started by a wait inside poise
    inside = true;
    Log log(50, tbb_executor(3).slots());
    tbb_executor(3).run(50, Log::task, &log);
    for (const auto& run : log.runs)
      if (run != 1) ++bad;
    if (log.shared || log.bad_slot) ++bad;
    inside = false;
  });
  EXPECT_EQ(bad, 0);
}

TEST(executor, many_threads_may_call_one_arena_at_once) {
  std::vector<std::thread> callers;
  std::atomic<int> bad{0};
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        Log log(40, tbb_executor(2).slots());
        tbb_executor(2).run(40, Log::task, &log);
        for (const auto& run : log.runs)
          if (run != 1) ++bad;
        if (log.shared || log.bad_slot) ++bad;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(bad, 0);
}

}  // namespace
}  // namespace poise
