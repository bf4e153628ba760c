// Merging of statistics: neutral elements, sums and maxima across calls, what is refused.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/stats.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/rng.h"
#include "tally.h"

namespace poise {
namespace {

using test::Rng;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows of three keys at scores that are multiples of 1/8, so that sums of means stay exact.
RowTally row_of(double a, double b, double c) {
  RowTally t{};
  const double scores[] = {a, b, c};
  t.max = std::max({a, b, c});
  t.second = a + b + c - t.max - std::min({a, b, c});
  t.visible = 3;
  bool left_out = false;
  for (int j = 0; j < 3; ++j) {
    const double off = scores[j] - t.max, e = std::exp(off);
    t.tracked_logit[j] = t.tracked_score[j] = scores[j];
    t.score_s1 += scores[j];
    t.score_s2 += scores[j] * scores[j];
    if (off == 0 && !std::exchange(left_out, true)) {
      t.argmax = j;
      continue;
    }
    t.rest += e;
    t.rest_t += off * e;
    t.rest_t2 += off * off * e;
    t.rest_e2 += e * e;
    t.rest_e3 += e * e * e;
  }
  t.tracked_logit[3] = t.tracked_score[3] = -kInfinity;
  t.score_min = std::min({a, b, c});
  t.score_max = t.max;
  return t;
}

RowGradient gradient_row(double keys, double sent, double arrived, double dq = 0) {
  RowGradient row{};
  row.keys = keys;
  row.sent_squares = sent;
  row.arrived_squares = arrived;
  row.dq_squares = dq;
  return row;
}

Stats stats_of(std::uint64_t seed, int rows, double offset = 0) {
  Stats stats;
  stats.request.level = StatsLevel::full;
  stats.head_dim = 64;
  stats.kv_heads = 1;
  Rng rng(seed);
  for (int h = 0; h < 2; ++h) {
    HeadStats head = start_head(stats.request, 0.125);
    TaskFacts facts;
    facts.level = StatsLevel::full;
    facts.scale = 0.125;
    for (int i = 0; i < rows; ++i) {
      const auto score = [&] { return offset + 0.125 * static_cast<double>(rng.integer(-40, 40)); };
      RowTally row = row_of(score(), score(), score());
      row.row = i;
      fold_rows(&row, 1, 0, facts, &head);
    }
    for (int i = 0; i < rows; ++i) {
      const RowGradient row = gradient_row(3, 1 + rng.uniform(), rng.uniform(), rng.uniform());
      fold_gradients(&row, 1, &head.gradient);
    }
    const std::vector<std::int64_t> histogram(kHistogramBins + 2, rows);
    fold_histogram(histogram.data(), &head);
    stats.heads.push_back(head);
  }
  return stats;
}

TEST(Stats, default_constructed_stats_become_what_they_merge) {
  Stats total;
  const Stats part = stats_of(1, 5);
  ASSERT_FALSE(total.merge(part));
  EXPECT_EQ(total.heads, part.heads);
  EXPECT_EQ(total.head_dim, 64);
  EXPECT_EQ(total.request.level, StatsLevel::full);
}

TEST(Stats, merging_stats_without_heads_changes_nothing) {
  Stats total = stats_of(1, 5);
  const Stats before = total;
  ASSERT_FALSE(total.merge(Stats()));
  EXPECT_EQ(total.heads, before.heads);
}

// Every row by itself, merged one after the other, adds up in the order of one fold.
TEST(Stats, merging_call_by_call_equals_one_call_over_all_rows) {
  Stats total;
  TaskFacts facts;
  facts.level = StatsLevel::full;
  facts.scale = 0.125;
  facts.sink = 1;
  HeadStats whole = start_head({}, 0.125);
  Rng rng(5);
  for (int i = 0; i < 50; ++i) {
    const double first = rng.normal(), second = rng.chance(0.3) ? first : rng.normal();
    const RowTally row = row_of(first, second, -9);
    fold_rows(&row, 1, 0, facts, &whole);
    Stats call;
    call.request.level = StatsLevel::full;
    call.heads.push_back(start_head({}, 0.125));
    fold_rows(&row, 1, 0, facts, &call.heads[0]);
    ASSERT_FALSE(total.merge(call));
  }
  EXPECT_EQ(total.heads[0], whole);
  EXPECT_GT(whole.near_tie_rows, 0);
}

TEST(Stats, maxima_merge_by_maximum_and_counts_by_sum) {
  Stats a = stats_of(1, 10), b = stats_of(2, 20, -100);
  const HeadStats one = a.heads[1], two = b.heads[1];
  ASSERT_FALSE(a.merge(b));
  const HeadStats& both = a.heads[1];
  EXPECT_EQ(both.scores.max, one.scores.max);
  EXPECT_EQ(both.scores.min, two.scores.min);
  EXPECT_EQ(both.max_dot, one.max_dot);
  EXPECT_EQ(both.min_dot, two.min_dot);
  EXPECT_EQ(both.lse_max, one.lse_max);
  EXPECT_EQ(both.lse_min, two.lse_min);
  EXPECT_EQ(both.rows, 30);
  EXPECT_EQ(both.measured_rows, 30);
  EXPECT_EQ(both.scores.sum_mean, one.scores.sum_mean + two.scores.sum_mean);
  EXPECT_EQ(both.sum_entropy, one.sum_entropy + two.sum_entropy);
  EXPECT_EQ(both.trace.count(), 30);
  EXPECT_EQ(both.histogram.counts[7], 30);
  EXPECT_EQ(both.argmax_column.at(0), one.argmax_column.at(0) + two.argmax_column.at(0));
  EXPECT_EQ(both.tracked[0].rows_without, 30);
  EXPECT_EQ(both.sum_expected_transmission_squared,
            one.sum_expected_transmission_squared + two.sum_expected_transmission_squared);
  EXPECT_EQ(both.gradient.measured_rows, 30);
  EXPECT_EQ(both.gradient.sent_squares, one.gradient.sent_squares + two.gradient.sent_squares);
  EXPECT_EQ(both.gradient.row_gain.count(), 30);
  EXPECT_EQ(both.gradient.dq_squares, one.gradient.dq_squares + two.gradient.dq_squares);
}

// Rows by hand: all three measured rows of three keys, sent 4 in all, 1 of it arrives.
TEST(Stats, transmission_is_a_root_of_sums_and_a_root_mean_square_over_rows) {
  const RowGradient rows[] = {
      gradient_row(3, 1, 0.25, 9),   gradient_row(3, 2, 0.75 - 0x1p-10, 16),
      gradient_row(3, 1, 0x1p-10),   gradient_row(5, 0, 0),  // nothing is sent
      gradient_row(1, 0, 0),                                 // a single key
      gradient_row(0, 0, 0),                                 // none
      gradient_row(4, kInfinity, 0), gradient_row(1, std::numeric_limits<double>::quiet_NaN(), 0),
  };
  HeadStats head;
  EXPECT_FALSE(head.gradient.measured());
  EXPECT_TRUE(std::isnan(head.gradient.transmission()));
  EXPECT_TRUE(std::isnan(head.gradient.rms_transmission()));
  EXPECT_TRUE(std::isnan(head.expected_transmission()));
  fold_gradients(rows, std::size(rows), &head.gradient);
  const GradientStats& g = head.gradient;
  EXPECT_TRUE(g.measured());
  EXPECT_EQ(g.measured_rows, 3);
  EXPECT_EQ(g.silent_rows, 1);
  EXPECT_EQ(g.nonfinite_rows, 2);
  EXPECT_EQ(g.dead_rows, 1);  // 3 / 32
  EXPECT_EQ(g.transmission(), 0.5);
  EXPECT_EQ(g.rms_transmission(), std::sqrt((0.25 + 0.375 - 0x1p-11 + 0x1p-10) / 3));
  EXPECT_EQ(g.dq_norm(), 5);
}

TEST(PlaceCounts, count_like_a_map) {
  Rng rng(3);
  const auto place = [&] { return static_cast<std::int64_t>(rng.next() % 40) - 20; };
  for (int round = 0; round < 200; ++round) {
    std::map<std::int64_t, std::int64_t> expected;
    std::vector<PlaceCounts::Entry> first, second;
    for (std::uint64_t i = rng.next() % 12; i > 0; --i) first.emplace_back(place(), i);
    for (std::uint64_t i = rng.next() % 12; i > 0; --i) second.emplace_back(place(), i);
    for (const auto* entries : {&first, &second})
      for (const auto& [at, rows] : *entries) expected[at] += rows;
    PlaceCounts got(first);
    got.merge(PlaceCounts(second));
    const std::int64_t one_more = place();
    ++got[one_more];
    ++expected[one_more];
    const std::vector<PlaceCounts::Entry> in_order(expected.begin(), expected.end());
    EXPECT_EQ(std::vector<PlaceCounts::Entry>(got.begin(), got.end()), in_order);
    EXPECT_EQ(got.at(one_more), expected.at(one_more));
    EXPECT_EQ(got.at(100), 0);
  }
}

TEST(Stats, merging_is_commutative) {
  Stats ab = stats_of(1, 7), ba = stats_of(2, 9);
  const Stats a = ab, b = ba;
  ASSERT_FALSE(ab.merge(b));
  ASSERT_FALSE(ba.merge(a));
  EXPECT_EQ(ab.heads, ba.heads);
}

TEST(Stats, the_first_nonfinite_row_is_the_smallest_and_minus_one_means_none) {
  Stats a = stats_of(1, 3), b = stats_of(2, 3);
  a.heads[0].first_nonfinite_row = 9;
  b.heads[0].first_nonfinite_row = 4;
  b.heads[1].first_nonfinite_row = 5;
  ASSERT_FALSE(a.merge(b));
  EXPECT_EQ(a.heads[0].first_nonfinite_row, 4);
  EXPECT_EQ(a.heads[1].first_nonfinite_row, 5);
  ASSERT_FALSE(a.merge(stats_of(3, 3)));
  EXPECT_EQ(a.heads[1].first_nonfinite_row, 5);
}

TEST(Stats, max_abs_takes_the_larger_side_whatever_its_sign) {
  SpreadStats spread;
  EXPECT_EQ(spread.max_abs(), -kInfinity);
  spread.max = 5;
  EXPECT_EQ(spread.max_abs(), 5);  // level max: no minimum
  spread.min = -7;
  EXPECT_EQ(spread.max_abs(), 7);
  spread.max = -2;
  EXPECT_EQ(spread.max_abs(), 7);
  spread.min = kInfinity;
  EXPECT_EQ(spread.max_abs(), 2);
}

struct Refusal {
  const char* name;
  void (*spoil)(Stats&);
  ErrorCode code;
  const char* message;
};
// gtest prints parameters; the name says enough.
void PrintTo(const Refusal& refusal, std::ostream* os) { *os << refusal.name; }

class RefusedMerge : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedMerge, names_what_differs_and_changes_nothing) {
  Stats a = stats_of(1, 3), b = stats_of(2, 3);
  const Stats before = a;
  GetParam().spoil(b);
  const Error error = a.merge(b);
  EXPECT_EQ(error.code(), GetParam().code);
  EXPECT_EQ(error.message(), GetParam().message);
  EXPECT_EQ(a.heads, before.heads);
}

const Refusal kRefusals[] = {
    {"heads", [](Stats& s) { s.heads.pop_back(); }, ErrorCode::bad_shape,
     "[merge] other: number of heads 1 differs from 2"},
    {"head_dim", [](Stats& s) { s.head_dim = 80; }, ErrorCode::bad_shape,
     "[merge] other: head_dim 80 differs from 64"},
    {"kv_heads", [](Stats& s) { s.kv_heads = 2; }, ErrorCode::bad_shape,
     "[merge] other: kv_heads 2 differs from 1"},
    {"level", [](Stats& s) { s.request.level = StatsLevel::max; }, ErrorCode::bad_value,
     "[merge] other: level max differs from full"},
    {"histogram", [](Stats& s) { s.request.histogram_low = -16; }, ErrorCode::bad_value,
     "[merge] other: histogram_low -16 differs from -8"},
    {"width", [](Stats& s) { s.request.histogram_width = 0.5; }, ErrorCode::bad_value,
     "[merge] other: histogram_width 0.5 differs from 0.25"},
    {"head_histogram", [](Stats& s) { s.heads[1].histogram.low = -4; }, ErrorCode::bad_value,
     "[merge] other: head 1: histogram_low -4 differs from -8"},
    {"stand_in", [](Stats& s) { s.request.stand_in_bias = -1e4; }, ErrorCode::bad_value,
     "[merge] other: stand_in_bias -10000 differs from -9000"},
    {"tie", [](Stats& s) { s.request.near_tie_gap = 0.01; }, ErrorCode::bad_value,
     "[merge] other: near_tie_gap 0.01 differs from 0.001"},
    {"tracked", [](Stats& s) { s.request.tracked[3] = 70; }, ErrorCode::bad_value,
     "[merge] other: tracked key 70 differs from 3"},
    {"column", [](Stats& s) { s.heads[1].column.key = 70; }, ErrorCode::bad_value,
     "[merge] other: head 1: column 70 differs from -1"},
    {"softcap", [](Stats& s) { s.softcap = 30; }, ErrorCode::bad_value,
     "[merge] other: softcap 30 differs from 0"},
    {"bias", [](Stats& s) { s.has_bias = true; }, ErrorCode::bad_value,
     "[merge] other: logits that differ from the scores 1 differs from 0"},
    {"scale", [](Stats& s) { s.heads[1].scale = 1; }, ErrorCode::bad_value,
     "[merge] other: head 1: scale 1 differs from 0.125"},
};
INSTANTIATE_TEST_SUITE_P(Each, RefusedMerge, testing::ValuesIn(kRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace poise
