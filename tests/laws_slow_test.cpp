// The long sweeps: more seeds, every length from 1 to 130, every head dim from 1 to 1024.
//
// The same judgement as laws_test.cpp and laws_stats_test.cpp give, without their gaps; minutes
// instead of seconds, so not part of the fast run.
// ctest-labels: slow laws per_isa
#include <gtest/gtest.h>

#include "support/bounds.h"
#include "support/isa.h"

namespace poise::test {
namespace {

TEST(laws_slow, random_problems_agree_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::uint64_t seed = 0; seed < 1500; ++seed) {
      const Problem p = random_problem(50000 + seed, dtype);
      ASSERT_TRUE(agrees(p, run(p, {.pairs = seed % 2 == 0}))) << "seed " << seed;
    }
  });
}

TEST(laws_slow, random_problems_over_several_splits_agree_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const Problem p = random_problem(60000 + seed, dtype, {.max_len = 1500, .max_dim = 24});
      ASSERT_TRUE(agrees(p, run(p))) << "seed " << seed;
    }
  });
}

TEST(laws_slow, every_pair_of_odd_lengths_agrees_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t q_len = 1; q_len <= 129; q_len += 2)
      for (std::int64_t kv_len = 1 + q_len % 4; kv_len <= 130; kv_len += 6) {
        Problem p = make_problem({1, 1, 1, q_len, kv_len, 5, 6}, dtype,
                                 static_cast<std::uint64_t>(1000 * q_len + kv_len), 2);
        p.options.causal = q_len % 4 == 1 ? Causal::bottom_right() : Causal::none();
        ASSERT_TRUE(agrees(p, run(p)));
      }
  });
}

TEST(laws_slow, every_head_dim_agrees_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t dim = 1; dim <= 1024; ++dim) {
      const Problem p = make_problem({1, 1, 1, 9, 140, dim, dim <= 300 ? 301 - dim : 1025 - dim},
                                     dtype, static_cast<std::uint64_t>(7000 + dim));
      ASSERT_TRUE(agrees(p, run(p)));
    }
  });
}

}  // namespace
}  // namespace poise::test
