// Other temperatures: each what-if is attention() with those options, to the bit; previews are
// right near and wrong far out; the advised factor does what it promises; refusals. ctest-labels:
// fast unit
#include <gtest/gtest.h>
#include <poise/whatif.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/isa.h"
#include "support/problem.h"

namespace poise::test {
namespace {

const StatsRequest kFull{.level = StatsLevel::full};

std::vector<WhatIfStats> run_what_ifs(const Problem& p, const std::vector<WhatIf>& changes) {
  std::vector<WhatIfStats> results;
  const Error error =
      what_if(p.query.view(), p.key.view(), p.call_options(), changes, &results, kFull);
  EXPECT_FALSE(error) << error.message();
  return results;
}

Problem grouped(DType dtype) {
  Problem p = make_problem({2, 4, 2, 37, 150, 24, 8}, dtype, 71, 1.5);
  p.options.causal = Causal::bottom_right();
  add_alibi(p);
  return p;
}

void set_scales(Problem& p, const std::vector<double>& scales) {
  p.options.scale.reset();
  p.scale_per_head = TensorBuffer(p.number_dtype(), {4});
  for (std::int64_t h = 0; h < 4; ++h) p.scale_per_head.set(h, scales[static_cast<std::size_t>(h)]);
}

TEST(what_if, is_the_call_with_those_options_to_the_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem p = grouped(dtype);
    const double usual = 1 / std::sqrt(24.0), grown = std::log(150.0) / std::log(64.0);
    WhatIf half, heads, capped, longer;
    half.scale_factor = 0.5;
    heads.factor_per_head = {1, 2, 0.25, -1};
    capped.softcap = 3;
    longer.trained_keys = 64;
    const std::vector<WhatIfStats> got = run_what_ifs(p, {half, heads, capped, longer});
    ASSERT_EQ(got.size(), 4u);
    Problem expected[4] = {grouped(dtype), grouped(dtype), grouped(dtype), grouped(dtype)};
    // The call's own scale is rounded before it is multiplied.
    const double held =
        dtype == DType::f64 ? usual : static_cast<double>(static_cast<float>(usual));
    set_scales(expected[0], std::vector<double>(4, held * 0.5));
    set_scales(expected[1], {held, held * 2, held * 0.25, -held});
    expected[2].options.softcap = 3;
    set_scales(expected[3], std::vector<double>(4, held * grown));
    for (std::size_t n = 0; n < 4; ++n) {
      const Stats want = run(expected[n], {.stats = kFull}).stats;
      EXPECT_EQ(got[n].stats.heads, want.heads) << got[n].label;
    }
    EXPECT_EQ(got[0].label, "scale × 0.5");
    EXPECT_EQ(got[1].label, "scale per head");
    EXPECT_EQ(got[2].label, "softcap 3");
    EXPECT_EQ(got[3].label, "log-n from 64");
    EXPECT_TRUE(got[0].scale_only && got[3].scale_only);
    EXPECT_FALSE(got[2].scale_only);
  });
}

TEST(what_if, qk_norm_divides_rows_by_their_root_mean_square_and_takes_the_usual_scale) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = grouped(dtype);
    p.options.scale = 0.7;
    for (std::int64_t d = 0; d < 24; ++d) p.query.set(d, 0);  // a row of zeros stays one
    WhatIf change;
    change.qk_norm = true;
    const std::vector<WhatIfStats> got = run_what_ifs(p, {change});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].label, "QK-norm");
    Problem expected = grouped(DType::f64);
    expected.query = p.query.copied_as(DType::f64);
    expected.key = p.key.copied_as(DType::f64);
    for (TensorBuffer* t : {&expected.query, &expected.key})
      for (std::int64_t row = 0; row < t->count(); row += 24) {
        double squares = 0;
        for (std::int64_t d = 0; d < 24; ++d) squares += t->at(row + d) * t->at(row + d);
        for (std::int64_t d = 0; d < 24 && squares > 0; ++d)
          t->set(row + d, t->at(row + d) / std::sqrt(squares / 24));
      }
    const Stats want = run(expected, {.stats = kFull}).stats;
    for (std::size_t h = 0; h < 4; ++h) {
      const HeadStats &a = got[0].stats.heads[h], &b = want.heads[h];
      EXPECT_NEAR(a.scale, 1 / std::sqrt(24.0), 1e-7);
      EXPECT_NEAR(a.sum_entropy, b.sum_entropy, 1e-4 * b.sum_entropy);
      EXPECT_NEAR(a.sum_frobenius, b.sum_frobenius, 1e-4 * b.sum_frobenius);
      EXPECT_LE(a.scores.max_abs(), std::sqrt(24.0) * (1 + 1e-5));
    }
  });
}

// Queries and keys at and after the lengths lie behind a page without access.
TEST(what_if, memory_beyond_the_lengths_is_never_read) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 1, 1, 33, 130, 24, 8}, dtype, 72);
    WhatIf half, norm;
    half.scale_factor = 0.5;
    norm.qk_norm = true;
    const std::vector<WhatIfStats> expected = run_what_ifs(p, {half, norm});
    for (TensorBuffer* tensor : {&p.query, &p.key})
      *tensor = tensor->copied(Layout::contiguous, Placement::before_guard);
    p.query = p.query.sliced(2, 0, 70);
    p.key = p.key.sliced(2, 0, 1091);
    p.shape.q_len = 70;
    p.shape.kv_len = 1091;
    p.options.diagonal = 130 - 33;
    p.q_lengths = TensorBuffer(DType::i64, {1});
    p.q_lengths.set(0, 33);
    p.kv_lengths = TensorBuffer(DType::i32, {1});
    p.kv_lengths.set(0, 130);
    const std::vector<WhatIfStats> got = run_what_ifs(p, {half, norm});
    ASSERT_EQ(got.size(), 2u);
    for (std::size_t n = 0; n < 2; ++n) EXPECT_EQ(got[n].stats.heads, expected[n].stats.heads);
  });
}

TEST(what_if, the_first_order_preview_is_right_near_and_wrong_far_out) {
  const Problem p = make_problem({1, 1, 1, 64, 512, 32, 4}, DType::f64, 72, 4);
  WhatIf near, far;
  near.scale_factor = 1.002;
  far.scale_factor = 0.125;
  const Stats now = run(p, {.stats = kFull}).stats;
  const std::vector<WhatIfReadout> all = read_what_ifs(now, run_what_ifs(p, {near, far}), 0);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].label, "as it is");
  const double near_change = all[1].entropy - all[0].entropy;
  EXPECT_NEAR(all[1].first_order_entropy_change, near_change, 0.02 * std::fabs(near_change));
  const double far_change = all[2].entropy - all[0].entropy;
  EXPECT_GT(far_change, 2);
  EXPECT_GT(std::fabs(all[2].first_order_entropy_change - far_change), 0.3 * far_change);
  EXPECT_GT(all[2].trace, all[0].trace);
  EXPECT_LT(all[2].sigma, 1);
}

TEST(what_if, with_a_softcap_the_preview_follows_the_bent_scores) {
  Problem p = make_problem({1, 1, 1, 64, 200, 32, 4}, DType::f64, 73, 6);
  p.options.softcap = 5;
  WhatIf near;
  near.scale_factor = 1.002;
  const Stats now = run(p, {.stats = kFull}).stats;
  const std::vector<WhatIfReadout> all = read_what_ifs(now, run_what_ifs(p, {near}), 0);
  const double change = all[1].entropy - all[0].entropy;
  EXPECT_NEAR(all[1].first_order_entropy_change, change, 0.02 * std::fabs(change));
  // The variance of the logits alone would promise several times as much.
  const double upper = now.heads[0].sum_temperature_variance / 64 * std::log(1.002);
  EXPECT_GT(upper, 1.5 * std::fabs(change));
}

TEST(what_if, the_advised_factors_bring_each_spread_to_its_target) {
  Problem p = make_problem({1, 2, 2, 96, 96, 400, 4}, DType::f32, 74);
  p.scale_per_head = TensorBuffer(DType::f32, {2});
  p.scale_per_head.set(0, 1);     // forgotten
  p.scale_per_head.set(1, 0.05);  // healthy
  const Stats now = run(p, {.stats = kFull}).stats;
  const Health health = judge(now);
  WhatIf advised;
  advised.factor_per_head = advised_factors(health);
  EXPECT_EQ(advised.factor_per_head[1], 1);
  const std::vector<WhatIfStats> got = run_what_ifs(p, {advised});
  const Readout then = judge(got[0].stats).heads[0].readout;
  EXPECT_NEAR(then.sigma, health.heads[0].readout.target_sigma, 0.03 * then.sigma);
  EXPECT_LT(then.above_99, 0.05);
  EXPECT_EQ(read_what_ifs(now, got, 0).size(), 2u);
  EXPECT_EQ(read_what_ifs(now, got, 1).size(), 1u);  // nothing changed for it
}

struct Refusal {
  const char* message;
  void (*spoil)(Problem&, WhatIf&, StatsRequest&);
};

TEST(what_if, what_cannot_be_run_is_refused_in_one_sentence_and_nothing_is_appended) {
  const Refusal refusals[] = {
      {"[what_if] what_ifs: scale_factor nan is not finite",
       [](Problem&, WhatIf& w, StatsRequest&) {
         w.scale_factor = std::numeric_limits<double>::quiet_NaN();
       }},
      {"[what_if] what_ifs: factor_per_head has 3 factors for 4 heads",
       [](Problem&, WhatIf& w, StatsRequest&) {
         w.factor_per_head = {1, 2, 3};
       }},
      {"[what_if] what_ifs: factor_per_head inf is not finite",
       [](Problem&, WhatIf& w, StatsRequest&) {
         w.factor_per_head = {1, 1, 1, std::numeric_limits<double>::infinity()};
       }},
      {"[what_if] what_ifs: trained_keys 1 is neither 0 (off) nor a finite number of 2 or more",
       [](Problem&, WhatIf& w, StatsRequest&) { w.trained_keys = 1; }},
      {"[what_if] softcap: -2 is neither 0 (off) nor a finite positive normal f32 number",
       [](Problem&, WhatIf& w, StatsRequest&) { w.softcap = -2; }},
      {"[what_if] stats: every 0 is not in 1 ... 1048576",
       [](Problem&, WhatIf&, StatsRequest& r) { r.every = 0; }},
      {"[what_if] window_left: -5 is below -1 (open)",
       [](Problem& p, WhatIf&, StatsRequest&) { p.options.window_left = -5; }},
  };
  for (const Refusal& refusal : refusals) {
    Problem p = make_problem({1, 4, 2, 5, 9, 8, 4}, DType::f32, 75);
    WhatIf change;
    StatsRequest request = kFull;
    refusal.spoil(p, change, request);
    std::vector<WhatIfStats> results(1);
    const Error error = what_if(p.query.view(), p.key.view(), p.call_options(), {WhatIf(), change},
                                &results, request);
    EXPECT_EQ(error.code(), ErrorCode::bad_value);
    EXPECT_EQ(error.message(), refusal.message);
    EXPECT_EQ(results.size(), 1u);
  }
  const Problem p = make_problem({1, 4, 2, 5, 9, 8, 4}, DType::f32, 76);
  EXPECT_EQ(what_if(p.query.view(), p.key.view(), {}, {}, nullptr).message(),
            "[what_if] results: null, expected a list to append to");
}

}  // namespace
}  // namespace poise::test
