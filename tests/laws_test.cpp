// Laws of the function itself: what attention must satisfy whatever its inputs.
//
// Invariances, hulls, agreement between instruction sets and with the definition, over random
// problems with every option and over lengths and head dims around every vector and tile width.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/bounds.h"
#include "support/isa.h"
#include "support/slices.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(laws, adding_a_constant_to_scores_changes_nothing) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem p = make_problem({1, 2, 1, 33, 1091, 24, 24}, dtype, 401);
    const Outputs plain = run(p);
    for (double constant : {-100.0, 0.5, 64.0}) {
      Problem shifted = p;
      shifted.bias = TensorBuffer(dtype, {1});
      shifted.bias.fill([&] { return constant; });
      Outputs o = run(shifted);
      for (TensorBuffer* column : {&o.lse, &o.lse_without_sink, &o.max_score})
        for (std::int64_t n = 0; n < column->count(); ++n) column->set(n, column->at(n) - constant);
      // The bounds of the shifted problem: its logits are larger.
      EXPECT_TRUE(agree(shifted, plain, o));
    }
  });
}

TEST(laws, permuting_keys_with_values_changes_nothing) {
  for_each_isa_and_dtype([](DType dtype) {
    const std::int64_t keys = 1091;
    Problem p = make_problem({1, 2, 1, 33, keys, 24, 24}, dtype, 402, 3);
    Rng rng(403);
    add_random_bias(p, rng, dtype, {keys}, 0.2);
    std::vector<std::int64_t> order(static_cast<std::size_t>(keys));
    for (std::int64_t j = 0; j < keys; ++j) order[static_cast<std::size_t>(j)] = j;
    for (std::int64_t j = keys - 1; j > 0; --j)
      std::swap(order[static_cast<std::size_t>(j)],
                order[static_cast<std::size_t>(rng.integer(0, j))]);
    Problem permuted = p;
    for (auto member : {&Problem::key, &Problem::value, &Problem::bias}) {
      const TensorBuffer& from = p.*member;
      TensorBuffer to = from.copied(Layout::contiguous);
      const std::int64_t width = from.count() / keys;
      for (std::int64_t n = 0; n < to.count(); ++n)
        to.set(n, from.at(order[static_cast<std::size_t>(n / width)] * width + n % width));
      permuted.*member = to;
    }
    EXPECT_TRUE(agree(p, run(p), run(permuted)));
  });
}

TEST(laws, scale_may_move_into_query) {
  for_each_isa_and_dtype([](DType dtype) {
    // A 16-bit query holds its products exactly for powers of two only.
    const bool half = dtype == DType::f16 || dtype == DType::bf16;
    const std::vector<double> scales =
        half ? std::vector<double>{0.125, -0.5, 8.0} : std::vector<double>{0.125, -0.3, 7.0};
    for (double scale : scales) {
      Problem p = make_problem({1, 2, 1, 33, 1091, 24, 24}, dtype, 404);
      p.options.scale = scale;
      Problem moved = p;
      moved.query = p.query.copied(Layout::contiguous);
      for (std::int64_t n = 0; n < moved.query.count(); ++n)
        moved.query.set(n, scale * moved.query.at(n));
      moved.options.scale = 1;
      EXPECT_TRUE(agree(p, run(p), run(moved)));
    }
  });
}

TEST(laws, output_lies_in_the_hull_of_values) {
  for_each_isa_and_dtype([](DType dtype) {
    for (bool sinks : {false, true}) {
      Problem p = make_problem({1, 1, 1, 60, 700, 24, 10}, dtype, 405, 10);
      p.options.causal = Causal::bottom_right();
      Rng rng(406);
      if (sinks) add_sinks(p, rng);
      const Outputs o = run(p);
      ASSERT_FALSE(o.error) << o.error.message();
      // A sum of n rounded weights may exceed 1 by rounding.
      const double slack = dtype == DType::f64 ? 1e-14 : 1e-5;
      for (std::int64_t i = 0; i < 60; ++i)
        for (std::int64_t c = 0; c < 10; ++c) {
          double low = sinks ? 0 : kInfinity, high = sinks ? 0 : -kInfinity;
          for (std::int64_t j = 0; j <= i + 640; ++j) {
            low = std::min(low, p.value.at(p.value.index({0, 0, j, c})));
            high = std::max(high, p.value.at(p.value.index({0, 0, j, c})));
          }
          EXPECT_GE(o.out.at(i * 10 + c), low - slack);
          EXPECT_LE(o.out.at(i * 10 + c), high + slack);
        }
    }
  });
}

TEST(laws, one_visible_key_gives_its_value_bit_for_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 2, 1, 140, 1091, 24, 17}, dtype, 407, 30);
    p.options.causal = Causal::offset(900);
    p.options.window_left = 0;
    p.options.softcap = 20;
    add_alibi(p);
    const Outputs o = run(p, {.pairs = true});
    ASSERT_FALSE(o.error) << o.error.message();
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 140; ++i) {
        for (std::int64_t c = 0; c < 17; ++c)
          EXPECT_EQ(o.out.at(o.out.index({0, h, i, c})),
                    p.value.at(p.value.index({0, 0, i + 900, c})));
        EXPECT_EQ(o.weights.at(o.weights.index({0, h, i, i + 900})), 1);
        EXPECT_EQ(o.row_sum.at(o.row_sum.index({0, h, i})), 1);
      }
  });
}

TEST(laws, equal_scores_give_the_mean_and_log_of_the_count) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t keys : {2, 129, 1091}) {
      Problem p = make_problem({1, 1, 1, 3, keys, 8, 4}, dtype, 408);
      p.options.scale = 0;
      const Outputs o = run(p);
      ASSERT_TRUE(agrees(p, o));
      EXPECT_NEAR(o.lse.at(0), std::log(static_cast<double>(keys)), 1e-6);
      EXPECT_EQ(o.row_sum.at(0), static_cast<double>(keys));
    }
  });
}

// f32 runs of every instruction set against one another and, in between, the definition.
TEST(laws, every_isa_agrees_within_bound) {
  for (DType dtype : {DType::f32, DType::f64})
    for (const Problem& p : long_problems(dtype)) {
      const Expected expected(p);
      Outputs first;
      for (const std::string& isa : available_isas()) {
        const IsaScope scope(isa);
        const Outputs o = run(p);
        EXPECT_TRUE(agrees(p, o, expected)) << isa;
        if (!first.out.given()) first = o;
        EXPECT_TRUE(agree(p, first, o, expected)) << isa;
      }
    }
}

TEST(laws, random_problems_agree_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const Problem p = random_problem(1000 + seed, dtype);
      ASSERT_TRUE(agrees(p, run(p, {.pairs = true}))) << "seed " << seed;
    }
  });
}

TEST(laws, every_length_around_a_vector_agrees_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t n = 1; n <= 130; n += n < 34 || n > 126 ? 1 : 5) {
      const std::int64_t other = 131 - n;
      Problem p =
          make_problem({1, 2, 1, n, other, 13, 11}, dtype, static_cast<std::uint64_t>(500 + n), 2);
      ASSERT_TRUE(agrees(p, run(p)));
      p.options.causal = Causal::bottom_right();
      ASSERT_TRUE(agrees(p, run(p)));
    }
  });
}

TEST(laws, every_head_dim_agrees_with_the_definition) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t dim = 1; dim <= 300; dim += dim < 34 ? 1 : 19) {
      const Problem p = make_problem({1, 1, 1, 9, 140, dim, 301 - dim}, dtype,
                                     static_cast<std::uint64_t>(700 + dim));
      ASSERT_TRUE(agrees(p, run(p)));
    }
    for (std::int64_t dim : {320, 511, 512, 777, 1000, 1023, 1024}) {
      const Problem p = make_problem({1, 2, 1, 5, 133, dim, 1025 - dim}, dtype,
                                     static_cast<std::uint64_t>(700 + dim));
      ASSERT_TRUE(agrees(p, run(p)));
      const Problem wide = make_problem({1, 2, 1, 3, 70, 1025 - dim, dim}, dtype,
                                        static_cast<std::uint64_t>(701 + dim));
      ASSERT_TRUE(agrees(wide, run(wide)));
    }
  });
}

}  // namespace
}  // namespace poise::test
