// Random numbers of one unit of an experiment: the same on every machine, for any thread count.
//
// In: a seed and the unit's place in the experiment. Out: bits of std::mt19937_64, seeded through
// std::seed_seq; both are fixed to the bit by the C++ standard, unlike the distributions of
// <random>, which are therefore written here. Must not happen here: state that units share.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace poise::lab {

class Random {
 public:
  // place: what tells this unit from all others: experiment, cell, unit.
  Random(std::uint64_t seed, std::initializer_list<std::uint64_t> place) {
    std::vector<std::uint32_t> words;
    const auto put = [&](std::uint64_t value) {
      words.push_back(static_cast<std::uint32_t>(value));
      words.push_back(static_cast<std::uint32_t>(value >> 32));
    };
    put(seed);
    for (const std::uint64_t value : place) put(value);
    std::seed_seq sequence(words.begin(), words.end());
    bits_.seed(sequence);
  }

  std::uint64_t bits() { return bits_(); }
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }  // [0, 1)
  // Standard normals (Box & Muller 1958).
  std::pair<double, double> normals() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  double normal() { return normals().first; }
  void fill_normal(std::span<float> out) {
    std::size_t i = 0;
    for (; i + 1 < out.size(); i += 2) {
      const auto [a, b] = normals();
      out[i] = static_cast<float>(a);
      out[i + 1] = static_cast<float>(b);
    }
    if (i < out.size()) out[i] = static_cast<float>(normal());
  }
  // Sum of the squares of n >= 1 standard normals: twice a gamma number of shape n/2 (Marsaglia &
  // Tsang 2000, exact for shapes of at least 1).
  double chi_squared(std::int64_t n) {
    if (n == 1) return std::pow(normal(), 2);
    const double d = static_cast<double>(n) / 2 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3), u = 1 - uniform();
      if (v > 0 && std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return 2 * d * v;
    }
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace poise::lab
