// Laws about which keys a query sees: every way of saying the same thing gives the same answer.
//
// Positions, lengths, masks, biases and head groups against an equivalent spelled out in full, bit
// for bit where the arithmetic is the same, on every instruction set and dtype.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/bounds.h"
#include "support/isa.h"
#include "support/slices.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expect_same_bits(const Problem& p, const Problem& q) {
  const Outputs a = run(p), b = run(q);
  ASSERT_FALSE(a.error) << a.error.message();
  ASSERT_FALSE(b.error) << b.error.message();
  EXPECT_EQ(first_difference(a, b), "") << p.describe() << " against " << q.describe();
}

// A [B, 1, Lq, Lk] mask from a rule on (b, i, j).
template <class Rule>
void set_mask(Problem& p, const Rule& visible) {
  const Shape& s = p.shape;
  p.mask = TensorBuffer(DType::boolean, {s.batch, 1, s.q_len, s.kv_len});
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.q_len; ++i)
      for (std::int64_t j = 0; j < s.kv_len; ++j)
        p.mask.set(p.mask.index({b, 0, i, j}), visible(b, i, j) ? 1 : 0);
}

// Shapes where positions matter: more keys than queries, fewer, and more than two splits.
std::vector<Shape> position_shapes() {
  return {{2, 2, 1, 37, 150, 16, 12}, {1, 2, 1, 150, 37, 16, 12}, {1, 1, 1, 141, 1091, 24, 24}};
}

TEST(laws, causal_equals_the_explicit_mask) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : position_shapes())
      for (Causal causal :
           {Causal::top_left(), Causal::bottom_right(), Causal::offset(-3), Causal::offset(700)}) {
        Problem p = make_problem(s, dtype, 301);
        Problem masked = p;
        p.options.causal = causal;
        std::int64_t diagonal = causal.diagonal();
        if (causal.kind() == Causal::Kind::bottom_right) diagonal = s.kv_len - s.q_len;
        set_mask(masked, [&](auto, auto i, auto j) { return j <= i + diagonal; });
        expect_same_bits(p, masked);
      }
  });
}

TEST(laws, windows_equal_the_explicit_mask) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : position_shapes())
      for (auto [left, right] : {std::pair{0, 0}, {5, -1}, {-1, 40}, {130, 7}, {600, 300}}) {
        Problem p = make_problem(s, dtype, 302);
        Problem masked = p;
        p.options.window_left = left;
        p.options.window_right = right;
        const std::int64_t diagonal = s.kv_len - s.q_len;
        set_mask(masked, [&, l = left, r = right](auto, auto i, auto j) {
          return (l < 0 || j >= i + diagonal - l) && (r < 0 || j <= i + diagonal + r);
        });
        expect_same_bits(p, masked);
      }
  });
}

TEST(laws, all_restrictions_intersect) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : position_shapes()) {
      Rng rng(303);
      Problem p = make_problem(s, dtype, 304);
      add_random_mask(p, rng, 0.7, {s.q_len, s.kv_len});
      Problem masked = p;
      p.options.causal = Causal::bottom_right();
      p.options.window_left = 60;
      p.options.window_right = 2;
      p.kv_lengths = random_lengths(rng, s.batch, s.kv_len);
      set_mask(masked, [&](auto b, auto i, auto j) {
        const auto length = static_cast<std::int64_t>(p.kv_lengths.at(b));
        const std::int64_t position = i + length - s.q_len;
        return j < length && j <= position && j >= position - 60 && j <= position + 2 &&
               p.mask.at(p.mask.index({i, j})) != 0;
      });
      expect_same_bits(p, masked);
    }
  });
}

TEST(laws, a_bias_of_minus_infinity_equals_the_mask) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : position_shapes()) {
      Rng rng(305);
      Problem p = make_problem(s, dtype, 306);
      add_random_mask(p, rng, 0.4, {s.q_heads, 1, s.kv_len});
      Problem biased = p;
      biased.mask = TensorBuffer();
      for (DType bias : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        biased.bias = TensorBuffer(bias, {s.q_heads, 1, s.kv_len});
        for (std::int64_t n = 0; n < biased.bias.count(); ++n)
          biased.bias.set(n, p.mask.at(n) != 0 ? 0 : -kInfinity);
        expect_same_bits(p, biased);
      }
    }
  });
}

TEST(laws, a_broadcast_mask_equals_the_full_one) {
  for_each_isa_and_dtype([](DType dtype) {
    const Shape s{2, 3, 1, 21, 140, 10, 10};
    const Extents whole = {s.batch, s.q_heads, s.q_len, s.kv_len};
    for (const Extents& extents : std::vector<Extents>{{140},
                                                       {1},
                                                       {21, 1},
                                                       {3, 1, 1},
                                                       {3, 21, 140},
                                                       {2, 1, 1, 140},
                                                       {1, 3, 1, 140},
                                                       {2, 1, 21, 1}}) {
      Rng rng(307);
      Problem p = make_problem(s, dtype, 308);
      add_random_mask(p, rng, 0.8, extents);
      add_random_bias(p, rng, dtype, extents, 0.1);
      Problem full = p;
      full.mask = TensorBuffer(DType::boolean, whole);
      full.bias = TensorBuffer(dtype, whole);
      for (std::int64_t n = 0; n < full.mask.count(); ++n) {
        std::int64_t rest = n, index = 0, step = 1;
        for (std::size_t axis = 4; axis-- > 0;) {
          const std::int64_t i = rest % whole[axis];
          rest /= whole[axis];
          if (axis + extents.size() < 4) continue;
          const std::int64_t extent = extents[axis + extents.size() - 4];
          index += (extent == 1 ? 0 : i) * step;
          step *= extent;
        }
        full.mask.set(n, p.mask.at(index));
        full.bias.set(n, p.bias.at(index));
      }
      expect_same_bits(p, full);
    }
  });
}

TEST(laws, kv_lengths_equal_shorter_tensors) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t length : {0, 1, 127, 512, 513, 1000}) {
      const Problem p = make_problem({1, 2, 1, 40, 1091, 24, 24}, dtype, 309);
      Problem padded = p, cut = p;
      padded.kv_lengths = TensorBuffer(DType::i32, {1});
      padded.kv_lengths.set(0, static_cast<double>(length));
      cut.shape.kv_len = length;
      cut.key = p.key.sliced(2, 0, length);
      cut.value = p.value.sliced(2, 0, length);
      for (Causal causal : {Causal::none(), Causal::bottom_right(), Causal::top_left()}) {
        padded.options.causal = cut.options.causal = causal;
        expect_same_bits(padded, cut);
      }
    }
  });
}

TEST(laws, rows_beyond_q_lengths_are_zero_with_lse_minus_inf) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem whole = make_problem({3, 2, 1, 70, 150, 16, 16}, dtype, 310);
    Problem p = whole;
    Rng rng(311);
    add_sinks(p, rng);
    const Outputs all = run(p, {.pairs = true});
    p.q_lengths = TensorBuffer(DType::i64, {3});
    const std::int64_t lengths[] = {0, 33, 70};
    for (std::int64_t b = 0; b < 3; ++b) p.q_lengths.set(b, static_cast<double>(lengths[b]));
    const Outputs o = run(p, {.pairs = true, .stats = {.level = StatsLevel::core}});
    ASSERT_FALSE(o.error) << o.error.message();
    for (std::int64_t b = 0; b < 3; ++b) {
      EXPECT_EQ(first_difference(sliced(sliced(o, 0, b, 1), 2, 0, lengths[b]),
                                 sliced(sliced(all, 0, b, 1), 2, 0, lengths[b])),
                "");
      const Outputs rest = sliced(sliced(o, 0, b, 1), 2, lengths[b], 70 - lengths[b]);
      for (const TensorBuffer* zero :
           {&rest.out, &rest.accumulator, &rest.row_sum, &rest.scores, &rest.capped, &rest.weights})
        for (double x : zero->values()) EXPECT_EQ(x, 0);
      for (const TensorBuffer* none :
           {&rest.lse, &rest.lse_without_sink, &rest.max_score, &rest.logits})
        for (double x : none->values()) EXPECT_EQ(x, -kInfinity);
    }
    EXPECT_EQ(o.stats.heads.at(0).rows, 33 + 70);
  });
}

TEST(laws, masked_rows_are_zero_with_lse_minus_inf) {
  for_each_isa_and_dtype([](DType dtype) {
    for (bool sinks : {false, true}) {
      Problem p = make_problem({1, 2, 1, 67, 1091, 16, 16}, dtype, 312);
      Rng rng(313);
      if (sinks) add_sinks(p, rng);
      set_mask(p, [](auto, auto i, auto j) { return i % 3 != 0 && (j + i) % 5 != 0; });
      const Outputs o = run(p, {.pairs = true, .stats = {.level = StatsLevel::core}});
      ASSERT_TRUE(agrees(p, o));
      for (std::int64_t n = 0; n < o.lse.count(); ++n) {
        if (n % 67 % 3 != 0) continue;
        const double sink = sinks ? p.sinks.at(n / 67) : -kInfinity;
        EXPECT_EQ(o.lse.at(n), sink);
        EXPECT_EQ(o.lse_without_sink.at(n), -kInfinity);
        EXPECT_EQ(o.max_score.at(n), -kInfinity);
        for (std::int64_t c = 0; c < 16; ++c) EXPECT_EQ(o.out.at(n * 16 + c), 0);
        for (std::int64_t j = 0; j < 1091; ++j) EXPECT_EQ(o.weights.at(n * 1091 + j), 0);
      }
      EXPECT_EQ(o.stats.heads.at(0).empty_rows, 23);
    }
  });
}

TEST(laws, grouped_heads_equal_repeated_heads) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem grouped = make_problem({2, 6, 2, 45, 1091, 20, 12}, dtype, 314);
    grouped.options.causal = Causal::bottom_right();
    add_alibi(grouped);
    Problem repeated = grouped;
    repeated.shape.kv_heads = 6;
    repeated.key = TensorBuffer(dtype, {2, 6, 1091, 20});
    repeated.value = TensorBuffer(dtype, {2, 6, 1091, 12});
    for (auto member : {&Problem::key, &Problem::value}) {
      TensorBuffer& to = repeated.*member;
      const TensorBuffer& from = grouped.*member;
      const std::int64_t head = to.extent(2) * to.extent(3);
      for (std::int64_t n = 0; n < to.count(); ++n) {
        const std::int64_t b = n / (6 * head), h = n / head % 6;
        to.set(n, from.at((b * 2 + h / 3) * head + n % head));
      }
    }
    expect_same_bits(grouped, repeated);
  });
}

// ALiBi is the bias -slope |i + o - j|, to the rounding of that bias.
TEST(laws, alibi_equals_the_bias_it_stands_for) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : position_shapes()) {
      Problem p = make_problem(s, dtype, 315);
      add_alibi(p);
      Problem biased = p;
      biased.alibi_slopes = TensorBuffer();
      biased.bias = TensorBuffer(DType::f64, {s.q_heads, s.q_len, s.kv_len});
      for (std::int64_t h = 0; h < s.q_heads; ++h)
        for (std::int64_t i = 0; i < s.q_len; ++i)
          for (std::int64_t j = 0; j < s.kv_len; ++j)
            biased.bias.set(
                biased.bias.index({h, i, j}),
                -p.alibi_slopes.at(h) * std::fabs(static_cast<double>(i + s.kv_len - s.q_len - j)));
      EXPECT_TRUE(agree(p, run(p), run(biased)));
    }
  });
}

// [B, Hq] slopes with equal rows are [Hq] slopes; so are diagonals and one diagonal.
TEST(laws, per_batch_options_equal_shared_ones) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({3, 2, 1, 30, 140, 9, 9}, dtype, 316);
    add_alibi(p);
    p.options.causal = Causal::offset(17);
    Problem each = p;
    each.alibi_slopes = TensorBuffer(p.number_dtype(), {3, 2});
    for (std::int64_t n = 0; n < 6; ++n) each.alibi_slopes.set(n, p.alibi_slopes.at(n % 2));
    each.options.causal = Causal::top_left();
    each.diagonals = TensorBuffer(DType::i32, {3});
    each.diagonals.fill([] { return 17.0; });
    expect_same_bits(p, each);
    each.diagonals = TensorBuffer();
    each.options.diagonal = 17;
    expect_same_bits(p, each);
    p.options.scale = 0.25;
    each.scale_per_head = TensorBuffer(p.number_dtype(), {2});
    each.scale_per_head.fill([] { return 0.25; });
    expect_same_bits(p, each);
  });
}

}  // namespace
}  // namespace poise::test
