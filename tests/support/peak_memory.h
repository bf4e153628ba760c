// How much memory a piece of work needs at its peak, measured in a forked child, whose peak starts
// anew.
#pragma once

#include <cstdint>
#include <functional>

namespace poise::test {

// Peak resident bytes that work() adds to what the child holds after prepare(), both run in a child
// of this process. Throws std::runtime_error when the child did not finish.
double peak_bytes_of(const std::function<void()>& prepare, const std::function<void()>& work);

// Peak bytes beside inputs and outputs of one call on two threads: f32, B = 1, Hq = 8, Hkv = 2,
// head_dim 320, Lq = Lk = len, and a bool mask [1, 1, 1, Lk] that broadcasts.
double peak_bytes_with_broadcast_mask(std::int64_t len);

// Bytes of that call's score matrix, which must never exist.
constexpr double score_matrix_bytes(std::int64_t len) {
  return 8.0 * 4 * static_cast<double>(len) * static_cast<double>(len);
}

}  // namespace poise::test
