// Signals against independent ways to the same number, with real queries and keys on every
// instruction set: entropy's slope against entropies of neighbouring scales, near ties against a
// count of the logits, sinks beyond the first keys against what was planted, raw scores beside
// softcapped logits, steps of 16-bit numbers against the formats.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>
#include <poise/health.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/isa.h"
#include "support/problem.h"
#include "support/subject.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const StatsRequest kFull{.level = StatsLevel::full};

HeadStats head_at(Problem p, double scale) {
  p.options.scale = scale;
  const Outputs o = run(p, {.stats = kFull});
  EXPECT_FALSE(o.error) << o.error.message();
  return o.stats.heads.at(0);
}

// What makes logits differ from scores, and how.
struct Difference {
  const char* name;
  void (*add)(Problem&);
};
const Difference kDifferences[] = {
    {"nothing", [](Problem&) {}},
    {"softcap", [](Problem& p) { p.options.softcap = 4; }},
    {"alibi", [](Problem& p) { add_alibi(p); }},
    {"bias",
     [](Problem& p) {
       Rng rng(31);
       add_random_bias(p, rng, DType::f64, {p.shape.q_len, p.shape.kv_len}, 0.1);
     }},
    {"all of them",
     [](Problem& p) {
       Rng rng(32);
       p.options.softcap = 4;
       p.options.causal = Causal::bottom_right();
       add_alibi(p);
       add_random_bias(p, rng, DType::f64, {p.shape.q_len, p.shape.kv_len}, 0.1);
     }},
};

TEST(signals, the_slope_of_entropy_is_its_derivative_by_the_logarithm_of_the_scale) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (const Difference& difference : kDifferences)
      for (double spread : {0.3, 2.0, 8.0}) {
        SCOPED_TRACE(isa + ", " + difference.name + ", spread " + std::to_string(spread));
        Problem p = make_problem({1, 1, 1, 19, 700, 16, 4}, DType::f64, 33, spread);
        difference.add(p);
        const double scale = 0.25, step = 1e-5;
        p.options.scale = scale;
        const Outputs o = run(p, {.stats = kFull});
        ASSERT_FALSE(o.error) << o.error.message();
        const double rows = static_cast<double>(o.stats.heads.at(0).measured_rows);
        const double up = head_at(p, scale * std::exp(step)).sum_entropy,
                     down = head_at(p, scale * std::exp(-step)).sum_entropy;
        const double slope = (up - down) / (2 * step) / rows;
        EXPECT_NEAR(o.stats.entropy_slope(o.stats.heads[0]), slope, 2e-6 * (1 + std::fabs(slope)));
      }
  }
}

// Where a bias decides, a hotter softmax spreads out: the slope has the other sign, which the
// variance of the logits never has.
TEST(signals, a_bias_can_turn_the_slope_round) {
  Problem p = make_problem({1, 1, 1, 8, 64, 16, 4}, DType::f64, 34, 0.5);
  p.bias = TensorBuffer(DType::f64, {8, 64});
  p.options.scale = 1;
  const Outputs plain = run(p, {.columns = false, .pairs = true, .stats = kFull});
  for (std::int64_t n = 0; n < 8 * 64; ++n) p.bias.set(n, -3 * plain.scores.at(n));
  const Outputs o = run(p, {.stats = kFull});
  ASSERT_FALSE(o.error) << o.error.message();
  EXPECT_GT(o.stats.entropy_slope(o.stats.heads.at(0)), 0);
  EXPECT_GT(o.stats.heads[0].sum_temperature_variance, 0);
}

TEST(signals, rows_with_a_near_tie_are_those_whose_two_largest_logits_are_close) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double gap : {0.0, 1e-3, 0.25}) {
      StatsRequest request = kFull;
      request.near_tie_gap = gap;
      Problem p = make_problem({1, 2, 1, 130, 650, 8, 4}, dtype, 35, 1.5);
      // Every fifth row sees two equal keys at its maximum.
      for (std::int64_t d = 0; d < 8; ++d) {
        const double x = p.key.at(p.key.index({0, 0, 3, d}));
        p.key.set(p.key.index({0, 0, 3, d}), 3 * x);
        p.key.set(p.key.index({0, 0, 640, d}), 3 * x);
        for (std::int64_t i = 0; i < 130; i += 5) p.query.set(p.query.index({0, 0, i, d}), 4 * x);
      }
      const Outputs o = run(p, {.pairs = true, .stats = request});
      ASSERT_FALSE(o.error) << o.error.message();
      for (std::int64_t h = 0; h < 2; ++h) {
        std::int64_t ties = 0;
        for (std::int64_t i = 0; i < 130; ++i) {
          double first = -kInfinity, second = -kInfinity;
          for (std::int64_t j = 0; j < 650; ++j) {
            const double x = o.logits.at(o.logits.index({0, h, i, j}));
            second = std::max(second, std::min(first, x));
            first = std::max(first, x);
          }
          ties += first - second <= gap;
        }
        EXPECT_EQ(o.stats.heads[static_cast<std::size_t>(h)].near_tie_rows, ties) << gap;
        if (h == 0) {
          EXPECT_GE(ties, 26);
        }
      }
    }
  });
}

// Two heads; every row of the first leans on key 333, every row of the second on key 7.
Problem with_two_sinks() {
  Problem p = make_problem({1, 2, 2, 40, 500, 16, 4}, DType::f32, 36, 0.8);
  const std::int64_t sinks[] = {333, 7};
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 40; ++i) p.query.set(p.query.index({0, h, i, 0}), 8);
    for (std::int64_t j = 0; j < 500; ++j) p.key.set(p.key.index({0, h, j, 0}), 0);
    p.key.set(p.key.index({0, h, sinks[h], 0}), 5);  // a score of 10 among unit scores
  }
  return p;
}

TEST(signals, a_sink_in_any_column_is_found_by_the_arg_max_and_measured_by_a_second_run) {
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    const IsaScope scope(isa);
    const Problem p = with_two_sinks();
    Stats stats = run(p, {.stats = kFull}).stats;
    EXPECT_EQ(stats.untracked_columns(), (std::vector<std::int64_t>{7, 333}));
    for (const HeadHealth& head : judge(stats).heads)
      EXPECT_FALSE(contains(flags_of(head), "sink-dominated"));

    StatsRequest request = kFull;
    request.tracked = {7, 333, 2, 3};
    const Stats again = run(p, {.stats = request}).stats;
    ASSERT_FALSE(stats.adopt_columns(again));
    EXPECT_TRUE(stats.untracked_columns().empty());
    EXPECT_EQ(stats.heads[0].column.key, 333);
    EXPECT_EQ(stats.heads[0].column.tracked, again.heads[0].tracked[1]);
    EXPECT_EQ(stats.heads[1].column.key, 7);

    const Health health = judge(stats);
    EXPECT_EQ(health.heads[0].readout.sink_key, 333);
    EXPECT_GT(health.heads[0].readout.sink_weight, 0.9);
    ASSERT_EQ(flags_of(health.heads[0]),
              "information peaked by design, information sink-dominated");
    EXPECT_TRUE(contains(health.heads[0].flags[1].evidence, "Key 333 holds"));
    EXPECT_EQ(health.heads[1].readout.sink_key, 7);
  }
}

TEST(signals, columns_of_another_call_are_not_adopted) {
  Stats stats = run(with_two_sinks(), {.stats = kFull}).stats;
  const Stats before = stats;
  const Stats other =
      run(make_problem({1, 2, 2, 40, 500, 16, 4}, DType::f32, 37), {.stats = kFull}).stats;
  Error error = stats.adopt_columns(other);
  EXPECT_EQ(error.message(), "[adopt_columns] other: head 0 has its largest weights elsewhere");
  error = stats.adopt_columns(Stats());
  EXPECT_EQ(error.message(), "[adopt_columns] other: number of heads 0 differs from 2");
  EXPECT_EQ(stats.heads, before.heads);
}

TEST(signals, scores_before_a_softcap_stand_beside_the_logits_after_it) {
  Problem p = make_problem({1, 1, 1, 64, 64, 64, 4}, DType::f32, 38, 40);
  p.options.softcap = 30;
  const Stats stats = run(p, {.stats = kFull}).stats;
  const HeadHealth head = judge(stats).heads.at(0);
  EXPECT_GT(head.readout.max_score, 100);
  EXPECT_LE(head.readout.max_logit, 30);
  EXPECT_NEAR(head.readout.sigma, 40, 6);
  EXPECT_LT(head.readout.logit_sigma, 25);
  bool told = false;
  for (const Flag& flag : head.flags)
    told |= flag.kind == VerdictKind::hot && contains(flag.evidence, "after the softcap 30");
  EXPECT_TRUE(told);
  p.options.softcap = 0;
  const Readout plain = judge(run(p, {.stats = kFull}).stats).heads.at(0).readout;
  EXPECT_EQ(plain.max_logit, plain.max_score);
  EXPECT_EQ(plain.logit_sigma, plain.sigma);
}

// A pair of keys with scores +-size.
Readout readout_of_size(double size) {
  Problem p = make_problem({1, 1, 1, 1, 2, 1, 1}, DType::f64, 39);
  p.options.scale = 1;
  p.query.set(0, 1);
  p.key.set(0, size);
  p.key.set(1, -size);
  return judge(run(p, {.stats = kFull}).stats).heads.at(0).readout;
}

TEST(signals, sixteen_bit_steps_and_headroom_are_those_of_the_formats) {
  EXPECT_EQ(readout_of_size(1).bf16_step, 0x1p-7);
  EXPECT_EQ(readout_of_size(1).f16_step, 0x1p-10);
  EXPECT_EQ(readout_of_size(16).bf16_step, 0.125);
  EXPECT_EQ(readout_of_size(15.9).bf16_step, 0.0625);
  EXPECT_EQ(readout_of_size(2047).f16_step, 1);
  EXPECT_EQ(readout_of_size(65504).f16_step, 32);
  EXPECT_EQ(readout_of_size(65505).f16_step, kInfinity);
  EXPECT_EQ(readout_of_size(65505).bf16_step, 256);
  EXPECT_EQ(readout_of_size(32752).f16_headroom_bits, 1);
  EXPECT_LT(readout_of_size(70000).f16_headroom_bits, 0);
}

}  // namespace
}  // namespace poise::test
