// An Executor that runs every task on the calling thread, in an order and on slots drawn from a
// seed: what a pool of threads may do on a bad day, without needing the day.
#pragma once

#include <poise/executor.h>

#include <numeric>
#include <utility>
#include <vector>

#include "support/rng.h"

namespace poise::test {

class ShuffledExecutor : public Executor {
 public:
  ShuffledExecutor(int slots, std::uint64_t seed) : slots_(slots), rng_(seed) {}

  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::int64_t n = count - 1; n > 0; --n)
      std::swap(order[static_cast<std::size_t>(n)],
                order[static_cast<std::size_t>(rng_.integer(0, n))]);
    for (std::int64_t index : order)
      task(context, index, static_cast<int>(rng_.integer(0, slots_ - 1)));
  }
  int slots() const override { return slots_; }

 private:
  int slots_;
  Rng rng_;
};

}  // namespace poise::test
