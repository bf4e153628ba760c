// The promises about bits, each as a function of one drawn problem, and their check over many.
//
// In: a Draw. Out: what did not hold, in words; empty when everything did. The laws run on the
// instruction set that is active. A problem runs one way, then another that must not matter; which
// other way is drawn too (Draw::way).
#pragma once

#include <string>

#include "support/drawn_problem.h"

namespace poise::test {

// Statistics of any level and sampling, lse and matrices beside out change no bit.
std::string broken_by_measuring(const Draw& draw);
// Threads, their number, the order in which tasks happen to run; statistics keep their bits too.
std::string broken_by_threads(const Draw& draw);
// Every batch entry alone.
std::string broken_by_batch(const Draw& draw);
// Chunks of queries of 1 to 80 rows per kv head: what few rows get, many rows get.
std::string broken_by_chunks(const Draw& draw);
// The last query row alone, which is a decode step.
std::string broken_by_decode(const Draw& draw);
// The memory of a plan made at full length, in which calls with shorter kv_lengths and q_lengths
// and with fewer keys run.
std::string broken_by_plan(const Draw& draw);
// Parts of whole splits, whose states merge in ascending order.
std::string broken_by_splits(const Draw& draw);
// Other strides, and a page without access rights beside every tensor; nothing between the elements
// of an output is written. Runs in a child, so that a fault is a failure that shrinks.
std::string broken_by_layout(const Draw& draw);
// NaN and infinity in one query row, one key and its value: rows that do not see them.
std::string broken_by_strangers(const Draw& draw);
// Not about bits, but what they are worth: few query rows against the definition, and statistics of
// single rows merged against those of the whole.
std::string broken_by_definition(const Draw& draw);
std::string broken_by_merged_statistics(const Draw& draw);

// Checks a law with `cases` draws per instruction set and dtype, the scalar set a quarter of them.
// Seeds: `seed` fixes them; 0 = another one each time, printed. A failure shrinks and prints the
// smallest Draw; RC_PARAMS="seed=N max_success=M" runs it again.
void check_law(std::string (*broken)(const Draw&), const DrawLimits& limits, int cases,
               std::uint64_t seed);

}  // namespace poise::test
