// Philox4x32-10 and the rule of dropout, in plain scalar code without intrinsics.
//
// In: a counter and a key. Out: four random 32-bit words, a function of those alone. The definition
// calls these functions; kernels/dropout.inl computes the same words for many rows at a time.
// Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC'11).
#pragma once

#include <stdint.h>

namespace poise {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
// What the words of the key grow by from round to round.
inline constexpr uint32_t kPhiloxStep0 = 0x9E3779B9u, kPhiloxStep1 = 0xBB67AE85u;

struct PhiloxKey {
  uint32_t word[2];
};
struct PhiloxWords {
  uint32_t word[4];
};

inline constexpr uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
inline constexpr uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

inline PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  uint32_t* c = counter.word;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * c[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * c[2];
    counter = {{high_word(b) ^ c[1] ^ key.word[0], low_word(b), high_word(a) ^ c[3] ^ key.word[1],
                low_word(a)}};
    key.word[0] += kPhiloxStep0;
    key.word[1] += kPhiloxStep1;
  }
  return counter;
}

// The key that a call's seed and offset stand for.
inline PhiloxKey dropout_key(uint64_t seed, uint64_t offset) {
  const PhiloxWords words =
      philox({{low_word(offset), high_word(offset), 0, 0}}, {{low_word(seed), high_word(seed)}});
  return {{words.word[0], words.word[1]}};
}

// floor(probability * 2^32): a weight whose word is smaller is dropped. probability in [0, 1).
inline uint32_t dropout_threshold(double probability) {
  return static_cast<uint32_t>(probability * 4294967296.0);
}

// What a kept weight is multiplied by, rounded to the type of the computation.
inline double dropout_factor(double probability) { return 1 / (1 - probability); }

// The word that decides about one weight, by its absolute place.
inline uint32_t dropout_word(PhiloxKey key, int64_t batch, int64_t head, int64_t query,
                             int64_t key_position) {
  const PhiloxWords words =
      philox({{static_cast<uint32_t>(key_position / 4), static_cast<uint32_t>(query),
               static_cast<uint32_t>(head), static_cast<uint32_t>(batch)}},
             key);
  return words.word[key_position % 4];
}

}  // namespace poise
