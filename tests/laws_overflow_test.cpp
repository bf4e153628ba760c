// Laws about scores that leave the range of float32: statistics stay numbers, and what overflows to
// -inf counts as masked, with or without a mask elsewhere.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "poise/poise.h"
#include "support/isa.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One head of `rows` equal queries against scalar keys: score = query * key, in f32.
struct ScalarHead {
  std::vector<float> query, key, value, out;
  Stats stats;

  ScalarHead(float q, std::vector<float> keys, std::int64_t rows)
      : query(static_cast<std::size_t>(rows), q),
        key(std::move(keys)),
        value(key.size(), 1),
        out(query.size()) {}

  void run(StatsLevel level, Options options = {}) {
    const auto lq = static_cast<std::int64_t>(query.size());
    const auto lk = static_cast<std::int64_t>(key.size());
    options.scale = 1;
    stats.request.level = level;
    const Error error = attention(view(static_cast<const float*>(query.data()), {1, 1, lq, 1}),
                                  view(static_cast<const float*>(key.data()), {1, 1, lk, 1}),
                                  view(static_cast<const float*>(value.data()), {1, 1, lk, 1}),
                                  view(out.data(), {1, 1, lq, 1}), options, {.stats = &stats});
    ASSERT_FALSE(error) << error.message();
  }
  const HeadStats& head() const { return stats.heads.at(0); }
};

const std::vector<StatsLevel> kLevels = {StatsLevel::max, StatsLevel::core, StatsLevel::full};

TEST(laws, a_score_that_overflows_to_minus_infinity_counts_as_masked) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    for (StatsLevel level : kLevels) {
      ScalarHead h(1e30f, {-1e30f, 1e-30f, 2e-30f, 0}, 20);
      h.run(level);
      EXPECT_EQ(h.head().measured_rows, 20);
      EXPECT_EQ(h.head().visible_keys, 60);
      EXPECT_EQ(h.head().nonfinite_rows, 0);
      EXPECT_NEAR(h.head().scores.max, 2, 1e-6);
      if (level == StatsLevel::max) continue;
      EXPECT_NEAR(h.head().scores.min, 0, 1e-6);
      EXPECT_NEAR(h.head().scores.sum_variance / 20, 2.0 / 3, 1e-5);
      EXPECT_NEAR(h.head().sum_entropy / 20, 0.832396, 1e-5);  // of softmax(1, 2, 0)
    }
  });
}

TEST(laws, a_finite_bias_beyond_float32_counts_as_its_largest_number) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    for (std::int64_t rows : {1, 20})
      for (double far : {-1e300, 1e300}) {
        ScalarHead h(1, {0, 0, 0, 0}, rows);
        h.value = {1, 2, 6, 100};
        const std::vector<double> bias = {far, far, far, -kInfinity};
        h.run(StatsLevel::off, {.bias = view(bias.data(), {4})});
        for (const float out : h.out) EXPECT_NEAR(out, 3, 1e-6) << far;
      }
  });
}

TEST(laws, a_spread_beyond_float32_leaves_every_statistic_a_number) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    ScalarHead h(1, {2e38f, -2e38f, 1, 0}, 20);
    h.run(StatsLevel::full);
    EXPECT_EQ(h.head().measured_rows, 20);
    EXPECT_EQ(h.head().sum_entropy, 0);
    EXPECT_EQ(h.head().sum_trace, 0);
    EXPECT_FALSE(std::isnan(h.head().scores.sum_variance));
    EXPECT_GT(h.head().scores.sigma.quantile(0.5), 1e10);
    bool exploding = false;
    const Health health = judge(h.stats);
    for (const Flag& flag : health.heads.at(0).flags)
      exploding = exploding || flag.kind == VerdictKind::exploding;
    EXPECT_TRUE(exploding);
  });
}

// Sums of scores leave float32 before a score does.
TEST(laws, a_mean_of_scores_whose_sum_overflows_lies_between_the_smallest_and_the_largest) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    for (const std::vector<float>& keys :
         {std::vector<float>{3e38f, 2e38f, 3e38f, 1}, std::vector<float>{-3e38f, -3e38f, 2e38f, 0}})
      for (double softcap : {0.0, 30.0}) {
        ScalarHead h(1, keys, 20);
        h.run(StatsLevel::full, {.softcap = softcap});
        const auto [low, high] = std::minmax_element(keys.begin(), keys.end());
        EXPECT_EQ(h.head().measured_rows, 20);
        EXPECT_GE(h.head().scores.sum_mean, 20 * static_cast<double>(*low));
        EXPECT_LE(h.head().scores.sum_mean, 20 * static_cast<double>(*high));
        EXPECT_EQ(h.head(), h.head()) << "a NaN";
      }
  });
}

TEST(laws, every_level_leaves_stand_ins_out_and_knows_the_largest_score) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    // Row 0 has only stand-ins, key 5 is one in every row.
    std::vector<float> bias(36, 0);
    for (std::size_t j = 0; j < 6; ++j) bias[j] = -1e4f;
    for (std::size_t i = 0; i < 6; ++i) bias[i * 6 + 5] = -1e4f;
    for (StatsLevel level : kLevels) {
      ScalarHead h(1, {0.5f, 1, 1.5f, 2, 2.5f, 3}, 6);
      h.run(level, {.bias = view(static_cast<const float*>(bias.data()), {6, 6})});
      EXPECT_EQ(h.head().stand_ins, 11);
      EXPECT_EQ(h.head().empty_rows, 1);
      EXPECT_EQ(h.head().measured_rows, 5);
      EXPECT_EQ(h.head().visible_keys, 25);
      EXPECT_EQ(h.head().scores.max, 2.5);
      EXPECT_GT(h.head().lse_min, 3);
    }
  });
}

TEST(laws, a_key_hidden_by_its_score_is_no_stand_in) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    const std::vector<float> bias = {-1e4f, 0, 0, -1e4f};
    ScalarHead h(1, {static_cast<float>(-kInfinity), 1, 2, 3}, 1);
    h.run(StatsLevel::core, {.bias = view(static_cast<const float*>(bias.data()), {4})});
    EXPECT_EQ(h.head().stand_ins, 1);
    EXPECT_EQ(h.head().visible_keys, 2);
  });
}

TEST(laws, a_tracked_key_is_a_stand_in_by_its_bias_alone) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    // Key 0 has a large bias that is none; key 3 is a stand-in. Without key 0 two scores are left.
    const std::vector<float> bias = {-5000, 0, 0, -1e4f};
    ScalarHead h(1, {0, 1, 2, 3}, 1);
    h.run(StatsLevel::full, {.bias = view(static_cast<const float*>(bias.data()), {4})});
    EXPECT_NEAR(h.head().tracked[0].sigma_without.quantile(0.5), 0.5, 0.5 * 0.016);
    EXPECT_NEAR(h.head().tracked[3].sigma_without.quantile(0.5), std::sqrt(2.0 / 3),
                std::sqrt(2.0 / 3) * 0.016);
  });
}

TEST(laws, the_histogram_holds_the_finite_scores_of_every_row) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    ScalarHead h(1, std::vector<float>(20, 0.1f), 20);
    h.key[0] = std::numeric_limits<float>::quiet_NaN();
    h.key[1] = static_cast<float>(kInfinity);
    h.run(StatsLevel::full);
    EXPECT_EQ(h.head().nonfinite_rows, 20);
    std::int64_t total = h.head().histogram.below + h.head().histogram.above;
    for (std::int64_t count : h.head().histogram.counts) total += count;
    EXPECT_EQ(total, 20 * 18);
  });
}

TEST(laws, diagonal_and_window_add_without_overflow) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype != DType::f32) return;
    constexpr std::int64_t kFar = std::int64_t{1} << 62;
    ScalarHead h(1, std::vector<float>(10, 0.1f), 10);
    h.run(StatsLevel::max, {.window_right = kFar - 6, .diagonal = -kFar});
    // Key j is visible when j <= i - 6: rows 6 ... 9 see 1, 2, 3, 4 keys.
    EXPECT_EQ(h.head().empty_rows, 6);
    EXPECT_EQ(h.head().single_rows, 1);
    EXPECT_EQ(h.head().visible_keys, 9);
    h.run(StatsLevel::full, {.causal = Causal::offset(std::numeric_limits<std::int64_t>::max())});
    EXPECT_EQ(h.head().visible_keys, 100);
    // key - (row + diagonal) stays inside int64: row 0 fits, the others are held at its end.
    constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::min();
    const PlaceCounts expected = {{kLast, 9}, {kLast + 1, 1}};
    EXPECT_EQ(h.head().argmax_offset, expected);
  });
}

}  // namespace
}  // namespace poise::test
