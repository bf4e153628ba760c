// Laws about the statistics: measured in the same pass, they are what two passes over the
// materialised logits say, on every instruction set and dtype.
//
// Sums, counts, extremes, histogram, places and quantiles per head; the bounds theory puts on them;
// and the figures of the lesson.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "isa/dispatch.h"
#include "support/bounds.h"
#include "support/isa.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const StatsRequest kFull{.level = StatsLevel::full};

// How exact a head's statistics must be. Scores carry rounding errors of their size; counts move by
// a row where a value falls beside a threshold, which f64 never does here.
struct Slack {
  double relative, size, rows;
  std::int64_t count;

  Slack(DType dtype, const ReferenceHead& head) {
    relative = dtype == DType::f64 ? 1e-10 : 2e-5;
    size = 1;
    for (const ReferenceRow& row : head.rows)
      if (!row.nonfinite && row.keys() >= 1)
        size = std::max({size, std::fabs(row.score_min), std::fabs(row.score_max),
                         std::fabs(row.logit_min), std::fabs(row.logit_max)});
    rows = static_cast<double>(head.rows.size());
    count = dtype == DType::f64 ? 0 : 1 + head.sums.rows / 200;
  }
};

void expect_sum(double got, double expected, double unit, const Slack& slack, const char* what) {
  EXPECT_NEAR(got, expected, slack.relative * (std::fabs(expected) + slack.rows * unit)) << what;
}

void expect_extreme(double got, double expected, const Slack& slack, const char* what) {
  if (std::isinf(expected))
    EXPECT_EQ(got, expected) << what;
  else
    EXPECT_NEAR(got, expected, slack.relative * slack.size) << what;
}

void expect_count(std::int64_t got, std::int64_t expected, const Slack& slack, const char* what) {
  EXPECT_LE(std::abs(got - expected), slack.count)
      << what << ": " << got << " against " << expected;
}

void expect_spread(const SpreadStats& got, const SpreadStats& expected, const Slack& slack) {
  expect_extreme(got.max, expected.max, slack, "max");
  expect_extreme(got.min, expected.min, slack, "min");
  expect_sum(got.sum_mean, expected.sum_mean, slack.size, slack, "sum_mean");
  expect_sum(got.sum_variance, expected.sum_variance, slack.size * slack.size, slack,
             "sum_variance");
  expect_sum(got.sum_mean_squared, expected.sum_mean_squared, slack.size * slack.size, slack,
             "sum_mean_squared");
}

void expect_places(const PlaceCounts& got, const PlaceCounts& expected, const Slack& slack,
                   const char* what) {
  PlaceCounts difference = expected;
  for (const auto& [place, rows] : got) difference[place] -= rows;
  std::int64_t moved = 0;
  for (const auto& [place, rows] : difference) moved += std::abs(rows);
  EXPECT_LE(moved, 2 * slack.count) << what;
}

// Nearest-rank quantiles of one signal over measured rows, to the width of a sketch's bin.
template <class Signal>
void expect_quantiles(const Sketch& sketch, const ReferenceHead& head, const Signal& signal,
                      const Slack& slack, const char* what) {
  std::vector<double> values;
  for (const ReferenceRow& row : head.rows)
    if (row.measured()) values.push_back(signal(row));
  ASSERT_EQ(sketch.count(), static_cast<std::int64_t>(values.size())) << what;
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  constexpr double kBin = 0.023;
  for (double q : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const double rank = std::ceil(q * static_cast<double>(values.size()));
    const double expected = values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
    EXPECT_NEAR(sketch.quantile(q), expected,
                kBin * expected + slack.relative * slack.size * (1 + slack.size))
        << what << " at " << q;
  }
}

// Measured rows whose arg-max is key k and whose other keys lie at exp's cut (2^-100, f64 2^-1000)
// or below: nothing to a kernel, something to the definition.
std::int64_t rows_at_the_cut(const ReferenceHead& head, std::int64_t k, DType dtype) {
  const double cut = dtype == DType::f64 ? 690 : 69;
  return std::count_if(head.rows.begin(), head.rows.end(), [&](const ReferenceRow& row) {
    return row.measured() && row.argmax == k && row.max - row.second > cut;
  });
}

void expect_tracked(const HeadStats& got, const StatsRequest& request, const ReferenceHead& head,
                    DType dtype, const Slack& slack) {
  for (std::size_t slot = 0; slot < kTrackedKeys; ++slot) {
    const TrackedKey &a = got.tracked[slot], &b = head.sums.tracked[slot];
    const std::int64_t k = request.tracked[slot];
    expect_sum(a.sum_weight, b.sum_weight, 1, slack, "tracked weight");
    EXPECT_LE(a.rows_without, b.rows_without) << "tracked key " << k;
    EXPECT_GE(a.rows_without, b.rows_without - rows_at_the_cut(head, k, dtype))
        << "tracked key " << k;
    EXPECT_EQ(a.trace_without.count(), a.rows_without);
    expect_count(a.above_99_without, b.above_99_without, slack, "above_99_without");
    expect_sum(a.sum_entropy_without, b.sum_entropy_without, slack.size, slack, "entropy without");
  }
}

void expect_same_statistics(const Problem& p, const Stats& stats, std::size_t h,
                            const ReferenceHead& head) {
  const HeadStats& got = stats.heads[h];
  const HeadStats& expected = head.sums;
  const Slack slack(p.dtype, head);
  EXPECT_NEAR(got.scale, expected.scale, 1e-7 * std::fabs(expected.scale));
  EXPECT_EQ(got.rows, expected.rows);
  EXPECT_EQ(got.empty_rows, expected.empty_rows);
  EXPECT_EQ(got.single_rows, expected.single_rows);
  EXPECT_EQ(got.nonfinite_rows, expected.nonfinite_rows);
  EXPECT_EQ(got.first_nonfinite_row, expected.first_nonfinite_row);
  EXPECT_EQ(got.stand_ins, expected.stand_ins);
  EXPECT_EQ(got.measured_rows, expected.measured_rows);
  EXPECT_EQ(got.visible_keys, expected.visible_keys);
  EXPECT_NEAR(got.sum_log_keys, expected.sum_log_keys, 1e-9 * (1 + expected.sum_log_keys));

  expect_spread(got.scores, expected.scores, slack);
  if (stats.logits_differ()) expect_spread(got.logits, expected.logits, slack);
  if (got.scale != 0) {
    const Slack dots = [&] {
      Slack wider = slack;
      wider.size /= std::fabs(got.scale);
      return wider;
    }();
    expect_extreme(got.max_dot, expected.max_dot, dots, "max_dot");
    expect_extreme(got.min_dot, expected.min_dot, dots, "min_dot");
  }
  expect_extreme(got.lse_min, expected.lse_min, slack, "lse_min");
  expect_extreme(got.lse_max, expected.lse_max, slack, "lse_max");
  expect_sum(got.sum_lse, expected.sum_lse, slack.size, slack, "sum_lse");
  expect_sum(got.sum_sink_weight, expected.sum_sink_weight, 1, slack, "sum_sink_weight");

  expect_sum(got.sum_entropy, expected.sum_entropy, slack.size, slack, "sum_entropy");
  expect_sum(got.sum_entropy_ratio, expected.sum_entropy_ratio, slack.size, slack, "entropy ratio");
  expect_sum(got.sum_kl, expected.sum_kl, slack.size, slack, "sum_kl");
  expect_sum(got.sum_top1, expected.sum_top1, 1, slack, "sum_top1");
  expect_sum(got.sum_squares, expected.sum_squares, 1, slack, "sum_squares");
  expect_sum(got.sum_effective_keys, expected.sum_effective_keys, 1, slack, "effective keys");
  expect_sum(got.sum_trace, expected.sum_trace, 1, slack, "sum_trace");
  expect_sum(got.sum_frobenius, expected.sum_frobenius, 1, slack, "sum_frobenius");
  expect_sum(got.sum_frobenius_squared, expected.sum_frobenius_squared, 1, slack, "frobenius^2");
  expect_sum(got.sum_expected_transmission, expected.sum_expected_transmission, 1, slack,
             "expected transmission");
  expect_sum(got.sum_expected_transmission_squared, expected.sum_expected_transmission_squared, 1,
             slack, "expected transmission squared");
  expect_sum(got.sum_temperature_variance, expected.sum_temperature_variance,
             slack.size * slack.size, slack, "temperature variance");
  // The drive of a capped score is at most half of the cap, that of any other the score.
  expect_sum(got.sum_scale_covariance, stats.logits_differ() ? expected.sum_scale_covariance : 0,
             slack.size * slack.size, slack, "scale covariance");
  expect_count(got.rows_above_99, expected.rows_above_99, slack, "rows_above_99");
  expect_count(got.near_tie_rows, expected.near_tie_rows, slack, "near_tie_rows");
  expect_count(got.dead_rows, expected.dead_rows, slack, "dead_rows");
  // A saturated softcap makes ties whose order is rounding.
  if (p.options.softcap == 0) {
    expect_places(got.argmax_column, expected.argmax_column, slack, "argmax_column");
    expect_places(got.argmax_offset, expected.argmax_offset, slack, "argmax_offset");
  }
  expect_tracked(got, stats.request, head, p.dtype, slack);

  expect_quantiles(
      got.scores.sigma, head, [](auto& r) { return std::sqrt(r.score_variance); }, slack, "sigma");
  expect_quantiles(
      got.top1, head, [](auto& r) { return r.top1; }, slack, "top1");
  expect_quantiles(
      got.rest, head, [](auto& r) { return r.rest; }, slack, "rest");
  expect_quantiles(
      got.trace, head, [](auto& r) { return r.trace; }, slack, "trace");
  expect_quantiles(
      got.gain, head, [](auto& r) { return r.gain; }, slack, "gain");
  expect_quantiles(
      got.kl, head, [](auto& r) { return std::max(r.kl, 0.0); }, slack, "kl");
  expect_quantiles(
      got.effective_keys, head, [](auto& r) { return 1 / r.sum_squares; }, slack, "effective_keys");
}

// Scores beside a bin's border may fall on either side in f32.
void expect_histogram(const Histogram& got, const Histogram& expected, DType dtype) {
  std::int64_t total = expected.below + expected.above, got_total = got.below + got.above;
  std::int64_t moved = std::abs(got.below - expected.below) + std::abs(got.above - expected.above);
  for (std::size_t b = 0; b < expected.counts.size(); ++b) {
    total += expected.counts[b];
    got_total += got.counts[b];
    moved += std::abs(got.counts[b] - expected.counts[b]);
  }
  EXPECT_EQ(got_total, total);
  EXPECT_LE(moved, dtype == DType::f64 ? 0 : 2 + total / 5000);
}

std::int64_t lanes_of(DType dtype) {
  Error error;
  const Kernels* kernels = active_kernels(&error);
  return dtype == DType::f64 ? kernels->f64.lanes : kernels->f32.lanes;
}

void expect_fused_equals_materialised(const Problem& p, const StatsRequest& request) {
  SCOPED_TRACE(p.describe());
  const Outputs o = run(p, {.stats = request});
  ASSERT_FALSE(o.error) << o.error.message();
  const std::vector<ReferenceHead> heads =
      reference_statistics(reference_of<double>(p), request, lanes_of(p.dtype));
  ASSERT_EQ(o.stats.heads.size(), heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    SCOPED_TRACE("head " + std::to_string(h));
    expect_same_statistics(p, o.stats, h, heads[h]);
    expect_histogram(o.stats.heads[h].histogram, heads[h].sums.histogram, p.dtype);
  }
}

TEST(laws, fused_stats_equal_materialised_stats) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      expect_fused_equals_materialised(random_problem(3000 + seed, dtype), kFull);
  });
}

TEST(laws, fused_stats_equal_materialised_stats_over_many_splits) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double spread : {0.05, 1.0, 6.0, 30.0}) {
      Problem p = make_problem({1, 2, 1, 37, 1091, 24, 8}, dtype, 801, spread);
      p.options.causal = Causal::bottom_right();
      expect_fused_equals_materialised(p, kFull);
    }
  });
}

// Keys in order of growing score: the maximum moves at every key, and again the other way round.
TEST(laws, fused_stats_do_not_depend_on_where_the_maximum_lies) {
  for_each_isa_and_dtype([](DType dtype) {
    // Slopes that put no score beside a border of the histogram's bins of 1/4.
    for (double slope : {0.0101, -0.0101, 0.4987, -0.4987}) {
      Problem p = make_problem({1, 1, 1, 5, 1091, 1, 1}, dtype, 802);
      p.options.scale = 1;
      for (std::int64_t i = 0; i < 5; ++i) p.query.set(i, 1 + 0.25 * static_cast<double>(i));
      for (std::int64_t j = 0; j < 1091; ++j) p.key.set(j, slope * static_cast<double>(j));
      expect_fused_equals_materialised(p, kFull);
    }
  });
}

// More keys than the kernels count in one go (kernels/histogram.inl), and rows that fill no vector.
TEST(laws, the_histogram_of_a_long_task_holds_every_score) {
  for_each_isa_and_dtype([](DType dtype) {
    const std::int64_t rows = 250, keys = 4500;
    const Problem p = make_problem({1, 1, 1, rows, keys, 1, 1}, dtype, 806, 3.0);
    const Outputs o = run(p, {.stats = kFull});
    ASSERT_FALSE(o.error) << o.error.message();
    const std::vector<ReferenceHead> heads =
        reference_statistics(reference_of<double>(p), kFull, lanes_of(p.dtype));
    expect_histogram(o.stats.heads[0].histogram, heads[0].sums.histogram, dtype);
    EXPECT_GT(o.stats.heads[0].histogram.above, 0);
  });
}

TEST(laws, sampled_rows_give_the_statistics_of_those_rows) {
  for_each_isa_and_dtype([](DType dtype) {
    StatsRequest request = kFull;
    for (int every : {2, 3, 8}) {
      request.every = every;
      expect_fused_equals_materialised(make_problem({2, 2, 1, 131, 200, 16, 8}, dtype, 803),
                                       request);
      // Splits that another task joins.
      for (std::int64_t rows : {5, 37})
        expect_fused_equals_materialised(make_problem({1, 4, 1, rows, 1091, 24, 8}, dtype, 804),
                                         request);
    }
  });
}

// Columns of every split, of the odd tail, and beyond the end; rows that fill tiles, and few rows
// whose splits are joined by another task.
TEST(laws, tracked_keys_may_lie_anywhere) {
  for_each_isa_and_dtype([](DType dtype) {
    StatsRequest request = kFull;
    request.tracked = {600, 130, 1090, 5000};
    for (std::int64_t rows : {1, 5, 37}) {
      Problem p = make_problem({1, 4, 1, rows, 1091, 24, 8}, dtype, 807, 2.0);
      expect_fused_equals_materialised(p, request);
      p.options.softcap = 20;
      p.options.causal = Causal::bottom_right();
      expect_fused_equals_materialised(p, request);
    }
  });
}

TEST(laws, finite_stand_ins_for_minus_infinity_are_left_out_and_counted) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 1, 1, 60, 700, 16, 8}, dtype, 804);
    Rng rng(805);
    p.bias = TensorBuffer(DType::f32, {60, 700});
    std::int64_t n = 0;
    // Rows 0 to 9 hold nothing but stand-ins.
    p.bias.fill([&] { return n++ / 700 < 10 || rng.chance(0.4) ? -1e4 : 0.0; });
    expect_fused_equals_materialised(p, kFull);
    const Outputs o = run(p, {.stats = kFull});
    EXPECT_EQ(o.stats.heads.at(0).empty_rows, 10);
  });
}

TEST(laws, nonfinite_rows_are_counted_and_left_out) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({2, 1, 1, 40, 300, 16, 8}, dtype, 806);
    p.query.set(p.query.index({0, 0, 17, 3}), std::numeric_limits<double>::quiet_NaN());
    p.query.set(p.query.index({1, 0, 5, 0}), kInfinity);
    const Outputs o = run(p, {.stats = kFull});
    ASSERT_FALSE(o.error) << o.error.message();
    const ReferenceHead head = reference_statistics(reference_of<double>(p), kFull).at(0);
    EXPECT_EQ(head.sums.nonfinite_rows, 2);
    expect_same_statistics(p, o.stats, 0, head);
  });
}

// An infinite key gives scores of +inf and -inf, which a softcap turns into logits of +-softcap:
// such a row has a softmax, but its scores have no mean. Where its infinite key does not count,
// hidden by a mask or a stand-in, a row is like any other.
TEST(laws, a_row_with_an_infinite_score_under_a_softcap_is_nonfinite_in_statistics_alone) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t rows : {1, 3, 40})
      for (const char* last_row : {"sees it", "masks it", "has a stand-in for it"}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, the last " + last_row);
        Problem p = make_problem({1, 1, 1, rows, 300, 16, 8}, dtype, 809);
        p.options.softcap = 5;
        p.options.causal = Causal::bottom_right();
        constexpr std::int64_t kKey = 290;  // the last ten rows see it
        p.key.set(p.key.index({0, 0, kKey, 3}), kInfinity);
        if (last_row[0] == 'm') {
          p.mask = TensorBuffer(DType::boolean, {rows, 300});
          p.mask.fill([] { return 1; });
          p.mask.set(p.mask.index({rows - 1, kKey}), 0);
        } else if (last_row[0] == 'h') {
          p.bias = TensorBuffer(DType::f32, {rows, 300});
          p.bias.fill([] { return 0; });
          p.bias.set(p.bias.index({rows - 1, kKey}), -1e4);
        }
        const std::int64_t infinite =
            std::min<std::int64_t>(rows, 10) - (last_row[0] == 's' ? 0 : 1);
        const ReferenceHead head = reference_statistics(reference_of<double>(p), kFull).at(0);
        EXPECT_EQ(head.sums.nonfinite_rows, infinite);
        for (StatsLevel level : {StatsLevel::max, StatsLevel::core, StatsLevel::full}) {
          const Outputs o = run(p, {.stats = {.level = level}});
          EXPECT_TRUE(agrees(p, o));
          for (double lse : o.lse.values()) EXPECT_TRUE(std::isfinite(lse));
          EXPECT_EQ(o.stats.heads.at(0).nonfinite_rows, infinite) << name(level);
          EXPECT_EQ(o.stats.heads, o.stats.heads) << "a NaN";
          if (level == StatsLevel::full) expect_same_statistics(p, o.stats, 0, head);
        }
      }
  });
}

// Heads of one row each: what holds per row can then be read off the head.
Stats stats_of_single_rows(DType dtype, double spread) {
  const Problem p = make_problem({1, 64, 1, 1, 300, 16, 4}, dtype, 807, spread);
  Outputs o = run(p, {.stats = kFull});
  EXPECT_FALSE(o.error) << o.error.message();
  return o.stats;
}

TEST(laws, entropy_between_0_and_log_kv_len) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double spread : {0.0, 1e-4, 0.05, 1.0, 5.0, 30.0, 300.0})
      for (const HeadStats& row : stats_of_single_rows(dtype, spread).heads) {
        ASSERT_EQ(row.measured_rows, 1);
        EXPECT_GE(row.sum_entropy, 0);
        EXPECT_LE(row.sum_entropy, std::log(300.0));
        EXPECT_GE(row.sum_kl, 0);
        // Zhai et al. 2023 (2303.06296), theorem 3.1, with sigma = sqrt(n Var).
        const double n = 300, sigma = std::sqrt(n * row.scores.sum_variance);
        const double beta = std::exp(-sigma * std::sqrt(n / (n - 1)));
        const double bound = std::log1p((n - 1) * beta) +
                             sigma * std::sqrt(n * (n - 1)) * beta / (1 + (n - 1) * beta);
        EXPECT_GE(row.sum_entropy, bound - 1e-5);
      }
  });
}

TEST(laws, the_jacobian_norm_lies_between_its_trace_bounds) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double spread : {0.0, 0.05, 1.0, 5.0, 30.0, 300.0})
      for (const HeadStats& row : stats_of_single_rows(dtype, spread).heads) {
        constexpr double kRounding = 1e-5;
        EXPECT_GE(row.sum_trace, 0);
        // Below this the norm's square leaves the range of float64.
        constexpr double kVanished = 1e-150;
        EXPECT_GE(row.sum_frobenius * (1 + kRounding) + kVanished,
                  row.sum_trace / std::sqrt(299.0));
        EXPECT_LE(row.sum_frobenius, row.sum_trace * (1 + kRounding));
        EXPECT_NEAR(row.sum_trace + row.sum_squares, 1, kRounding);
      }
  });
}

// Bienayme: Var(q.k) = D for independent elements of mean 0 and variance 1, so the within-row
// variance of scale * dots has mean D scale^2 (n - 1) / n. Tolerance: 4 standard errors of a mean
// over rows that share their keys.
TEST(laws, iid_inputs_give_variance_head_dim_times_scale_squared) {
  for_each_isa_and_dtype([](DType dtype) {
    const double rows = 600, keys = 600;
    for (double head_dim : {4.0, 64.0, 256.0})
      for (double scale : {1 / std::sqrt(head_dim), 1.0, 1 / head_dim}) {
        Problem p = make_problem({1, 1, 1, 600, 600, static_cast<std::int64_t>(head_dim), 1}, dtype,
                                 808 + static_cast<std::uint64_t>(head_dim));
        p.options.scale = scale;
        const Outputs o = run(p, {.stats = {.level = StatsLevel::core}});
        ASSERT_FALSE(o.error) << o.error.message();
        const HeadStats& head = o.stats.heads.at(0);
        const double expected = head_dim * scale * scale * (keys - 1) / keys;
        const double error = std::sqrt(2 / (head_dim * rows) + 2 / (head_dim * keys));
        EXPECT_NEAR(head.scores.sum_variance / rows / expected, 1, 4 * error)
            << "D=" << head_dim << " scale=" << scale;
      }
  });
}

// (1, 5, 10), its eighth, and 112 / sqrt(64) = 14 beside 12.
TEST(laws, the_figures_of_the_lesson_come_out) {
  for_each_isa_and_dtype([](DType dtype) {
    auto stats_of = [&](const std::vector<double>& dots, double scale) {
      Problem p =
          make_problem({1, 1, 1, 1, static_cast<std::int64_t>(dots.size()), 1, 1}, dtype, 1);
      p.query.set(0, 1);
      for (std::size_t j = 0; j < dots.size(); ++j)
        p.key.set(static_cast<std::int64_t>(j), dots[j]);
      p.options.scale = scale;
      Outputs o = run(p, {.pairs = true, .stats = kFull});
      EXPECT_FALSE(o.error) << o.error.message();
      return std::pair(o.weights.values(), o.stats.heads.at(0));
    };
    const auto [weights, peaked] = stats_of({1, 5, 10}, 1);
    EXPECT_NEAR(weights[0], .000122569, 1e-9);
    EXPECT_NEAR(weights[1], .00669203, 1e-8);
    EXPECT_NEAR(weights[2], .993185, 1e-6);
    EXPECT_NEAR(peaked.sum_lse, 10.006838, 1e-6);
    EXPECT_NEAR(peaked.sum_entropy, .041401, 1e-6);
    EXPECT_NEAR(peaked.sum_trace, .013538, 1e-6);
    EXPECT_NEAR(peaked.sum_frobenius, .013356, 1e-6);
    const auto [even_weights, even] = stats_of({1, 5, 10}, 1. / 8);
    EXPECT_NEAR(even_weights[0], .174552, 1e-6);
    EXPECT_NEAR(even.sum_trace, .597632, 1e-6);
    const auto [two_weights, two] = stats_of({112, 96}, 1 / std::sqrt(64.0));
    EXPECT_NEAR(two_weights[0], .880797, 1e-6);
    EXPECT_NEAR(two.sum_trace, .209987, 1e-6);
    EXPECT_EQ(two.scores.max, 14);
    EXPECT_EQ(two.scores.min, 12);
    EXPECT_NEAR(stats_of({112, 96}, 1).first[1], 1.125e-7, 1e-10);
  });
}

}  // namespace
}  // namespace poise::test
