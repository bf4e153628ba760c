// Every verdict on real queries and keys: attention() runs, judge() reads what it measured. Each
// rule just beyond its threshold, where it is the head's verdict, and just short of it, where it is
// not raised; and heads as practice knows them.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/gradient.h>
#include <poise/health.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "support/problem.h"
#include "support/subject.h"

namespace poise::test {
namespace {

using Storage = JudgeContext::Storage;
const StatsRequest kFull{.level = StatsLevel::full};

// A head whose scores are chosen: queries are the unit vectors of 40 dimensions, so component i of
// key j is the score of row i. Standard normal until changed: healthy.
struct Head {
  static constexpr std::int64_t kRowsHere = 40;
  std::int64_t keys;
  std::vector<double> scores;
  double dots_over_scores = 1;  // scale = 1 / this
  JudgeContext context;

  explicit Head(std::int64_t keys_here = 64) : keys(keys_here) {
    Rng rng(51);
    for (std::int64_t n = 0; n < kRowsHere * keys; ++n) scores.push_back(rng.normal());
  }
  double& at(std::int64_t i, std::int64_t j) {
    return scores[static_cast<std::size_t>(i * keys + j)];
  }
  double sum_of_exp(std::int64_t i, std::int64_t without) {
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j)
      if (j != without) sum += std::exp(at(i, j));
    return sum;
  }
  // Gives key j of row i this share of the row.
  void give(std::int64_t i, std::int64_t j, double weight) {
    at(i, j) = std::log(weight / (1 - weight) * sum_of_exp(i, j));
  }
  std::int64_t far_apart(std::int64_t i) const { return i * 23 % keys; }  // no column twice

  Problem problem() const {
    Problem p = make_problem({1, 1, 1, kRowsHere, keys, kRowsHere, 1}, DType::f64, 52);
    for (std::int64_t i = 0; i < kRowsHere; ++i)
      for (std::int64_t d = 0; d < kRowsHere; ++d)
        p.query.set(p.query.index({0, 0, i, d}), i == d ? dots_over_scores : 0);
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t i = 0; i < kRowsHere; ++i)
        p.key.set(p.key.index({0, 0, j, i}), scores[static_cast<std::size_t>(i * keys + j)]);
    p.options.scale = 1 / dots_over_scores;
    return p;
  }
  HeadHealth judged() const {
    const Outputs o = run(problem(), {.stats = kFull});
    EXPECT_FALSE(o.error) << o.error.message();
    return judge(o.stats, {}, context).heads.at(0);
  }
};

// The largest |dot| becomes `size`, the scores stay.
void stretch_dots(Head& head, double size) {
  head.dots_over_scores = size / head.judged().readout.max_abs_dot;
}

// Rows [0, count) put `weight` on one key each, no two on the same.
void one_hot_rows(Head& head, std::int64_t count, double weight) {
  for (std::int64_t i = 0; i < count; ++i) head.give(i, head.far_apart(i), weight);
}

// Scores of +-3.2, half and half: wider than the freezing spread, yet no key stands out.
void widen(Head& head) {
  for (std::int64_t i = 0; i < Head::kRowsHere; ++i)
    for (std::int64_t j = 0; j < head.keys; ++j) head.at(i, j) = (i + j) % 2 == 0 ? 3.2 : -3.2;
}

void tie_rows(Head& head, std::int64_t count) {
  head.context.pv_in_bf16 = true;
  for (std::int64_t i = 0; i < count; ++i)
    head.at(i, head.far_apart(i)) = head.at(i, head.far_apart(i + 1)) = 4;
}

void look_back(Head& head, std::int64_t rows) {
  for (std::int64_t i = 0; i < Head::kRowsHere; ++i) head.at(i, i) = i < rows ? 5 : -1;
}

// Key 0 weighs `weight` in every row; in half of them another key weighs more.
void sink(Head& head, double weight) {
  for (std::int64_t i = 0; i < Head::kRowsHere; ++i) {
    if (i % 2 == 0) head.give(i, 1 + head.far_apart(i) % 63, 0.6);
    head.give(i, 0, weight);
  }
}

void cool_to_kl(Head& head, double kl) {
  const std::vector<double> wide = head.scores;
  double low = 0, high = 1;
  for (int round = 0; round < 40; ++round) {
    const double factor = (low + high) / 2;
    for (std::size_t n = 0; n < wide.size(); ++n) head.scores[n] = factor * wide[n];
    (head.judged().readout.kl < kl ? low : high) = factor;
  }
}

struct Border {
  const char* name;
  const char* beyond;  // the flags beyond the threshold, the verdict first
  const char* short_of;
  void (*change)(Head&, bool beyond);
};
void PrintTo(const Border& border, std::ostream* os) { *os << border.name; }

const Border kBorders[] = {
    {"overflow_warn", "warn overflow fp16", "",
     [](Head& h, bool beyond) { stretch_dots(h, beyond ? 32753 : 32751); }},
    {"overflow_critical", "critical overflow fp16", "warn overflow fp16",
     [](Head& h, bool beyond) { stretch_dots(h, beyond ? 65521 : 65519); }},
    {"bf16_warn", "warn precision 16-bit", "",
     [](Head& h, bool beyond) {
       h.context.scores_stored = Storage::bf16;
       h.at(3, 5) = beyond ? -16 : -15.99;
     }},
    {"bf16_bad", "bad precision 16-bit", "warn precision 16-bit",
     [](Head& h, bool beyond) {
       h.context.scores_stored = Storage::bf16;
       h.at(3, 5) = beyond ? -64 : -63.9;
     }},
    {"f16_warn", "warn precision 16-bit", "",
     [](Head& h, bool beyond) {
       h.context.scores_stored = Storage::f16;
       h.at(3, 5) = beyond ? -128 : -127.9;
     }},
    {"f16_bad", "bad precision 16-bit", "warn precision 16-bit",
     [](Head& h, bool beyond) {
       h.context.scores_stored = Storage::f16;
       h.at(3, 5) = beyond ? -512 : -511;
     }},
    {"ties", "warn tie-bias bf16", "", [](Head& h, bool beyond) { tie_rows(h, beyond ? 10 : 9); }},
    {"exploding_bad", "bad exploding", "",
     [](Head& h, bool beyond) { h.at(3, 5) = beyond ? -1000 : -999.9; }},
    {"exploding_critical", "critical exploding", "bad exploding",
     [](Head& h, bool beyond) { h.at(3, 5) = beyond ? -1e4 : -9999; }},
    {"hot_watch", "watch hot", "", [](Head& h, bool beyond) { h.at(3, 5) = beyond ? 50 : 49.99; }},
    {"hot_bad", "bad hot", "watch hot",
     [](Head& h, bool beyond) { h.at(3, 5) = beyond ? 100.01 : 100; }},
    {"saturated_by_rows", "bad saturated, bad dead gradient", "",
     [](Head& h, bool beyond) {
       widen(h);
       one_hot_rows(h, beyond ? 20 : 19, 0.995);
     }},
    {"peaked_at_a_modest_spread", "information peaked by design", "",
     [](Head& h, bool beyond) {
       h = Head(128);  // with fewer keys rows of .99 on one of them pass too little gradient
       one_hot_rows(h, beyond ? 20 : 19, 0.9905);
     }},
    {"peaked_at_an_offset", "information peaked by design", "",
     [](Head& h, bool beyond) { look_back(h, beyond ? 36 : 35); }},
    {"sink", "information sink-dominated", "",
     [](Head& h, bool beyond) { sink(h, beyond ? 0.301 : 0.299); }},
    {"diffuse", "warn diffuse", "",
     [](Head& h, bool beyond) { cool_to_kl(h, beyond ? 0.0499 : 0.0501); }},
    {"dead_gradient", "bad dead gradient", "",
     [](Head& h, bool beyond) { one_hot_rows(h, Head::kRowsHere, beyond ? 0.9888 : 0.986); }},
    {"saturated_by_trace", "bad saturated, bad dead gradient", "bad dead gradient",
     [](Head& h, bool beyond) {
       widen(h);
       one_hot_rows(h, Head::kRowsHere, beyond ? 0.98999 : 0.9888);
     }},
};

class RealVerdict : public testing::TestWithParam<Border> {};

TEST_P(RealVerdict, is_raised_beyond_its_threshold_and_not_short_of_it) {
  Head beyond, short_of;
  GetParam().change(beyond, true);
  GetParam().change(short_of, false);
  EXPECT_EQ(flags_of(beyond.judged()), GetParam().beyond);
  EXPECT_EQ(flags_of(short_of.judged()), GetParam().short_of);
}
INSTANTIATE_TEST_SUITE_P(Each, RealVerdict, testing::ValuesIn(kBorders),
                         [](const auto& test) { return std::string(test.param.name); });

// Half of the keys hold next to no weight, and values tell only these apart; `told` of the
// difference is among the others. One dimension of value and a gradient of 1: dP is the value.
HeadHealth judged_with_values(double told) {
  Head head;
  for (std::int64_t i = 0; i < Head::kRowsHere; ++i)
    for (std::int64_t j = 0; j < head.keys; j += 2) head.at(i, j) -= 9;
  Problem p = head.problem();
  Rng rng(53);
  for (std::int64_t j = 0; j < head.keys; ++j)
    p.value.set(j, j % 2 == 0 ? rng.normal() : told * rng.normal());
  TensorBuffer dout(DType::f64, {1, 1, Head::kRowsHere, 1});
  TensorBuffer dq(DType::f64, {1, 1, Head::kRowsHere, Head::kRowsHere});
  dout.fill([] { return 1; });
  Outputs o = run(p, {.stats = kFull});
  Forward forward;
  forward.out = o.out.view();
  forward.row_max = o.row_max.view();
  forward.row_sum = o.row_sum.view();
  OutGradient gradient;
  gradient.dout = dout.view();
  Gradients gradients;
  gradients.dq = dq.view();
  const Error error = backward(p.query.view(), p.key.view(), p.value.view(), forward, gradient,
                               gradients, p.call_options(), &o.stats);
  EXPECT_FALSE(error) << error.message();
  return judge(o.stats).heads.at(0);
}

TEST(RealVerdict, low_transmission_is_raised_below_a_quarter_of_what_is_expected) {
  double low = 0, high = 1;
  const auto ratio = [](double told) {
    const Readout r = judged_with_values(told).readout;
    return r.transmission / r.expected_transmission;
  };
  for (int round = 0; round < 40; ++round) {
    const double told = (low + high) / 2;
    (ratio(told) < 0.25 ? low : high) = told;
  }
  const HeadHealth beyond = judged_with_values(low * 0.999),
                   short_of = judged_with_values(high * 1.001);
  EXPECT_EQ(flags_of(beyond), "bad dead gradient");
  EXPECT_GT(beyond.readout.gain, 0.5);
  EXPECT_EQ(flags_of(short_of), "");
}

// Heads as practice knows them: iid queries and keys at several scales.
HeadHealth judged_at(double scale, double mean = 0) {
  Problem p = make_problem({1, 1, 1, 128, 128, 400, 4}, DType::f32, 54);
  for (TensorBuffer* t : {&p.query, &p.key})
    for (std::int64_t n = 0; n < t->count(); ++n) t->set(n, t->at(n) + mean);
  p.options.scale = scale;
  return judge(run(p, {.stats = kFull}).stats).heads.at(0);
}

TEST(RealVerdict, textbook_heads_are_called_by_their_names) {
  EXPECT_EQ(judged_at(1.0 / 20).verdict, VerdictKind::healthy);
  const HeadHealth unscaled = judged_at(1);
  ASSERT_EQ(unscaled.verdict, VerdictKind::saturated);
  EXPECT_TRUE(contains(unscaled.flags[0].cause, "the division by √400 was forgotten"));
  const HeadHealth twice = judged_at(1.0 / 400);
  ASSERT_EQ(twice.verdict, VerdictKind::diffuse);
  EXPECT_NEAR(twice.flags[0].factor, 20, 1e-5);
  const HeadHealth offset = judged_at(1.0 / 20, 13.5);
  EXPECT_EQ(offset.verdict, VerdictKind::overflow_f16);
  EXPECT_EQ(offset.severity, Severity::critical);
  EXPECT_TRUE(contains(flags_of(offset), "bad exploding, bad hot"));
}

TEST(RealVerdict, an_all_negative_head_is_neither_hot_nor_silent_about_its_size) {
  Head head;
  for (double& score : head.scores) score -= 700;
  const HeadHealth judged = head.judged();
  EXPECT_EQ(flags_of(judged), "");
  EXPECT_LT(judged.readout.max_score, -600);
  EXPECT_GT(judged.readout.max_abs_logit, 700);
}

TEST(RealVerdict, one_hot_head_of_a_group_is_named_alone) {
  Problem p = make_problem({1, 4, 1, 32, 64, 16, 4}, DType::f32, 55);
  for (std::int64_t d = 0; d < 16; ++d)  // one query of head 2 points along a key
    p.query.set(p.query.index({0, 2, 9, d}), 60 * p.key.at(p.key.index({0, 0, 20, d})));
  const Health health = judge(run(p, {.stats = kFull}).stats);
  for (std::size_t h : {0u, 1u, 3u}) EXPECT_EQ(flags_of(health.heads[h]), "") << h;
  ASSERT_EQ(flags_of(health.heads[2]), "bad hot");
  EXPECT_NEAR(health.heads[2].flags[0].factor, 100 / health.heads[2].readout.max_score, 1e-12);
}

TEST(RealVerdict, a_call_starts_its_statistics_anew_and_merging_keeps_the_larger_maximum) {
  Problem p = make_problem({1, 1, 1, 32, 64, 16, 4}, DType::f32, 56, 30);
  Stats stats = run(p, {.stats = kFull}).stats;
  const double hot = stats.heads[0].scores.max;
  Problem calm = make_problem({1, 1, 1, 32, 64, 16, 4}, DType::f32, 57);
  calm.options.scale = p.options.scale;
  const Stats step = run(calm, {.stats = kFull}).stats;
  EXPECT_LT(step.heads[0].scores.max, 10);
  ASSERT_FALSE(stats.merge(step));
  EXPECT_EQ(stats.heads[0].scores.max, hot);
  EXPECT_EQ(stats.heads[0].measured_rows, 64);
}

}  // namespace
}  // namespace poise::test
