// The two tasks of the training experiment: one needs a sharp lookup, one needs averaging.
//
// A sequence is a set of pairs (key, value), every key another one, and then queries, each the key
// of one of the pairs. The tasks differ in what is asked for alone:
//   recall     the value that stands with the query's key (associative recall)
//   averaging  the value that most of the pairs have, whatever the query
// In: a random stream. Out: batches of token numbers. Must not happen here: anything learned.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lab/random.h"

namespace poise::lab::training {

enum class Task : std::uint8_t { recall, averaging };
inline constexpr Task kTasks[] = {Task::recall, Task::averaging};
std::string_view name(Task task);  // "recall", "averaging"

struct BatchShape {
  int sequences = 8, pairs = 32, queries = 16;
  int keys = 64, values = 16;  // how many different ones there are
};

// Token numbers, sequence after sequence.
struct Batch {
  BatchShape shape;
  std::vector<int> keys, values;      // sequences * pairs
  std::vector<int> queries, targets;  // sequences * queries
};

// In the averaging task every pair has the sequence's favoured value with this probability, any
// value otherwise; sequences whose most frequent value is not alone are drawn again.
inline constexpr double kFavoured = 0.15;

Batch draw_batch(Task task, const BatchShape& shape, Random& random);

}  // namespace poise::lab::training
