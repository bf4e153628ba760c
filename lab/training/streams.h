// The random streams of one seed of the training experiment, one for each purpose.
//
// In: a seed. Out: numbers that no other purpose sees, so that changing one part of a run
// (head_dim, rule) leaves the numbers of all others as they are. Must not happen here: a stream
// used twice.
#pragma once

#include <cstdint>

#include "lab/random.h"

namespace poise::lab::training {

enum class Purpose : std::uint8_t {
  key_embedding,
  value_embedding,
  query_weight,
  key_weight,
  value_weight,
  output_weight,
  head_weight,
  training_data,
  held_out_data
};

inline Random stream(std::uint64_t seed, Purpose purpose) {
  constexpr std::uint64_t kTraining = 0x7472;  // tells this experiment from the others
  return {seed, {kTraining, static_cast<std::uint64_t>(purpose)}};
}

}  // namespace poise::lab::training
