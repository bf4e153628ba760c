// Dropout: the generator against its published answers, the kernels' masks against the rule, and
// what dropped weights do to every output.
//
// Masks are read where scores are all 0 and value is the identity: out then is the weights. That no
// bit depends on threads, batch, chunks or splits under dropout is said by the laws, whose problems
// draw it among the other options.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>
#include <poise/report.h>

#include <cmath>
#include <functional>

#include "kernels/philox.h"
#include "support/bounds.h"
#include "support/isa.h"
#include "support/slices.h"

namespace poise::test {
namespace {

constexpr std::uint64_t kSeed = 0x0123456789abcdef, kOffset = 0xfedcba9876543210;

// The four words as one hexadecimal text.
std::string text_of(const PhiloxWords& words) {
  char text[40];
  std::snprintf(text, sizeof text, "%08x %08x %08x %08x", words.word[0], words.word[1],
                words.word[2], words.word[3]);
  return text;
}

// The lines philox4x32 10 of kat_vectors in Random123, the authors' own distribution.
TEST(dropout, philox_gives_the_published_answers) {
  EXPECT_EQ(text_of(philox({{0, 0, 0, 0}}, {{0, 0}})), "6627e8d5 e169c58d bc57ac4c 9b00dbd8");
  EXPECT_EQ(text_of(philox({{~0u, ~0u, ~0u, ~0u}}, {{~0u, ~0u}})),
            "408f276d 41c83b0e a20bc7c6 6d5451fd");
  EXPECT_EQ(text_of(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                           {{0xa4093822, 0x299f31d0}})),
            "d16cfe09 94fdcceb 5001e420 24126ea1");
}

// Numbers of another program, written from docs/semantics.md alone.
TEST(dropout, words_are_those_of_the_documented_rule) {
  const PhiloxKey key = dropout_key(kSeed, kOffset);
  EXPECT_EQ(key.word[0], 0x2c03a599);
  EXPECT_EQ(key.word[1], 0xd8a290fc);
  EXPECT_EQ(dropout_word(key, 0, 0, 0, 0), 0x8ffeb256);
  EXPECT_EQ(dropout_word(key, 0, 0, 0, 1), 0xff15c029);
  EXPECT_EQ(dropout_word(key, 3, 2, 1, 0), 0xa7b622b5);
  EXPECT_EQ(dropout_word(key, 1, 7, 1000, 4099), 0x86d2a159);
  EXPECT_EQ(dropout_word(key, 0xffffffff, 0xffffffff, 0xffffffff, (std::int64_t{1} << 34) - 1),
            0x5f52d19a);
  EXPECT_EQ(dropout_threshold(0), 0);
  EXPECT_EQ(dropout_threshold(0x1p-33), 0);
  EXPECT_EQ(dropout_threshold(0.25), 0x40000000);
  EXPECT_EQ(dropout_threshold(std::nextafter(1, 0)), 0xffffffff);
}

bool keeps(const Dropout& d, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return dropout_word(dropout_key(d.seed, d.offset), d.batch_offset + b, d.head_offset + h,
                      d.query_offset + i, d.key_offset + j) >= dropout_threshold(d.probability);
}

// Every weight is 1 / Lk, and out shows the weights.
Problem flat_problem(Shape shape, DType dtype, const Dropout& dropout) {
  shape.head_dim = 3;
  shape.value_dim = shape.kv_len;
  Problem p = make_problem(shape, dtype, 901);
  p.options.scale = 0;
  p.options.dropout = dropout;
  std::int64_t n = 0;
  p.value.fill([&] {
    const std::int64_t at = n++ % (shape.kv_len * shape.kv_len);
    return at / shape.kv_len == at % shape.kv_len ? 1.0 : 0.0;
  });
  return p;
}

// Few rows of one head and of a group, rows of a group that fill lanes, rows of one head.
const Shape kShapes[] = {
    {2, 2, 1, 1, 131}, {1, 2, 2, 3, 260}, {2, 10, 2, 5, 131}, {1, 2, 1, 70, 131}};

TEST(dropout, kernels_keep_the_weights_that_the_rule_keeps) {
  constexpr std::int64_t kEnd = std::int64_t{1} << 32;
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : kShapes)
      for (const Dropout& d :
           {Dropout{0.5, kSeed, kOffset}, Dropout{0.1, 1, 2, 5, 3, 1001, 4 * 128 - 3},
            Dropout{0.9, 0, 0, kEnd - s.batch, kEnd - s.q_heads, kEnd - s.q_len,
                    4 * kEnd - s.kv_len}}) {
        const Problem p = flat_problem(s, dtype, d);
        const Outputs o = run(p, {.pairs = true});
        ASSERT_FALSE(o.error) << o.error.message();
        for (std::int64_t b = 0; b < s.batch; ++b)
          for (std::int64_t h = 0; h < s.q_heads; ++h)
            for (std::int64_t i = 0; i < s.q_len; ++i)
              for (std::int64_t j = 0; j < s.kv_len; ++j) {
                const bool kept = keeps(d, b, h, i, j);
                const std::int64_t at = o.out.index({b, h, i, j});
                ASSERT_EQ(o.out.at(at) > 0, kept) << b << h << i << ' ' << j << p.describe();
                ASSERT_EQ(o.weights.at(at) > 0, kept) << b << h << i << ' ' << j << p.describe();
              }
      }
  });
}

TEST(dropout, parts_of_a_call_draw_their_part_of_its_mask) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem whole = flat_problem({2, 4, 2, 20, 150}, dtype, {0.4, kSeed, 3});
    const Outputs all = run(whole);
    // Keys from an odd place on: words of a counter fall into two parts.
    const Outputs keys = run(key_part(whole, 7, 90));
    Problem heads = whole;
    heads.shape.q_heads = heads.shape.kv_heads = 2;
    heads.query = whole.query.sliced(1, 2, 2);
    heads.key = whole.key.sliced(1, 0, 2);
    heads.value = whole.value.sliced(1, 0, 2);
    heads.options.dropout.head_offset = 2;
    const Outputs last_heads = run(heads);
    for (const Outputs* o : {&all, &keys, &last_heads})
      ASSERT_FALSE(o->error) << o->error.message();
    for (std::int64_t row = 0; row < 2 * 4 * 20; ++row)
      for (std::int64_t j = 0; j < 90; ++j)
        ASSERT_EQ(keys.out.at(row * 150 + 7 + j) > 0, all.out.at(row * 150 + 7 + j) > 0);
    const TensorBuffer expected = all.out.sliced(1, 2, 2);
    EXPECT_EQ(first_difference(last_heads.out, expected), "");
  });
}

void expect_same(const Problem& p, const Outputs& a, const Outputs& b) {
  for (const Outputs* o : {&a, &b}) ASSERT_FALSE(o->error) << o->error.message();
  EXPECT_EQ(first_difference(a, b), "") << p.describe();
}

// One with many options, and decode steps of others.
void for_some_long_problems(DType dtype, const std::function<void(const Problem&)>& body) {
  std::vector<Problem> problems = long_problems(dtype);
  for (Problem& p : problems) p.options.dropout = {};
  body(problems[2]);
  for (const int n : {0, 2, 3})
    body(query_chunk(problems[static_cast<std::size_t>(n)], problems[0].shape.q_len - 1, 1));
}

TEST(dropout, a_probability_that_drops_nothing_changes_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for_some_long_problems(dtype, [](const Problem& p) {
      const Outputs without = run(p);
      Problem with = p;
      with.options.dropout = {.probability = 0, .seed = 5, .offset = 6, .query_offset = -1};
      expect_same(p, run(with), without);
      with.options.dropout = {.probability = 1e-30, .seed = 5, .offset = 6};
      expect_same(p, run(with), without);
    });
  });
}

TEST(dropout, the_softmax_and_its_statistics_are_those_without_dropout) {
  for_each_isa_and_dtype([](DType dtype) {
    for_some_long_problems(dtype, [](const Problem& p) {
      const Wish wish{.stats = {.level = StatsLevel::full}};
      Outputs without = run(p, wish);
      Problem with = p;
      with.options.dropout = {.probability = 0.5, .seed = 7};
      Outputs dropped = run(with, wish);
      EXPECT_NE(first_difference(dropped.out, without.out), "");
      for (Outputs* o : {&without, &dropped}) o->out = o->accumulator = TensorBuffer();
      expect_same(p, dropped, without);
      EXPECT_EQ(to_json(dropped.stats), to_json(without.stats)) << p.describe();
    });
  });
}

TEST(dropout, under_every_mask_a_call_agrees_with_the_definition) {
  const std::function<void(Problem&, Rng&)> kinds[] = {
      [](Problem&, Rng&) {},
      [](Problem& p, Rng&) { p.options.causal = Causal::top_left(); },
      [](Problem& p, Rng&) { p.options.causal = Causal::bottom_right(); },
      [](Problem& p, Rng&) {
        p.options.diagonal = 40;
        p.options.window_left = 35;
        p.options.window_right = 9;
      },
      [](Problem& p, Rng& rng) { p.kv_lengths = random_lengths(rng, 2, p.shape.kv_len); },
      [](Problem& p, Rng& rng) { p.q_lengths = random_lengths(rng, 2, p.shape.q_len); },
      [](Problem& p, Rng& rng) {
        add_random_mask(p, rng, 0.6, {p.shape.q_len, p.shape.kv_len});
      },
      [](Problem& p, Rng& rng) {
        add_random_mask(p, rng, 0.9, {1, p.shape.kv_len});
      },
      [](Problem& p, Rng& rng) {
        add_random_bias(p, rng, p.dtype, {p.shape.q_heads, 1, p.shape.kv_len}, 0.3);
        add_alibi(p);
        add_sinks(p, rng);
        p.options.softcap = 4;
      },
  };
  for_each_isa_and_dtype([&](DType dtype) {
    Rng rng(902);
    for (const std::int64_t q_len : {1, 4, 35})
      for (const auto& kind : kinds) {
        Problem p = make_problem({2, 4, 2, q_len, 300, 8, 5}, dtype, 903, 2);
        add_dropout(p, rng, 0.3);
        kind(p, rng);
        EXPECT_TRUE(agrees(p, run(p, {.pairs = true})));
      }
  });
}

TEST(dropout, a_dropped_key_stays_visible_and_a_masked_one_does_not_show) {
  constexpr std::int64_t kBad = 70;
  for_each_isa_and_dtype([](DType dtype) {
    for (const std::int64_t q_len : {7, 75}) {
      Problem p = make_problem({1, 2, 1, q_len, 140, 20, 9}, dtype, 904);
      p.options.causal = Causal::offset(kBad - q_len / 2);
      p.options.dropout = {0.5, 8, 9};
      for (std::int64_t c = 0; c < 9; ++c)
        p.value.set(kBad * 9 + c, std::numeric_limits<double>::quiet_NaN());
      const Outputs o = run(p);
      EXPECT_TRUE(agrees(p, o));
      bool some_row_drops_it = false;
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < q_len; ++i) {
          const bool seen = i >= q_len / 2;
          some_row_drops_it =
              some_row_drops_it || (seen && !keeps(p.options.dropout, 0, h, i, kBad));
          for (std::int64_t c = 0; c < 9; ++c)
            EXPECT_EQ(std::isnan(o.out.at(o.out.index({0, h, i, c}))), seen) << h << ' ' << i;
        }
      EXPECT_TRUE(some_row_drops_it);
    }
  });
}

TEST(dropout, the_kept_share_is_within_four_sigma) {
  const Shape s{2, 2, 1, 64, 256};
  constexpr double kWeights = 2 * 2 * 64 * 256;
  for (const double probability : {0.01, 0.1, 0.5, 0.9}) {
    const Outputs o = run(flat_problem(s, DType::f32, {probability, kSeed, 11}));
    ASSERT_FALSE(o.error) << o.error.message();
    double kept = 0, kept_of_word[4] = {};
    for (std::int64_t n = 0; n < o.out.count(); ++n)
      if (o.out.at(n) > 0) {
        ++kept;
        ++kept_of_word[n % 4];
      }
    const double variance = probability * (1 - probability) / kWeights;
    EXPECT_NEAR(kept / kWeights, 1 - probability, 4 * std::sqrt(variance));
    for (const double part : kept_of_word)
      EXPECT_NEAR(part / (kWeights / 4), 1 - probability, 4 * std::sqrt(4 * variance));
  }
}

// Two independent masks of probability 1/2 agree in half of their places.
TEST(dropout, another_seed_offset_or_place_draws_another_mask) {
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 32;
  const Dropout base{0.5, kSeed, kOffset};
  for (const Dropout& other :
       {Dropout{0.5, kSeed + 1, kOffset}, Dropout{0.5, kSeed + kHigh, kOffset},
        Dropout{0.5, kSeed, kOffset + 1}, Dropout{0.5, kSeed, kOffset + kHigh},
        Dropout{0.5, kSeed, kOffset, 1}, Dropout{0.5, kSeed, kOffset, 0, 1},
        Dropout{0.5, kSeed, kOffset, 0, 0, 1}, Dropout{0.5, kSeed, kOffset, 0, 0, 0, 1},
        Dropout{0.5, kSeed, kOffset, 0, 0, 0, 4}}) {
    const Shape s{1, 1, 1, 64, 256};
    const Outputs a = run(flat_problem(s, DType::f32, base)),
                  b = run(flat_problem(s, DType::f32, other));
    double same = 0;
    for (std::int64_t n = 0; n < 64 * 256; ++n) same += (a.out.at(n) > 0) == (b.out.at(n) > 0);
    EXPECT_NEAR(same / (64 * 256), 0.5, 4 * std::sqrt(0.25 / (64 * 256)));
  }
}

TEST(dropout, out_averaged_over_seeds_is_out_without_dropout) {
  constexpr int kSeeds = 2000;
  Problem p = make_problem({1, 2, 1, 6, 40, 8, 4}, DType::f32, 905);
  const std::vector<double> without = run(p).out.values();
  std::vector<double> sum(without.size()), squares(without.size());
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    p.options.dropout = {0.3, seed};
    const std::vector<double> out = run(p).out.values();
    for (std::size_t n = 0; n < out.size(); ++n) {
      sum[n] += out[n];
      squares[n] += out[n] * out[n];
    }
  }
  for (std::size_t n = 0; n < without.size(); ++n) {
    const double mean = sum[n] / kSeeds, variance = squares[n] / kSeeds - mean * mean;
    EXPECT_NEAR(mean, without[n], 4 * std::sqrt(variance / kSeeds)) << n;
  }
}

}  // namespace
}  // namespace poise::test
