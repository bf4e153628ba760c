// An Executor on plain std::threads: any number of them, started per run, tasks taken from one
// counter. For tests of "threads change no bit", and for thread sanitizers, which understand it.
#pragma once

#include <poise/attention.h>
#include <poise/executor.h>

#include <atomic>
#include <thread>
#include <vector>

namespace poise::test {

class ThreadExecutor : public Executor {
 public:
  explicit ThreadExecutor(int threads) : threads_(threads) {}

  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    std::atomic<std::int64_t> next{0};
    auto work = [&](int slot) {
      for (std::int64_t index = next++; index < count; index = next++) task(context, index, slot);
    };
    std::vector<std::thread> pool;
    for (int slot = 1; slot < threads_; ++slot) pool.emplace_back(work, slot);
    work(0);
    for (std::thread& thread : pool) thread.join();
  }
  int slots() const override { return threads_; }

 private:
  int threads_;
};

// Gives `options` an executor, or with none a number of threads, for calls while it lives. Under
// the thread sanitizer that number stands for std::threads: oneTBB is not instrumented, so the
// sanitizer would see no order between its tasks, and spend longer on the races it takes that for
// than on the call.
class CallThreads {
 public:
  CallThreads(Options& options, Executor* executor, int threads) : pool_(threads) {
#if defined(__SANITIZE_THREAD__)
    if (executor == nullptr && threads > 1) executor = &pool_;
#endif
    options.executor = executor;
    options.threads = threads;
  }
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

 private:
  ThreadExecutor pool_;
};

}  // namespace poise::test
