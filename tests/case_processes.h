// Cases about the process around a call: forks, the default number of threads, memory.
//
// Each returns a Judgement whose worst is 0 when everything held and infinity otherwise.
#pragma once

#include "support/case_file.h"

namespace poise::test {

// True when the procedure starts what no emulator of the user mode follows: a child with threads,
// this program again. Case 055 starts a program too, but only on x86.
bool starts_processes(const CaseFile& file);

// A parallel call, then one in a forked child, also while other threads of the parent call.
Judgement run_fork();

// default_threads() of a new process for affinity masks of one CPU and more, and what a cgroup's
// quota makes of it, on a file system of this function's own.
Judgement run_default_threads();

// Peak memory of the case's shape at a length that takes a moment; memory_slow_test.cpp has the
// full one.
Judgement run_memory(const CaseFile& file);

// What this program says when it is run with this argument: default_threads() and nothing else.
inline constexpr const char* kSayThreads = "--say-default-threads";

}  // namespace poise::test
