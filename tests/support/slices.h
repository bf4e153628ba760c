// Parts of a problem as problems of their own, on the same memory: what chunked prefill, decode
// steps, batching and split key axes hand to attention().
//
// In: a whole problem. Out: the part, with the whole's diagonal and the places of its dropout made
// explicit, so that positions mean the same keys in both.
#pragma once

#include "support/problem.h"

namespace poise::test {

// Queries [begin, begin + count) of every batch and head. The whole must not have q_lengths.
Problem query_chunk(const Problem& whole, std::int64_t begin, std::int64_t count);

// Keys [begin, begin + count).
Problem key_part(const Problem& whole, std::int64_t begin, std::int64_t count);

// Batch entry b alone.
Problem batch_entry(const Problem& whole, std::int64_t b);

// Rows of an output: [begin, begin + count) of one axis of every tensor that is given.
Outputs sliced(const Outputs& whole, int axis, std::int64_t begin, std::int64_t count);

}  // namespace poise::test
