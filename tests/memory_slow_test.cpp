// Memory at full length: nothing of size Lq x Lk, with a broadcast mask, grouped heads, head_dim
// above 256. The largest instruction set only: the smaller ones would take minutes, and what a call
// allocates does not depend on them (tests/case_processes.cpp has a short length on each).
// ctest-labels: slow
#include <gtest/gtest.h>

#include "support/peak_memory.h"

namespace poise::test {
namespace {

TEST(memory_slow, a_call_with_16384_keys_adds_less_than_64_mib) {
  constexpr std::int64_t kLen = 16384;
  const double bytes = peak_bytes_with_broadcast_mask(kLen);
  RecordProperty("peak_mib", std::to_string(bytes / (1 << 20)));
  EXPECT_LT(bytes, 64.0 * (1 << 20)) << "the score matrix has " << score_matrix_bytes(kLen);
}

}  // namespace
}  // namespace poise::test
