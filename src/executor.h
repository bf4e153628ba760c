// The library's own executors; hosts bring theirs through poise/executor.h. No bit of any result
// depends on which one runs, and none of them throws or prints.
#pragma once

#include <poise/attention.h>
#include <poise/executor.h>

namespace poise {

// A oneTBB arena of `threads` threads (1 ... kMaxThreads), created at first use and kept for the
// life of the process. slots() may be fewer: no more than oneTBB runs at once, which is the
// machine's cores or the host's tbb::global_control. Indices are handed out in ascending order.
// Thread-safe; concurrent and nested calls share the arena. threads <= 1, or a failed allocation,
// gives serial_executor(). A forked child runs on threads of its own, started per call; one forked
// while other threads were inside oneTBB calls safely but should leave through _exit(), since at
// exit() the finaliser of oneTBB's library may wait for a thread that the fork left behind.
Executor& tbb_executor(int threads);

// How many tasks a call with these options may run at once: the slots of the host's executor, else
// options.threads or default_threads(), at most what oneTBB runs.
int allowed_threads(const Options& options);

// Who runs a call of so many slots: the host's executor if it gave one.
Executor& choose_executor(const Options& options, int slots);

}  // namespace poise
