// A direction in which query, key and value of a problem move.
//
// In: a problem, which of the three, a seed. Out: tensors of normal elements on a grid, in drawn
// layouts. On a grid, so that x + step * direction has no rounding.
#pragma once

#include <cmath>

#include <poise/tangent.h>

#include "support/problem.h"

namespace poise::test {

inline double on_grid(double x, double grid) { return std::round(x / grid) * grid; }

// A direction for each of query, key and value that bits of `which` name, all three when none does.
struct Moved {
  TensorBuffer query, key, value;

  Moved(const Problem& p, int which, std::uint64_t seed) {
    Rng rng(seed);
    auto drawn = [&](const TensorBuffer& like, int bit) {
      if (which % 8 != 0 && (which >> bit & 1) == 0) return TensorBuffer();
      TensorBuffer direction = like.copied(kLayouts[rng.integer(0, std::size(kLayouts) - 1)]);
      direction.fill([&] { return on_grid(rng.normal(), 0x1p-10); });
      return direction;
    };
    query = drawn(p.query, 0);
    key = drawn(p.key, 1);
    value = drawn(p.value, 2);
  }
  Direction direction() const { return {query.view(), key.view(), value.view()}; }
};

}  // namespace poise::test
