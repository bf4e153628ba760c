// Statistics of independent standard normal inputs against an independent Monte-Carlo table: cells
// that cover narrow, usual and wide heads and few to many keys. oracle_slow_test has all of them.
// ctest-labels: fast laws
#include "support/oracle.h"

#include <gtest/gtest.h>

namespace poise::test {
namespace {

// Pays for every component of narrow cells; about a second each.
constexpr std::int64_t kNormalsPerRow = 1024;

TEST(Oracle, narrow_heads_with_few_keys_agree) { expect_oracle(2, 8, kNormalsPerRow); }
TEST(Oracle, usual_heads_with_few_keys_agree) { expect_oracle(64, 8, kNormalsPerRow); }
TEST(Oracle, usual_heads_with_many_keys_agree) { expect_oracle(64, 64, kNormalsPerRow); }
TEST(Oracle, wide_heads_with_many_keys_agree) { expect_oracle(4096, 64, kNormalsPerRow); }
TEST(Oracle, wide_heads_with_a_split_of_keys_agree) { expect_oracle(256, 512, kNormalsPerRow); }

}  // namespace
}  // namespace poise::test
