// What this machine offers and what poise chose: instruction set and thread count.
//
// The only environment variables the library reads are POISE_ISA (scalar, neon, avx2, avx512)
// and POISE_THREADS (1 ... 4096); each is read once, and an unknown value makes every call return
// an Error that names it.
#pragma once

#include <poise/error.h>

#include <string>
#include <vector>

namespace poise {

// Names of the instruction sets this machine can run, best first; "scalar" is always last.
std::vector<std::string> available_isas();

// The instruction set calls use now: POISE_ISA or set_isa's choice if given, else the best one.
std::string active_isa();

// Forces an instruction set for this process, "" returns to the default. Not to be called while
// another thread is inside poise. Error: unsupported, when the name is unknown or the CPU lacks it.
Error set_isa(const std::string& isa);

// Threads a call uses when it names none: POISE_THREADS, else min(affinity mask, cgroup CPU quota
// rounded up), at least 1.
int default_threads();

}  // namespace poise
