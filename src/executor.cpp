// Who runs the tasks: the calling thread, a oneTBB arena of a fixed number of threads, or, in a
// child made by fork(), threads of its own.
// In: a count and a task. Out: every index done, in whatever order threads get to them.
// What must not happen here: a slot in two tasks at once, an exception that leaves run(), waiting
// for work that is not ours (a nested call inside a host's TBB task must not start the host's
// other tasks in its wait, nor wait for them), an arena created per call, a lock of ours or a call
// into oneTBB in a forked child: the thread that held it may be one the fork left behind.
// Indices come from one counter, not from TBB's splitting: the plan orders tasks largest first,
// and halving the range would hand out its second half early.
#include "executor.h"

#include "check.h"
#include "cpu.h"

#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace poise {
namespace {

using Task = void (*)(void* context, std::int64_t index, int slot);

class SerialExecutor final : public Executor {
 public:
  void run(std::int64_t count, Task task, void* context) override {
    for (std::int64_t index = 0; index < count; ++index) task(context, index, 0);
  }
  int slots() const override { return 1; }
};

// Made before any code runs and never destroyed: no guard that a fork could leave taken, and a call
// may still run while static objects of the host die.
template <class T>
union Lasting {
  T object;
  constexpr Lasting() : object() {}
  ~Lasting() {}
};
constinit Lasting<SerialExecutor> serial;

// fork() copies the calling thread only: oneTBB's workers do not exist in the child, and its locks
// may be held by threads that do not either.
constinit std::atomic<bool> is_forked_child{false};
constinit std::atomic<bool> watching_forks{false};
constinit std::atomic<int> known_limit{1};

void watch_forks() {
  if (watching_forks.exchange(true)) return;
  // What a call initialises once is initialised before a fork, lest its guard stay taken.
  const auto before = [] { static_cast<void>(environment_error()); };
  pthread_atfork(before, nullptr, [] { is_forked_child = true; });
}

// How many threads oneTBB runs at once: the machine's, unless the host set a limit. Asking for more
// gains nothing and makes oneTBB print a warning. A forked child keeps to what its parent knew.
int tbb_limit() {
  if (is_forked_child) return known_limit;
  const std::size_t limit =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  const int threads = static_cast<int>(std::min<std::size_t>(limit, kMaxThreads));
  known_limit = threads;
  watch_forks();
  return threads;
}

// Runs work(0) here and the other slots on threads that live as long as the call. Starting one
// takes about as long as the least work that a plan gives a thread.
template <class Work>
void run_on_new_threads(int slots, const Work& work) {
  std::vector<std::thread> started;
  try {
    for (int slot = 1; slot < slots; ++slot) started.emplace_back(work, slot);
  } catch (...) {
    // No more threads or memory: those that did start share the work.
  }
  work(0);
  for (std::thread& thread : started) thread.join();
}

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads)
      : threads_(std::clamp(threads, 1, tbb_limit())), arena_(threads_) {}

  void run(std::int64_t count, Task task, void* context) override {
    if (count <= 1) return serial_executor().run(count, task, context);
    std::atomic<std::int64_t> next{0};
    const auto work = [&](int slot) {
      for (std::int64_t index = next++; index < count; index = next++) task(context, index, slot);
    };
    const int workers = static_cast<int>(std::min<std::int64_t>(threads_, count));
    if (is_forked_child) return run_on_new_threads(workers, work);
    try {
      arena_.execute([&] {
        // Isolated: while this thread waits for the last tasks it may only help with ours.
        tbb::this_task_arena::isolate([&] {
          tbb::parallel_for(
              tbb::blocked_range<int>(0, workers, 1),
              [&](const tbb::blocked_range<int>& slots) {
                for (int slot = slots.begin(); slot < slots.end(); ++slot) work(slot);
              },
              tbb::simple_partitioner());
        });
      });
    } catch (...) {
      // TBB could not allocate. It has waited for the workers that did start, so slot 0 is free and
      // the counter knows what is left.
      work(0);
    }
  }
  int slots() const override { return threads_; }

 private:
  const int threads_;
  tbb::task_arena arena_;
};

// Arenas by thread count, made at first use; never destroyed, like the serial executor.
constinit std::array<std::atomic<TbbExecutor*>, kMaxThreads + 1> arenas{};

}  // namespace

Executor& serial_executor() { return serial.object; }

Executor& tbb_executor(int threads) {
  if (threads <= 1) return serial_executor();
  auto& entry = arenas[static_cast<std::size_t>(std::min(threads, kMaxThreads))];
  if (TbbExecutor* known = entry.load(std::memory_order_acquire)) return *known;
  try {
    // An arena costs nothing before its first use, so two threads may make one each.
    auto made = std::make_unique<TbbExecutor>(threads);
    TbbExecutor* known = nullptr;
    if (entry.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
      return *made.release();
    return *known;
  } catch (...) {
    return serial_executor();
  }
}

int allowed_threads(const Options& options) {
  if (options.executor != nullptr) return options.executor->slots();
  const int threads = options.threads > 0 ? options.threads : default_threads();
  return std::clamp(threads, 1, tbb_limit());
}

Executor& choose_executor(const Options& options, int slots) {
  if (options.executor != nullptr) return *options.executor;
  return slots == 1 ? serial_executor() : tbb_executor(slots);
}

}  // namespace poise
