// Who runs the tasks of a call: oneTBB by default, the calling thread, or the host's own pool.
//
// A task may run on any thread, in any order, at any time until run() returns. A task waits for
// nothing but work that another task has begun and is at, so a pool of one thread is enough. No bit
// of any result depends on the executor.
#pragma once

#include <cstdint>

namespace poise {

class Executor {
 public:
  virtual ~Executor() = default;

  // Calls task(context, index, slot) once for every index in [0, count) and returns when all have
  // finished. `slot` is in [0, slots()) and no two tasks with one slot run at the same time: each
  // slot owns a piece of the workspace.
  virtual void run(std::int64_t count, void (*task)(void* context, std::int64_t index, int slot),
                   void* context) = 0;

  // How many tasks may run at once, at least 1.
  virtual int slots() const = 0;
};

// Runs every task on the calling thread, in order of the index.
Executor& serial_executor();

}  // namespace poise
