// Gradient statistics of a backward call: heads made ready before it, rows folded after it.
//
// In: the checked call, what its kernels left per query row and block of keys. Out:
// HeadStats::gradient of every head, rows folded in the order of batch and query, so the bits do
// not depend on threads. What must not happen here: a formula (tally.cpp), a change to any other
// member of the caller's Stats that forward has filled.
#pragma once

#include <poise/error.h>

#include "backward_call.h"

namespace poise {

// Stats without heads get heads that have seen no row; a gradient measured before is forgotten.
// Errors: out_of_memory. Nothing happens where no statistics are wanted.
Error start_gradient_statistics(const BackwardProblem& checked);

// rows: RowGradient of every query, [B, Hq, Lq]. squares: |dk|^2 and |dv|^2 per block of keys,
// [B * Hkv][plan.blocks][2]. Errors: out_of_memory; what was folded so far is then incomplete.
Error fold_gradient_statistics(const BackwardProblem& checked, const BackwardPlan& plan,
                               const RowGradient* rows, const double* squares, Executor& executor);

}  // namespace poise
