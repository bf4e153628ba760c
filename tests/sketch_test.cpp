// Sketch: bins, quantiles, shares, merging, rebuilding from stored bins.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/stats.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/rng.h"

namespace poise {
namespace {

using test::Rng;

std::vector<double> log_uniform(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(std::exp2(rng.uniform(-60, 30)));
  return values;
}

Sketch sketch_of(const std::vector<double>& values) {
  Sketch sketch;
  for (double value : values) sketch.add(value);
  return sketch;
}

TEST(Sketch, quantiles_lie_within_1_6_percent_of_the_sorted_values) {
  std::vector<double> values = log_uniform(1, 5000);
  const Sketch sketch = sketch_of(values);
  std::sort(values.begin(), values.end());
  for (double q : {0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = std::max(1.0, std::ceil(q * 5000));
    const double exact = values[static_cast<std::size_t>(rank) - 1];
    EXPECT_NEAR(sketch.quantile(q) / exact, 1, 0.016) << q;
  }
}

TEST(Sketch, every_value_lies_between_the_borders_of_its_bin) {
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::exp2(rng.uniform(-79, 39));
    Sketch sketch;
    sketch.add(value);
    ASSERT_EQ(sketch.bins().size(), 1U);
    EXPECT_LE(Sketch::border(sketch.first_bin()), value);
    EXPECT_GT(Sketch::border(sketch.first_bin() + 1), value);
  }
}

TEST(Sketch, an_octave_has_32_bins) {
  Sketch one, two;
  one.add(1);
  two.add(2);
  EXPECT_EQ(one.first_bin(), 0);
  EXPECT_EQ(two.first_bin(), 32);
  EXPECT_EQ(Sketch::border(16), 1.5);
}

TEST(Sketch, zeros_and_values_below_2_to_the_minus_80_are_exact_zeros) {
  Sketch sketch;
  sketch.add(0);
  sketch.add(0x1p-80);
  sketch.add(1e-300);
  sketch.add(1);
  EXPECT_EQ(sketch.zeros(), 3);
  EXPECT_EQ(sketch.count(), 4);
  EXPECT_EQ(sketch.quantile(0.75), 0);
  EXPECT_NEAR(sketch.quantile(0.76), 1, 0.016);
}

TEST(Sketch, values_beyond_2_to_the_40_count_as_that) {
  Sketch sketch;
  sketch.add(1e300);
  sketch.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(sketch.count(), 2);
  EXPECT_NEAR(sketch.quantile(0.5) / 0x1p40, 1, 0.016);
}

TEST(Sketch, an_empty_sketch_has_no_quantile_and_no_share) {
  EXPECT_TRUE(std::isnan(Sketch().quantile(0.5)));
  EXPECT_TRUE(std::isnan(Sketch().share_above(1)));
}

TEST(Sketch, share_above_a_border_is_exact) {
  const std::vector<double> values = log_uniform(3, 1000);
  const Sketch sketch = sketch_of(values);
  for (double bound : {0x1p-50, 0.5, 1.5, 1024.0}) {
    const auto above =
        std::count_if(values.begin(), values.end(), [&](double v) { return v >= bound; });
    EXPECT_EQ(sketch.share_above(bound), static_cast<double>(above) / 1000) << bound;
  }
}

TEST(Sketch, share_above_zero_counts_the_zeros) {
  Sketch sketch;
  sketch.add(0, 3);
  sketch.add(1);
  EXPECT_EQ(sketch.share_above(0), 1);
  EXPECT_EQ(sketch.share_above(0.5), 0.25);
}

TEST(Sketch, merging_equals_adding_everything_in_any_order) {
  const std::vector<double> values = log_uniform(4, 999);
  std::vector<double> reversed(values.rbegin(), values.rend());
  reversed.push_back(0);
  Sketch merged;
  for (std::size_t part = 0; part < 3; ++part) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(333 * part);
    merged.merge(sketch_of({begin, begin + 333}));
  }
  Sketch zero;
  zero.add(0);
  merged.merge(zero);
  merged.merge(Sketch());
  EXPECT_EQ(merged, sketch_of(reversed));
}

TEST(Sketch, adding_times_equals_adding_one_by_one) {
  Sketch times, singly;
  times.add(0.3, 4);
  for (int i = 0; i < 4; ++i) singly.add(0.3);
  EXPECT_EQ(times, singly);
}

TEST(Sketch, stored_bins_rebuild_the_sketch) {
  Sketch sketch = sketch_of(log_uniform(5, 100));
  sketch.add(0, 7);
  EXPECT_EQ(Sketch::from_bins(sketch.zeros(), sketch.first_bin(), sketch.bins()), sketch);
}

TEST(Sketch, stored_bins_with_empty_ends_rebuild_the_same_sketch) {
  Sketch sketch;
  sketch.add(1);
  EXPECT_EQ(Sketch::from_bins(0, -2, {0, 0, 1, 0}), sketch);
  EXPECT_EQ(Sketch::from_bins(0, 5, {0, 0}), Sketch());
}

TEST(Sketch, impossible_stored_bins_give_an_empty_sketch) {
  EXPECT_EQ(Sketch::from_bins(-1, 0, {1}), Sketch());
  EXPECT_EQ(Sketch::from_bins(0, 0, {1, -1, 1}), Sketch());
  EXPECT_EQ(Sketch::from_bins(0, 1'000'000, {1}), Sketch());
  EXPECT_EQ(Sketch::from_bins(0, -1'000'000, {1}), Sketch());
}

}  // namespace
}  // namespace poise
