// Who runs the tasks: the calling thread, or a oneTBB arena of a fixed number of threads.
// In: a count and a task. Out: every index done, in whatever order threads get to them.
// What must not happen here: a slot in two tasks at once, an exception that leaves run(), waiting
// for work that is not ours (a nested call inside a host's TBB task must not start the host's
// other tasks in its wait, nor wait for them), an arena created per call.
// Indices come from one counter, not from TBB's splitting: the plan orders tasks largest first,
// and halving the range would hand out its second half early.
#include "executor.h"

#include "check.h"
#include "cpu.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>

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

// How many threads oneTBB runs at once: the machine's, unless the host set a limit. Asking for more
// gains nothing and makes oneTBB print a warning.
int tbb_limit() {
  const std::size_t limit =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<int>(std::min<std::size_t>(limit, kMaxThreads));
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

// Arenas by thread count, made at first use. Never destroyed: a call may still run while static
// objects of the host die.
struct Arenas {
  std::mutex making;
  std::array<std::atomic<TbbExecutor*>, kMaxThreads + 1> by_threads{};
};

}  // namespace

Executor& serial_executor() {
  static SerialExecutor executor;
  return executor;
}

Executor& tbb_executor(int threads) {
  if (threads <= 1) return serial_executor();
  static Arenas& arenas = *new Arenas;
  auto& entry = arenas.by_threads[static_cast<std::size_t>(std::min(threads, kMaxThreads))];
  if (TbbExecutor* known = entry.load(std::memory_order_acquire)) return *known;
  try {
    const std::lock_guard lock(arenas.making);
    TbbExecutor* made = entry.load(std::memory_order_relaxed);
    if (made == nullptr) {
      made = new TbbExecutor(threads);
      entry.store(made, std::memory_order_release);
    }
    return *made;
  } catch (...) {
    return serial_executor();
  }
}

int allowed_threads(const Options& options) {
  if (options.executor != nullptr) return options.executor->slots();
  const int threads = options.threads > 0 ? options.threads : default_threads();
  return std::clamp(threads, 1, tbb_limit());
}

}  // namespace poise
