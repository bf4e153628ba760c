// Deterministic numbers: the same inputs on every machine and standard library.
//
// Rng is splitmix64 (Steele, Lea & Flood 2014) with Box-Muller normals; Lcg64 is the generator the
// case files name. Neither uses <random>, whose distributions differ between libraries.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace poise::test {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  // Both ends included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[integer(0, static_cast<std::int64_t>(choices.size()) - 1)];
  }

 private:
  std::uint64_t state_;
};

class Lcg64 {
 public:
  Lcg64(std::uint64_t seed, double amplitude) : state_(seed), amplitude_(amplitude) {}

  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const auto n = static_cast<double>(state_ >> 40);
    return (n - 0x1p23) / 0x1p23 * amplitude_;
  }

 private:
  std::uint64_t state_;
  double amplitude_;
};

}  // namespace poise::test
