// Read-outs of row tallies against two passes over the same rows, in long double.
//
// The streaming state is driven here key by key, with random blocks and merges, by the recurrences
// of docs/health.md: a second implementation beside the kernels, so that tally.cpp can be judged
// alone.
// ctest-labels: fast unit
#include "tally.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/rng.h"

namespace poise {
namespace {

using test::Rng;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Key {
  std::int64_t index;
  double score, logit;
  bool stand_in;
  double drive = 0;  // d logit / d ln scale
};
using Row = std::vector<Key>;  // the visible keys

// The streaming state of one split.
struct Stream {
  bool empty = true;
  double max = 0, second = -kInfinity;
  double u = 0, a = 0, a2 = 0, b = 0, c = 0;
  std::int64_t argmax = -1;

  void raise(double new_max) {
    const double delta = new_max - max, r = std::exp(-delta);
    a2 = r * (a2 - 2 * delta * a + delta * delta * u) + delta * delta * r;
    a = r * (a - delta * u) - delta * r;
    b = r * r * (b + 1);
    c = r * r * r * (c + 1);
    u = r * (u + 1);
    max = new_max;
  }
  void add(const Key& key) {
    if (empty) {
      empty = false;
      max = key.logit;
      argmax = key.index;
    } else if (key.logit > max) {
      second = max;
      raise(key.logit);
      argmax = key.index;
    } else {
      const double t = key.logit - max, e = std::exp(t);
      second = std::max(second, key.logit);
      u += e;
      a += t * e;
      a2 += t * t * e;
      b += e * e;
      c += e * e * e;
    }
  }
  // `later` covers keys after this stream's.
  void merge(Stream later) {
    if (later.empty) return;
    if (empty) {
      *this = later;
      return;
    }
    const double smaller = std::min(max, later.max);
    second = std::max({second, later.second, smaller});
    if (later.max > max) {
      argmax = later.argmax;
      raise(later.max);
    } else {
      later.raise(max);
    }
    u += later.u;
    a += later.a;
    a2 += later.a2;
    b += later.b;
    c += later.c;
  }
};

struct Moments {
  double shift = 0, s1 = 0, s2 = 0, min = kInfinity, max = -kInfinity;
  bool started = false;

  void add(double x) {
    if (!started) shift = x + 0.25;  // the mean of a block is near its first element, not equal
    started = true;
    s1 += x - shift;
    s2 += (x - shift) * (x - shift);
    min = std::min(min, x);
    max = std::max(max, x);
  }
};

RowTally stream(const Row& row, std::int64_t query, Rng& rng) {
  Stream whole, split;
  Moments scores, logits;
  RowTally tally{};
  tally.row = query;
  for (int k = 0; k < kTallyTracked; ++k) {
    tally.tracked_logit[k] = -kInfinity;
    tally.tracked_score[k] = -kInfinity;
  }
  for (const Key& key : row) {
    if (rng.chance(0.1)) {
      whole.merge(split);
      split = Stream();
    }
    split.add(key);
    ++tally.visible;
    if (key.index < kTallyTracked) {
      tally.tracked_logit[key.index] = key.logit;
      tally.tracked_score[key.index] = key.score;
      tally.tracked_bias[key.index] = key.stand_in ? -1e4 : key.logit - key.score;
    }
    if (key.stand_in) {
      ++tally.stand_ins;
      continue;
    }
    scores.add(key.score);
    logits.add(key.logit);
  }
  whole.merge(split);
  tally.max = whole.empty ? -std::numeric_limits<double>::max() : whole.max;
  tally.second = whole.second;
  tally.rest = whole.u;
  tally.rest_t = whole.a;
  tally.rest_t2 = whole.a2;
  tally.rest_e2 = whole.b;
  tally.rest_e3 = whole.c;
  tally.argmax = whole.argmax;
  for (const Key& key : row) {
    const double t = key.logit - whole.max, moved = std::exp(t) * (key.drive - row[0].drive - 0.25);
    tally.drive += moved;
    tally.drive_t += t * moved;
  }
  tally.score_shift = scores.shift;
  tally.score_s1 = scores.s1;
  tally.score_s2 = scores.s2;
  tally.score_min = scores.min;
  tally.score_max = scores.max;
  tally.logit_shift = logits.shift;
  tally.logit_s1 = logits.s1;
  tally.logit_s2 = logits.s2;
  tally.logit_min = logits.min;
  tally.logit_max = logits.max;
  return tally;
}

using Real = long double;
constexpr Real kInfinityReal = std::numeric_limits<Real>::infinity();

struct TwoPass {
  Real n = 0, lse = 0, max = -kInfinityReal, second = -kInfinityReal, entropy = 0, top1 = 0,
       rest = 0;
  Real squares = 0, trace = 0, frobenius = 0, temperature = 0, covariance = 0;
  Real score_mean = 0, score_variance = 0, logit_mean = 0, logit_variance = 0;
  std::vector<Real> p;
  std::size_t argmax = 0;
};

TwoPass two_pass(const Row& row) {
  TwoPass r;
  std::vector<Real> logit, score;
  for (const Key& key : row) {
    logit.push_back(static_cast<Real>(key.logit));
    score.push_back(static_cast<Real>(key.score));
  }
  for (std::size_t j = 0; j < row.size(); ++j)
    if (logit[j] > r.max) {
      r.max = logit[j];
      r.argmax = j;
    }
  Real others = 0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (j == r.argmax) continue;
    others += std::exp(logit[j] - r.max);
    r.second = std::max(r.second, logit[j]);
  }
  r.lse = r.max + std::log1p(others);
  r.top1 = 1 / (1 + others);
  r.rest = others / (1 + others);
  Real mean_logit = 0, mean_drive = 0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    const Real p = std::exp(logit[j] - r.max) / (1 + others);
    const Real complement = j == r.argmax ? r.rest : 1 - p;
    r.p.push_back(p);
    r.squares += p * p;
    r.trace += p * complement;
    r.frobenius += p * p * complement * complement;
    if (p > 0) r.entropy -= p * (logit[j] - r.max - std::log1p(others));
    mean_logit += p * logit[j];
    mean_drive += p * static_cast<Real>(row[j].drive);
  }
  Real earlier = 0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    r.covariance +=
        r.p[j] * (static_cast<Real>(row[j].drive) - mean_drive) * (logit[j] - mean_logit);
    r.temperature += r.p[j] * (logit[j] - mean_logit) * (logit[j] - mean_logit);
    r.frobenius += 2 * r.p[j] * r.p[j] * earlier;
    earlier += r.p[j] * r.p[j];
    if (row[j].stand_in) continue;
    ++r.n;
    r.score_mean += score[j];
    r.logit_mean += logit[j];
  }
  r.frobenius = std::sqrt(r.frobenius);
  r.score_mean /= r.n;
  r.logit_mean /= r.n;
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (row[j].stand_in) continue;
    r.score_variance += (score[j] - r.score_mean) * (score[j] - r.score_mean) / r.n;
    r.logit_variance += (logit[j] - r.logit_mean) * (logit[j] - r.logit_mean) / r.n;
  }
  return r;
}

Row random_row(Rng& rng, double spread, bool general) {
  Row row;
  const std::int64_t keys = rng.integer(1, 80);
  const double offset = rng.pick({0.0, -50.0, 3000.0}), keep = rng.uniform(0.3, 1);
  for (std::int64_t j = 0; j < keys; ++j) {
    if (!rng.chance(keep)) continue;
    Key key{j, offset + spread * rng.normal(), 0, general && rng.chance(0.1)};
    if (rng.chance(0.1) && !row.empty() && !general) key.score = row.back().score;  // a tie
    const double bias = key.stand_in ? -1e4 : general ? rng.normal() : 0;
    const double bend = std::tanh(key.score / 40);
    key.drive = general ? key.score * (1 - bend * bend) : key.score;
    key.logit = (general ? 40 * std::tanh(key.score / 40) : key.score) + bias;
    row.push_back(key);
  }
  return row;
}

TaskFacts facts_of(bool general) {
  TaskFacts facts;
  facts.level = StatsLevel::full;
  facts.logits_differ = general;
  facts.scale = 0.125;
  return facts;
}

HeadStats fold_one(const RowTally& tally, const TaskFacts& facts) {
  HeadStats head = start_head({}, facts.scale);
  fold_rows(&tally, 1, 0, facts, &head);
  return head;
}

// Within 1e-12 of the value, or of `size` where the value is a difference of numbers of that size.
void expect_close(double got, Real want, const char* what, Real size = 0) {
  const Real allowed = 1e-12L * std::max(std::fabs(want), size);
  EXPECT_NEAR(got, static_cast<double>(want), static_cast<double>(allowed)) << what;
}

void expect_without(const TrackedKey& got, const Row& row, const TwoPass& whole, int k) {
  Row rest;
  Real weight = 0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (row[j].index == k)
      weight = whole.p[j];
    else
      rest.push_back(row[j]);
  }
  expect_close(got.sum_weight, weight, "weight");
  const TwoPass want = two_pass(rest);
  if (want.n < 1 || want.lse - whole.lse < -700) return;  // nothing left, or nothing with weight
  ASSERT_EQ(got.rows_without, 1);
  EXPECT_EQ(got.above_99_without, want.top1 > 0.99L);
  // The rest is seen through 1 - p of a key that is not the largest, and through scores about a
  // shift that the removed key took part in.
  expect_close(got.sum_entropy_without, want.entropy, "entropy without", 10);
  EXPECT_NEAR(got.trace_without.quantile(0.5), static_cast<double>(want.trace),
              0.016 * static_cast<double>(want.trace) + 1e-13);
  const auto sigma = static_cast<double>(std::sqrt(want.score_variance));
  EXPECT_NEAR(got.sigma_without.quantile(0.5), sigma, 0.016 * sigma + 1e-6);
}

void expect_two_passes(const HeadStats& got, const Row& row, bool general) {
  const TwoPass want = two_pass(row);
  ASSERT_EQ(got.measured_rows, 1);
  EXPECT_EQ(got.visible_keys, static_cast<double>(want.n));
  const Real log_n = std::log(want.n), spread2 = want.score_variance + 1;
  expect_close(got.sum_log_keys, log_n, "ln n");
  expect_close(got.sum_lse, want.lse, "lse");
  expect_close(got.sum_top1, want.top1, "top1");
  expect_close(got.sum_entropy, want.entropy, "entropy");
  expect_close(got.sum_entropy_ratio, want.entropy / log_n, "ratio");
  expect_close(got.sum_kl, log_n - want.entropy, "kl", log_n);
  expect_close(got.sum_squares, want.squares, "squares");
  expect_close(got.sum_effective_keys, 1 / want.squares, "effective keys");
  expect_close(got.sum_trace, want.trace, "trace");
  expect_close(got.sum_frobenius, want.frobenius, "frobenius");
  expect_close(got.sum_frobenius_squared, want.frobenius * want.frobenius, "frobenius squared");
  expect_close(got.sum_expected_transmission, want.frobenius / std::sqrt(want.n - 1),
               "transmission");
  expect_close(got.sum_temperature_variance, want.temperature, "temperature", spread2);
  expect_close(got.sum_scale_covariance, general ? want.covariance : 0, "covariance",
               spread2 * 100);
  expect_close(got.scores.sum_mean, want.score_mean, "mean", 1);
  expect_close(got.scores.sum_variance, want.score_variance, "variance", spread2 * 10);
  EXPECT_EQ(got.rows_above_99, want.top1 > 0.99L);
  EXPECT_EQ(got.near_tie_rows, want.max - want.second <= 1e-3L);
  EXPECT_EQ(got.dead_rows, want.frobenius * want.n / std::sqrt(want.n - 1) < 0.1L);
  EXPECT_EQ(got.argmax_column.begin()->first, row[want.argmax].index);
  if (general) {
    expect_close(got.logits.sum_mean, want.logit_mean, "logit mean", 1);
    expect_close(got.logits.sum_variance, want.logit_variance, "logit variance", spread2 * 10);
  } else {
    EXPECT_EQ(got.logits, SpreadStats());
  }
  for (int k = 0; k < kTrackedKeys; ++k)
    expect_without(got.tracked[static_cast<std::size_t>(k)], row, want, k);
}

class TallyAtSpread : public testing::TestWithParam<double> {};

TEST_P(TallyAtSpread, streaming_state_reads_out_like_two_passes) {
  Rng rng(11);
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const bool general = i % 2 == 1;
    const Row row = random_row(rng, GetParam(), general);
    Real n = 0;
    for (const Key& key : row) n += !key.stand_in;
    if (n < 2) continue;
    expect_two_passes(fold_one(stream(row, i, rng), facts_of(general)), row, general);
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, TallyAtSpread, testing::Values(0.05, 1.0, 5.0, 30.0));

RowTally tally_of(const std::vector<double>& scores) {
  Row row;
  for (std::size_t j = 0; j < scores.size(); ++j)
    row.push_back({static_cast<std::int64_t>(j), scores[j], scores[j], false});
  Rng rng(1);
  return stream(row, 0, rng);
}

TEST(Tally, a_row_of_one_key_enters_counts_maxima_and_lse_only) {
  const HeadStats head = fold_one(tally_of({3}), facts_of(false));
  HeadStats want = start_head({}, 0.125);
  want.rows = want.single_rows = 1;
  want.scores.min = want.scores.max = 3;
  want.max_dot = want.min_dot = 24;
  want.lse_min = want.lse_max = 3;
  EXPECT_EQ(head, want);
}

TEST(Tally, a_row_without_keys_is_only_counted) {
  const HeadStats head = fold_one(tally_of({}), facts_of(false));
  HeadStats want = start_head({}, 0.125);
  want.rows = want.empty_rows = 1;
  EXPECT_EQ(head, want);
}

TEST(Tally, a_row_of_stand_ins_only_counts_as_empty) {
  Rng rng(1);
  const Row row = {{0, 1, -9999, true}, {1, 2, -9998, true}};
  const HeadStats head = fold_one(stream(row, 0, rng), facts_of(true));
  EXPECT_EQ(head.empty_rows, 1);
  EXPECT_EQ(head.stand_ins, 2);
  EXPECT_EQ(head.measured_rows, 0);
  EXPECT_EQ(head.scores, SpreadStats());
}

TEST(Tally, a_nonfinite_row_is_counted_and_leaves_no_other_trace) {
  RowTally tally = tally_of({1, 2});
  tally.row = 5;
  tally.bad = 1;
  TaskFacts facts = facts_of(false);
  facts.batch = 2;
  facts.q_len = 100;
  HeadStats head = fold_one(tally, facts);
  HeadStats want = start_head({}, 0.125);
  want.rows = want.nonfinite_rows = 1;
  want.first_nonfinite_row = 205;
  EXPECT_EQ(head, want);
  facts.batch = 1;
  fold_rows(&tally, 1, 0, facts, &head);
  EXPECT_EQ(head.first_nonfinite_row, 105);
}

TEST(Tally, level_max_needs_no_more_than_the_maxima_and_the_rest) {
  RowTally tally = tally_of({1, 4, 2});
  for (double* unset : {&tally.rest_t, &tally.rest_t2, &tally.rest_e2, &tally.rest_e3,
                        &tally.score_shift, &tally.score_s1, &tally.score_s2, &tally.score_min,
                        &tally.score_max, &tally.tracked_logit[0], &tally.tracked_score[0]})
    *unset = kNaN;
  TaskFacts facts = facts_of(false);
  facts.level = StatsLevel::max;
  const HeadStats head = fold_one(tally, facts);
  EXPECT_EQ(head.scores.max, 4);
  EXPECT_EQ(head.scores.max_abs(), 4);
  EXPECT_EQ(head.max_dot, 32);
  EXPECT_NEAR(head.sum_top1, 0.8437947, 1e-7);
  EXPECT_NEAR(head.sum_lse, 4.1698460, 1e-7);
  EXPECT_EQ(head.trace.count(), 0);
  EXPECT_EQ(head.sum_entropy, 0);
}

TEST(Tally, a_negative_scale_swaps_the_dots) {
  TaskFacts facts = facts_of(false);
  facts.scale = -0.5;
  const HeadStats head = fold_one(tally_of({-3, 4}), facts);
  EXPECT_EQ(head.max_dot, 6);
  EXPECT_EQ(head.min_dot, -8);
}

TEST(Tally, a_scale_of_zero_leaves_the_dots_unmeasured) {
  TaskFacts facts = facts_of(false);
  facts.scale = 0;
  const HeadStats head = fold_one(tally_of({0, 0}), facts);
  EXPECT_EQ(head.max_dot, -kInfinity);
  EXPECT_EQ(head.min_dot, kInfinity);
}

TEST(Tally, the_sink_takes_its_share_of_the_denominator_and_of_nothing_else) {
  TaskFacts facts = facts_of(false);
  const HeadStats plain = fold_one(tally_of({0, 0}), facts);
  facts.sink = 0;
  HeadStats head = fold_one(tally_of({0, 0}), facts);
  EXPECT_NEAR(head.sum_sink_weight, 1.0 / 3, 1e-15);
  head.sum_sink_weight = 0;
  EXPECT_EQ(head, plain);
}

TEST(Tally, a_row_is_a_near_tie_up_to_the_gap_and_not_beyond) {
  TaskFacts facts = facts_of(false);
  facts.near_tie_gap = 0.5;
  EXPECT_EQ(fold_one(tally_of({1, 1.5, 0}), facts).near_tie_rows, 1);
  EXPECT_EQ(fold_one(tally_of({1, 1.5625, 0}), facts).near_tie_rows, 0);
}

TEST(Tally, arg_max_places_are_counted_by_column_and_by_offset_from_the_diagonal) {
  std::vector<RowTally> rows(3, tally_of({1, 5, 2}));
  for (std::size_t i = 0; i < 3; ++i) rows[i].row = static_cast<std::int64_t>(i);
  rows[2].argmax = 2;
  TaskFacts facts = facts_of(false);
  facts.diagonal = 10;
  HeadStats head = start_head({}, 1);
  fold_rows(rows.data(), 3, 0, facts, &head);
  fold_rows(rows.data(), 1, 0, facts, &head);
  EXPECT_EQ(head.argmax_column, (PlaceCounts{{1, 3}, {2, 1}}));
  EXPECT_EQ(head.argmax_offset, (PlaceCounts{{-10, 2}, {-9, 2}}));
}

TEST(Tally, arg_max_places_far_apart_are_counted_too) {
  std::vector<RowTally> rows(2, tally_of({1, 5}));
  rows[1].argmax = 1'000'000'000'000;
  HeadStats head = start_head({}, 1);
  fold_rows(rows.data(), 2, 0, facts_of(false), &head);
  EXPECT_EQ(head.argmax_column, (PlaceCounts{{1, 1}, {1'000'000'000'000, 1}}));
}

TEST(Tally, a_saturated_row_keeps_its_digits) {
  const HeadStats head = fold_one(tally_of({0, 46}), facts_of(false));
  const double p = std::exp(-46.0);
  EXPECT_NEAR(head.sum_trace / (2 * p), 1, 1e-12);
  EXPECT_NEAR(head.sum_frobenius / (2 * p), 1, 1e-12);
  EXPECT_NEAR(head.sum_entropy / (p * 47), 1, 1e-12);
  EXPECT_NEAR(head.rest.quantile(0.5) / p, 1, 0.016);
}

TEST(Tally, rows_fold_to_the_same_bits_in_one_call_or_many) {
  Rng rng(3);
  std::vector<RowTally> rows;
  for (int i = 0; i < 200; ++i) rows.push_back(stream(random_row(rng, 3, false), i, rng));
  const TaskFacts facts = facts_of(false);
  HeadStats whole = start_head({}, 0.125), parts = whole;
  fold_rows(rows.data(), 200, 0, facts, &whole);
  for (int i = 0; i < 200; i += 50) fold_rows(rows.data() + i, 50, 0, facts, &parts);
  EXPECT_EQ(whole, parts);
}

TEST(Tally, a_kernel_histogram_joins_bin_by_bin) {
  std::vector<std::int64_t> counts(kHistogramBins + 2);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<std::int64_t>(i + 1);
  HeadStats head = start_head({}, 1);
  fold_histogram(counts.data(), &head);
  fold_histogram(counts.data(), &head);
  EXPECT_EQ(head.histogram.below, 2);
  EXPECT_EQ(head.histogram.counts[0], 4);
  EXPECT_EQ(head.histogram.counts[kHistogramBins - 1], 2 * (kHistogramBins + 1));
  EXPECT_EQ(head.histogram.above, 2 * (kHistogramBins + 2));
}

}  // namespace
}  // namespace poise
