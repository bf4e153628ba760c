// Laws about the edges: NaN and infinity stay where they are seen, emptiness is told exactly,
// nothing is read or written outside.
//
// The table "Edges" of docs/semantics.md, row by row, on every instruction set and dtype.
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
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void expect_same_bits(const Outputs& a, const Outputs& b, const std::string& when) {
  EXPECT_FALSE(a.error) << a.error.message();
  EXPECT_FALSE(b.error) << b.error.message();
  EXPECT_EQ(first_difference(a, b), "") << when;
}

void fill_row(TensorBuffer& tensor, std::int64_t head, std::int64_t row, double x) {
  for (std::int64_t d = 0; d < tensor.extent(3); ++d)
    tensor.set(tensor.index({0, head, row, d}), x);
}

Problem with_own_tensors(const Problem& p) {
  Problem copy = p;
  for (TensorBuffer* tensor : copy.tensors()) *tensor = tensor->copied(Layout::contiguous);
  return copy;
}

// Keys no query sees: masked by position, mask, bias or length. What lies there is nobody's
// business.
TEST(laws, a_masked_key_influences_nothing) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 2, 1, 75, 1091, 24, 20}, dtype, 601);
    Rng rng(602);
    p.kv_lengths = TensorBuffer(DType::i64, {1});
    p.kv_lengths.set(0, 1050);
    p.options.window_left = 600;
    p.options.causal = Causal::bottom_right();
    add_random_mask(p, rng, 0.7, {1, 1091});
    add_random_bias(p, rng, dtype, {1, 1091}, 0.3);
    const Outputs clean = run(p, {.stats = {.level = StatsLevel::full}});
    for (double poison : {kNaN, kInfinity, -kInfinity}) {
      Problem bad = with_own_tensors(p);
      for (std::int64_t j = 0; j < 1091; ++j) {
        // The first key of any row's window is 1050 - 75 - 600.
        const bool masked_out = p.mask.at(j) == 0;
        if (!masked_out && p.bias.at(j) > -kInfinity && j < 1050 && j >= 375) continue;
        fill_row(bad.key, 0, j, poison);
        fill_row(bad.value, 0, j, poison);
        if (masked_out) bad.bias.set(j, poison);
      }
      const Outputs o = run(bad, {.stats = {.level = StatsLevel::full}});
      expect_same_bits(clean, o, "poison " + std::to_string(poison));
      EXPECT_TRUE(clean.stats.heads == o.stats.heads);
    }
  });
}

TEST(laws, a_nan_key_reaches_only_the_rows_that_see_it) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t at : {3, 64, 130, 700}) {
      Problem p = make_problem({1, 2, 2, 75, 760, 24, 20}, dtype, 603);
      p.options.causal = Causal::offset(at - 40);  // rows 40 and later see key `at`
      const Outputs clean = run(p, {.pairs = true});
      Problem bad = with_own_tensors(p);
      bad.key.set(bad.key.index({0, 1, at, 5}), kNaN);
      const Outputs o = run(bad, {.pairs = true, .stats = {.level = StatsLevel::core}});
      ASSERT_TRUE(agrees(bad, o));
      // Masked scores are shown too, so the L x L outputs are compared by agrees() alone.
      Outputs shown = o, was = clean;
      for (Outputs* outputs : {&shown, &was}) outputs->scores = outputs->capped = TensorBuffer();
      expect_same_bits(sliced(was, 1, 0, 1), sliced(shown, 1, 0, 1), "the other head");
      expect_same_bits(sliced(was, 2, 0, 40), sliced(shown, 2, 0, 40), "rows that do not see it");
      for (std::int64_t i = 40; i < 75; ++i) {
        EXPECT_TRUE(std::isnan(o.lse.at(o.lse.index({0, 1, i}))));
        EXPECT_TRUE(std::isnan(o.max_score.at(o.max_score.index({0, 1, i}))));
        for (std::int64_t c = 0; c < 20; ++c)
          EXPECT_TRUE(std::isnan(o.out.at(o.out.index({0, 1, i, c}))));
      }
      EXPECT_EQ(o.stats.heads.at(0).nonfinite_rows, 0);
      EXPECT_EQ(o.stats.heads.at(1).nonfinite_rows, 35);
      EXPECT_EQ(o.stats.heads.at(1).first_nonfinite_row, 40);
    }
  });
}

TEST(laws, a_nonfinite_value_reaches_only_its_column_in_the_rows_that_see_it) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double poison : {kNaN, kInfinity})
      for (std::int64_t at : {3, 64, 130, 700}) {
        Problem p = make_problem({1, 2, 2, 75, 760, 24, 20}, dtype, 604);
        p.options.causal = Causal::offset(at - 40);
        const Outputs clean = run(p);
        Problem bad = with_own_tensors(p);
        bad.value.set(bad.value.index({0, 1, at, 5}), poison);
        const Outputs o = run(bad);
        ASSERT_TRUE(agrees(bad, o));
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t i = 0; i < 75; ++i)
            for (std::int64_t c = 0; c < 20; ++c) {
              const std::int64_t n = o.out.index({0, h, i, c});
              if (h == 1 && i >= 40 && c == 5)
                EXPECT_FALSE(std::isfinite(o.out.at(n))) << i;
              else
                ASSERT_EQ(o.out.at(n), clean.out.at(n)) << h << ' ' << i << ' ' << c;
            }
      }
  });
}

TEST(laws, a_nan_query_or_bias_reaches_only_its_row) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 2, 1, 75, 700, 24, 20}, dtype, 605);
    Rng rng(606);
    add_random_bias(p, rng, dtype, {2, 75, 700}, 0.1);
    const Outputs clean = run(p);
    for (bool in_query : {true, false})
      for (double poison : {kNaN, kInfinity}) {
        Problem bad = with_own_tensors(p);
        if (in_query)
          bad.query.set(bad.query.index({0, 1, 33, 2}), poison);
        else
          bad.bias.set(bad.bias.index({1, 33, 650}), poison);
        const Outputs o = run(bad);
        expect_same_bits(sliced(clean, 1, 0, 1), sliced(o, 1, 0, 1), "the other head");
        expect_same_bits(sliced(clean, 2, 0, 33), sliced(o, 2, 0, 33), "earlier rows");
        expect_same_bits(sliced(clean, 2, 34, 41), sliced(o, 2, 34, 41), "later rows");
        for (std::int64_t c = 0; c < 20; ++c)
          EXPECT_TRUE(std::isnan(o.out.at(o.out.index({0, 1, 33, c}))));
        if (!in_query) {
          const double max = o.max_score.at(o.max_score.index({0, 1, 33}));
          EXPECT_TRUE(std::isinf(poison) ? max == kInfinity : std::isnan(max)) << max;
        }
      }
  });
}

// A row that sees both a NaN and a +inf logit says +inf.
TEST(laws, an_infinite_logit_shows_in_max_score_beside_a_nan) {
  for_each_isa_and_dtype([](DType dtype) {
    for (auto [nan_at, inf_at] : {std::pair{3, 650}, {650, 3}, {20, 21}, {21, 20}}) {
      Problem p = make_problem({1, 1, 1, 20, 700, 8, 8}, dtype, 607);
      p.bias = TensorBuffer(dtype, {700});
      p.bias.fill([] { return 0.0; });
      p.bias.set(nan_at, kNaN);
      p.bias.set(inf_at, kInfinity);
      const Outputs o = run(p, {.pairs = true});
      ASSERT_TRUE(agrees(p, o));
      for (double max : o.max_score.values()) EXPECT_EQ(max, kInfinity);
      for (double lse : o.lse.values()) EXPECT_TRUE(std::isnan(lse));
    }
  });
}

TEST(laws, a_visible_key_with_logit_minus_infinity_counts_as_masked) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 1, 1, 40, 700, 8, 8}, dtype, 608);
    p.query.fill([] { return 1.0; });
    Problem masked = with_own_tensors(p);
    masked.mask = TensorBuffer(DType::boolean, {700});
    for (std::int64_t j = 0; j < 700; ++j) {
      const bool gone = j % 3 == 0 || (j >= 128 && j < 256);
      masked.mask.set(j, gone ? 0 : 1);
      if (!gone) continue;
      fill_row(p.key, 0, j, -kInfinity);
      fill_row(p.value, 0, j, kNaN);
    }
    const StatsRequest full{.level = StatsLevel::full};
    const Outputs a = run(masked, {.stats = full}), b = run(p, {.stats = full});
    expect_same_bits(a, b, "-inf logits");
    EXPECT_EQ(a.stats.heads.at(0).visible_keys, b.stats.heads.at(0).visible_keys);
    // Only such keys: a row without keys.
    p.key.fill([] { return -kInfinity; });
    const Outputs none = run(p);
    ASSERT_FALSE(none.error);
    for (double x : none.out.values()) EXPECT_EQ(x, 0);
    for (double x : none.lse.values()) EXPECT_EQ(x, -kInfinity);
  });
}

TEST(laws, huge_finite_scores_stay_finite) {
  for_each_isa_and_dtype([](DType dtype) {
    // float16 ends at 65504.
    const std::vector<double> sizes = dtype == DType::f16 ? std::vector<double>{1, 1e2, 1e4}
                                                          : std::vector<double>{1e4, 1e10, 1e18};
    for (double size : sizes) {
      Problem p = make_problem({1, 1, 1, 40, 700, 8, 8}, dtype, 609, size);
      p.key.fill([rng = Rng(610), size]() mutable { return size * rng.normal(); });
      const Outputs o = run(p, {.pairs = true});
      ASSERT_TRUE(agrees(p, o)) << size;
      for (double x : o.out.values()) EXPECT_TRUE(std::isfinite(x));
      for (double x : o.lse.values()) EXPECT_TRUE(std::isfinite(x));
    }
  });
}

TEST(laws, softcap_bounds_infinite_scores) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({1, 1, 1, 20, 140, 8, 8}, dtype, 611);
    p.options.softcap = 7;
    p.query.fill([] { return 1.0; });
    for (std::int64_t j = 0; j < 140; j += 2)
      fill_row(p.key, 0, j, j % 4 == 0 ? kInfinity : -kInfinity);
    const Outputs o = run(p, {.pairs = true});
    ASSERT_TRUE(agrees(p, o));
    for (double max : o.max_score.values()) EXPECT_EQ(max, 7);
  });
}

TEST(laws, empty_axes_are_legal) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : std::vector<Shape>{{0, 2, 1, 3, 5, 4, 4},
                                             {2, 0, 0, 3, 5, 4, 4},
                                             {2, 0, 3, 3, 5, 4, 4},
                                             {2, 2, 1, 0, 5, 4, 4},
                                             {2, 2, 1, 3, 0, 4, 4},
                                             {2, 2, 1, 3, 5, 4, 0},
                                             {0, 2, 1, 3, 5, 0, 4},
                                             {2, 2, 1, 0, 5, 0, 4}}) {
      for (bool sinks : {false, true}) {
        Problem p = make_problem(s, dtype, 612);
        Rng rng(613);
        if (sinks) add_sinks(p, rng);
        const Outputs o = run(p, {.pairs = true, .stats = {.level = StatsLevel::full}});
        ASSERT_TRUE(agrees(p, o));
        for (const auto& [name, tensor] : o.tensors())
          EXPECT_TRUE(tensor->gaps_untouched()) << name << ' ' << p.describe();
      }
    }
    Problem p = make_problem({1, 2, 1, 3, 5, 0, 4}, dtype, 614);
    EXPECT_TRUE(static_cast<bool>(run(p).error)) << "head_dim 0 has no default scale";
    p.options.scale = 1;
    EXPECT_TRUE(agrees(p, run(p, {.pairs = true})));
  });
}

// Every tensor, inputs and outputs, with a page without access right after its last byte, then
// right before its first.
TEST(laws, no_byte_read_past_the_end) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const Problem p = random_problem(2000 + seed, dtype, {.layouts = false});
      const Wish wish{.pairs = true, .stats = {.level = StatsLevel::full}};
      const Outputs expected = run(p, wish);
      for (Placement placement : {Placement::before_guard, Placement::after_guard}) {
        const Layout layout = kLayouts[seed % std::size(kLayouts)];
        Problem guarded = p;
        for (TensorBuffer* tensor : guarded.tensors()) *tensor = tensor->copied(layout, placement);
        Wish guarded_wish = wish;
        guarded_wish.layout = layout;
        guarded_wish.placement = placement;
        const Outputs o = run(guarded, guarded_wish);
        expect_same_bits(expected, o, guarded.describe());
        for (const auto& [name, tensor] : o.tensors())
          EXPECT_TRUE(tensor->gaps_untouched()) << name << ' ' << guarded.describe();
      }
    }
  });
}

// Keys at and after kv_lengths and rows at and after q_lengths lie behind the guard page.
TEST(laws, memory_beyond_the_lengths_is_never_touched) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t kv_length : {0, 1, 130, 600})
      for (std::int64_t q_length : {0, 5, 33}) {
        Problem p = make_problem({1, 1, 1, q_length, kv_length, 24, 24}, dtype, 615);
        for (TensorBuffer* tensor : {&p.query, &p.key, &p.value})
          *tensor = tensor->copied(Layout::contiguous, Placement::before_guard);
        const Outputs expected = run(p, {.pairs = true});
        p.query = p.query.sliced(2, 0, 70);
        p.key = p.key.sliced(2, 0, 1091);
        p.value = p.value.sliced(2, 0, 1091);
        p.shape.q_len = 70;
        p.shape.kv_len = 1091;
        p.options.diagonal = kv_length - q_length;
        p.kv_lengths = TensorBuffer(DType::i32, {1});
        p.q_lengths = TensorBuffer(DType::i64, {1});
        p.kv_lengths.set(0, static_cast<double>(kv_length));
        p.q_lengths.set(0, static_cast<double>(q_length));
        Outputs o = sliced(run(p, {.pairs = true}), 2, 0, q_length);
        for (TensorBuffer* matrix : {&o.scores, &o.capped, &o.logits, &o.weights})
          *matrix = matrix->sliced(3, 0, kv_length);
        expect_same_bits(expected, o, p.describe());
      }
  });
}

}  // namespace
}  // namespace poise::test
