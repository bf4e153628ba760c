// The promises of backward(), each as a function of one drawn problem.
//
// In: a Draw. Out: what did not hold, in words; empty when everything did. The laws run on the
// instruction set that is active; check_law() of bit_laws.h puts them to many draws on each. What
// else a law may choose is drawn too (Draw::way).
#pragma once

#include <string>

#include "support/drawn_problem.h"

namespace poise::test {

// Not about bits, but what they are worth: every gradient against the definition, dbias of any
// shape that broadcasts, from the saved state or from lse, dout that repeats by strides of 0.
std::string gradients_broken_by_definition(const Draw& draw);
// Each gradient alone, statistics, dscale per head or as one number.
std::string gradients_broken_by_wishes(const Draw& draw);
// Threads, their number, the order in which tasks happen to run.
std::string gradients_broken_by_threads(const Draw& draw);
// Every batch entry alone: dq, dk, dv.
std::string gradients_broken_by_batch(const Draw& draw);
// Chunks of queries: dq.
std::string gradients_broken_by_chunks(const Draw& draw);
// Longer buffers of keys and queries that hold NaN beyond the lengths.
std::string gradients_broken_by_padding(const Draw& draw);
// Other strides, and a page without access rights beside every tensor; nothing between the elements
// of a gradient is written. Runs in a child, so that a fault is a failure that shrinks.
std::string gradients_broken_by_layout(const Draw& draw);
// NaN and infinity in keys nobody sees, in queries and dout of rows without keys, in dlse of rows
// without keys and sink, in bias entries that something else masks.
std::string gradients_broken_by_hidden(const Draw& draw);
// One NaN that somebody sees: gradients are NaN where the definition says so, and keep their bits
// elsewhere.
std::string gradients_broken_by_strangers(const Draw& draw);

}  // namespace poise::test
