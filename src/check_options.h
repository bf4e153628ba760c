// Rules about the numbers and tensors of Options and about a statistics request.
// In: the options and a Problem that holds the sizes and dtype of query, key and value. Out: an
// Error, or the option fields of the Problem.
#pragma once

#include "check.h"
#include "check_view.h"

namespace poise {

// `call` names the call in sentences. Without `with_data` only shapes, dtypes and plain numbers are
// judged, and the small tensors are dropped from problem->options.
Error check_options(const char* call, const Options& options, bool with_data, Problem* problem);

// The dtype rule of everything that is accumulated or scales: Problem::numbers.
Error check_numbers(Argument argument, const ConstTensor& view, const Problem& problem);

// Resolves `view` to the full [B, Hq, Lq, Lk], axes aligned from the right, stride 0 where it
// broadcasts.
Error check_broadcast(Argument argument, const ConstTensor& view, bool with_data,
                      const Problem& problem, ConstTensor* full);

// Everything that query, key, value and options make a call read.
void read_inputs(const Problem& problem, AliasCheck* aliases);

// The request of a Stats that a call of the problem's dtype is to fill.
Error check_stats_request(const char* call, const StatsRequest& request, DType dtype);

}  // namespace poise
