// Which instruction set runs: one table in priority order, CPUID, POISE_ISA, set_isa(). Out: a
// table of kernels. Not here: code compiled for more than the baseline.
#pragma once

#include <poise/error.h>

#include "kernels/kernels.h"

#include <string_view>

namespace poise {

// The kernels calls use now; null with *error set when POISE_ISA names an unknown or missing one.
const Kernels* active_kernels(Error* error);

// The kernels of one instruction set by name; null when this build or CPU lacks it.
const Kernels* find_kernels(std::string_view name);

}  // namespace poise
