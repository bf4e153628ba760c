// Drawing of batches.
//
// In and out: task.h. Both tasks draw keys and queries alike.
#include "lab/training/task.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace poise::lab::training {
namespace {

// The value that most pairs have, unless two share that place.
std::optional<int> most_frequent(const std::vector<int>& values, int kinds) {
  std::vector<int> counts(static_cast<std::size_t>(kinds));
  for (const int value : values) ++counts[static_cast<std::size_t>(value)];
  const auto most = std::max_element(counts.begin(), counts.end());
  if (std::count(counts.begin(), counts.end(), *most) > 1) return std::nullopt;
  return static_cast<int>(most - counts.begin());
}

// 0 ... count - 1; count is far too small for the remainder to favour any.
int below(Random& random, int count) {
  return static_cast<int>(random.bits() % static_cast<std::uint64_t>(count));
}

void draw_values(Task task, const BatchShape& shape, Random& random, std::vector<int>& values) {
  const int favoured = below(random, shape.values);
  for (int& value : values)
    value = task == Task::averaging && random.uniform() < kFavoured ? favoured
                                                                    : below(random, shape.values);
}

}  // namespace

std::string_view name(Task task) { return task == Task::recall ? "recall" : "averaging"; }

Batch draw_batch(Task task, const BatchShape& shape, Random& random) {
  Batch batch;
  batch.shape = shape;
  std::vector<int> deck(static_cast<std::size_t>(shape.keys));
  std::iota(deck.begin(), deck.end(), 0);
  std::vector<int> values(static_cast<std::size_t>(shape.pairs));
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    // The first cards of a shuffled deck: every key another one.
    for (int i = 0; i < shape.pairs; ++i)
      std::swap(deck[static_cast<std::size_t>(i)],
                deck[static_cast<std::size_t>(i + below(random, shape.keys - i))]);
    std::optional<int> most;
    do {
      draw_values(task, shape, random, values);
      most = most_frequent(values, shape.values);
    } while (task == Task::averaging && !most);
    batch.keys.insert(batch.keys.end(), deck.begin(), deck.begin() + shape.pairs);
    batch.values.insert(batch.values.end(), values.begin(), values.end());
    for (int i = 0; i < shape.queries; ++i) {
      const auto pair = static_cast<std::size_t>(below(random, shape.pairs));
      batch.queries.push_back(deck[pair]);
      batch.targets.push_back(task == Task::recall ? values[pair] : *most);
    }
  }
  return batch;
}

}  // namespace poise::lab::training
