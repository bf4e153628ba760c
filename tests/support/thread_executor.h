// An Executor on plain std::threads: any number of them, started per run, tasks taken from one
// counter. For tests of "threads change no bit", and for thread sanitizers, which understand it.
#pragma once

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

}  // namespace poise::test
