// The edges of backward(): rows without keys, rows of one key, axes of length zero, memory beyond
// the lengths, capped and overflowing scores, host float modes.
//
// docs/semantics.md, "At the edges", row by row for gradients, on every instruction set and dtype.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "support/gradient_bounds.h"
#include "support/isa.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

GradientProblem made(const Shape& s, DType dtype, std::uint64_t seed, double spread = 1,
                     bool with_dlse = false) {
  return gradient_problem(make_problem(s, dtype, seed, spread), seed + 1, with_dlse, false);
}

void fill_row(TensorBuffer& tensor, std::int64_t head, std::int64_t row, double x) {
  for (std::int64_t d = 0; d < tensor.extent(3); ++d)
    tensor.set(tensor.index({0, head, row, d}), x);
}

void expect_zeros(const TensorBuffer& tensor, const std::string& what) {
  for (double x : tensor.values()) ASSERT_EQ(x, 0) << what;
}

// By a mask, by positions, by a bias; whatever dout and dlse hold there.
TEST(gradient_edges, rows_without_keys_have_gradient_zero_and_give_none) {
  for_each_isa_and_dtype([](DType dtype) {
    for (bool sinks : {false, true})
      for (int way = 0; way < 3; ++way) {
        GradientProblem g = made({1, 2, 1, 70, 300, 12, 20}, dtype, 801, 1, true);
        Problem& p = g.problem;
        Rng rng(802);
        if (way == 0) {
          p.mask = TensorBuffer(DType::boolean, {70, 300});
          p.mask.fill([n = 0]() mutable { return n++ / 300 % 2 == 0 ? 1.0 : 0.0; });
        } else if (way == 1) {
          p.options.causal = Causal::offset(-31);
        } else {
          p.bias = TensorBuffer(dtype, {70, 1});
          p.bias.fill([n = 0]() mutable { return n++ % 5 == 0 ? -kInfinity : 0.5; });
        }
        if (sinks) {
          p.sinks = TensorBuffer(p.number_dtype(), {2});
          p.sinks.set(0, 0.5);
          p.sinks.set(1, -1);
        }
        const ForwardState state(p);
        const auto is_empty = [&](std::int64_t i) {
          return way == 0 ? i % 2 == 1 : way == 1 ? i < 31 : i % 5 == 0;
        };
        const GradientOutputs clean = run(g, state);
        ASSERT_EQ(disagreement(g, clean), "");
        for (double poison : {kNaN, kInfinity}) {
          for (std::int64_t i = 0; i < 70; ++i)
            for (std::int64_t h = 0; h < 2; ++h) {
              if (!is_empty(i)) continue;
              fill_row(g.dout, h, i, poison);
              fill_row(p.query, h, i, poison);
              if (!sinks) g.dlse.set(h * 70 + i, poison);
              expect_zeros(clean.dq.sliced(1, h, 1).sliced(2, i, 1), "dq of an empty row");
            }
          for (bool from_lse : {false, true}) {
            const GradientOutputs o = run(g, state, {.from_lse = from_lse});
            if (!from_lse) {
              EXPECT_EQ(difference(clean, o, "poisoned"), "") << way << sinks;
            }
            for (const auto& [name, tensor] : o.tensors())
              for (double x : tensor->values()) ASSERT_TRUE(std::isfinite(x)) << name;
          }
        }
      }
  });
}

TEST(gradient_edges, rows_that_see_one_key_send_nothing_to_their_logits) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const std::int64_t dims : {1, 7, 24, 70}) {
      GradientProblem g = made({1, 2, 2, 150, 260, dims, dims + 1}, dtype, 803);
      g.problem.options.window_left = g.problem.options.window_right = 0;
      const GradientOutputs o = run(g, {.bias_extents = {260}});
      ASSERT_FALSE(o.error) << o.error.message();
      expect_zeros(o.dq, "dq");
      expect_zeros(o.dk, "dk");
      expect_zeros(o.dbias, "dbias");
      expect_zeros(o.dscale, "dscale");
      // dv is dout, moved to the key by the default diagonal Lk - Lq.
      for (std::int64_t i = 0; i < 150; ++i)
        EXPECT_EQ(first_difference(g.dout.sliced(2, i, 1), o.dv.sliced(2, i + 110, 1)), "") << i;
    }
  });
}

TEST(gradient_edges, axes_of_length_zero_leave_zeros) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : std::vector<Shape>{{0, 2, 1, 3, 5, 4, 4},
                                             {2, 0, 0, 3, 5, 4, 4},
                                             {2, 0, 3, 3, 5, 4, 4},
                                             {2, 2, 1, 0, 5, 4, 4},
                                             {2, 2, 1, 3, 0, 4, 4},
                                             {2, 2, 1, 3, 5, 4, 0},
                                             {2, 2, 1, 3, 5, 0, 4},
                                             {0, 2, 1, 3, 5, 0, 4},
                                             {2, 2, 1, 0, 5, 0, 4}})
      for (bool options : {false, true}) {
        GradientProblem g = made(s, dtype, 804, 1, true);
        Rng rng(805);
        if (s.head_dim == 0) g.problem.options.scale = 1;
        if (options) {
          add_sinks(g.problem, rng);
          add_alibi(g.problem);
        }
        for (const Extents& bias : std::vector<Extents>{{},
                                                        {1, 1, 1, 1},
                                                        {s.batch, s.q_heads, s.q_len, s.kv_len},
                                                        {s.q_len, 1},
                                                        {s.kv_len}}) {
          const GradientOutputs o =
              run(g, {.bias_extents = bias, .scale_per_head = options, .threads = 2});
          ASSERT_EQ(disagreement(g, o), "");
          for (const auto& [name, tensor] : o.tensors()) {
            const bool untouched = !tensor->given() || tensor->gaps_untouched();
            EXPECT_TRUE(untouched) << name << ' ' << g.problem.describe();
          }
          if (s.batch > 0 && s.q_heads == 0) {
            expect_zeros(o.dk, "dk without queries");
            expect_zeros(o.dv, "dv without queries");
          }
        }
      }
  });
}

// Strides of 0 are what frameworks give to views without elements.
TEST(gradient_edges, a_dbias_without_elements_is_not_written) {
  for_each_isa_and_dtype([](DType dtype) {
    const GradientProblem g = made({0, 2, 1, 3, 5, 4, 4}, dtype, 806);
    const ForwardState state(g.problem);
    TensorBuffer memory(g.problem.number_dtype(), Extents{1});
    Gradients gradients;
    gradients.dbias = {memory.view().data, memory.dtype(), 4, {0, 2, 3, 5}, {0, 0, 0, 0}};
    const Error error =
        backward(g.problem.query.view(), g.problem.key.view(), g.problem.value.view(),
                 {state.out.view(), state.row_max.view(), state.row_sum.view(), {}},
                 {g.dout.view(), {}}, gradients);
    EXPECT_EQ(error.message(), "");
    EXPECT_TRUE(std::isnan(memory.at(0)));
  });
}

TEST(gradient_edges, a_call_that_asks_for_nothing_writes_nothing) {
  for_each_isa_and_dtype([](DType dtype) {
    const GradientProblem g = made({1, 2, 1, 3, 5, 4, 4}, dtype, 807);
    const ForwardState state(g.problem);
    EXPECT_EQ(backward(g.problem.query.view(), g.problem.key.view(), g.problem.value.view(),
                       {state.out.view(), state.row_max.view(), state.row_sum.view(), {}},
                       {g.dout.view(), {}}, {})
                  .message(),
              "");
  });
}

// Keys at and after kv_lengths, queries, dout, out and state at and after q_lengths lie behind the
// guard page.
TEST(gradient_edges, memory_beyond_the_lengths_is_never_read) {
  for_each_isa_and_dtype([](DType dtype) {
    for (std::int64_t kv_length : {0, 1, 130, 600})
      for (std::int64_t q_length : {0, 5, 33}) {
        GradientProblem g = made({1, 1, 1, q_length, kv_length, 24, 20}, dtype, 808, 1, true);
        Problem& p = g.problem;
        ForwardState state(p);
        const GradientOutputs expected = run(g, state);
        const auto behind = [](TensorBuffer& tensor, int axis, std::int64_t extent) {
          tensor =
              tensor.copied(Layout::contiguous, Placement::before_guard).sliced(axis, 0, extent);
        };
        for (TensorBuffer* tensor :
             {&p.query, &g.dout, &g.dlse, &state.out, &state.row_max, &state.row_sum, &state.lse})
          behind(*tensor, 2, 70);
        for (TensorBuffer* tensor : {&p.key, &p.value}) behind(*tensor, 2, 1091);
        p.shape.q_len = 70;
        p.shape.kv_len = 1091;
        p.options.diagonal = kv_length - q_length;
        p.kv_lengths = TensorBuffer(DType::i32, {1});
        p.q_lengths = TensorBuffer(DType::i64, {1});
        p.kv_lengths.set(0, static_cast<double>(kv_length));
        p.q_lengths.set(0, static_cast<double>(q_length));
        for (bool from_lse : {false, true}) {
          const GradientOutputs o =
              run(g, state, {.bias_extents = {70, 1091}, .from_lse = from_lse});
          ASSERT_FALSE(o.error) << o.error.message();
          GradientOutputs part = o;
          part.dq = o.dq.sliced(2, 0, q_length);
          part.dk = o.dk.sliced(2, 0, kv_length);
          part.dv = o.dv.sliced(2, 0, kv_length);
          if (!from_lse) {
            EXPECT_EQ(difference(expected, part, "lengths"), "");
          }
          expect_zeros(o.dq.sliced(2, q_length, 70 - q_length), "dq beyond");
          expect_zeros(o.dk.sliced(2, kv_length, 1091 - kv_length), "dk beyond");
          expect_zeros(o.dv.sliced(2, kv_length, 1091 - kv_length), "dv beyond");
          expect_zeros(o.dbias.sliced(0, q_length, 70 - q_length), "dbias beyond");
          expect_zeros(o.dbias.sliced(1, kv_length, 1091 - kv_length), "dbias beyond");
        }
      }
  });
}

// 40 rows whose scores of two keys are x softcaps and -x.
GradientProblem capped_at(double x, DType dtype) {
  GradientProblem g = made({1, 1, 1, 40, 2, 1, 1}, dtype, 809);
  Problem& p = g.problem;
  p.options.softcap = 2;
  p.options.scale = 1;
  p.query.fill([&] { return x * p.options.softcap; });
  p.key.set(0, 1);
  p.key.set(1, -1);
  return g;
}

// 1 - tanh^2 is 0 in f32 at 9.2, and 6 % off at 8.
TEST(gradient_edges, a_nearly_saturated_softcap_keeps_its_slope) {
  for_each_isa_and_dtype([](DType dtype) {
    for (double x : {0.01, 1.0, 4.0, 8.0, 9.25, 12.0, 30.0}) {
      const GradientProblem g = capped_at(x, dtype);
      const GradientOutputs o = run(g);
      ASSERT_EQ(disagreement(g, o), "") << x;
      const ReferenceGradients<double> r = reference_gradients_of<double>(g);
      // Numbers of 16 bits are steps of their own.
      const double relative = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 3e-5 : 0.02;
      for (std::size_t n = 0; n < r.dquery.size(); ++n) {
        if (std::fabs(r.dquery[n]) < (dtype == DType::f16 ? 1e-3 : 1e-30)) continue;
        EXPECT_NEAR(o.dq.at(static_cast<std::int64_t>(n)) / r.dquery[n], 1, relative) << x;
      }
    }
  });
}

// The slope is 4 e there, and e = exp(-2 x) is 0 below 2^-100 (f64: 2^-1000).
TEST(gradient_edges, a_softcap_far_behind_lets_nothing_through) {
  for_each_isa_and_dtype([](DType dtype) {
    const GradientProblem g = capped_at(dtype == DType::f64 ? 346.75 : 34.75, dtype);
    const GradientOutputs o = run(g);
    EXPECT_EQ(disagreement(g, o), "");
    expect_zeros(o.dq, "dq");
  });
}

// A slope of 0 times an infinite element of the key is NaN in that element of dq; dk is 0.
TEST(gradient_edges, an_infinite_key_under_a_softcap_makes_its_element_of_dq_nan) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 1, 1, 20, 140, 8, 8}, dtype, 811);
    g.problem.options.softcap = 7;
    g.problem.key.set(g.problem.key.index({0, 0, 77, 3}), kInfinity);
    const GradientOutputs o = run(g, {.dscale = false});
    const ReferenceGradients<double> r = reference_gradients_of<double>(g);
    for (std::size_t n = 0; n < r.dquery.size(); ++n) {
      const double dq = o.dq.at(static_cast<std::int64_t>(n));
      if (n % 8 == 3)
        EXPECT_TRUE(std::isnan(dq) && std::isnan(r.dquery[n])) << n;
      else
        EXPECT_NEAR(dq, r.dquery[n], size_bytes(dtype) == 2 ? 0.02 : 1e-5) << n;
    }
    for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(o.dk.at(o.dk.index({0, 0, 77, d})), 0) << d;
  });
}

TEST(gradient_edges, scores_that_a_softcap_bounds_may_be_infinite) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 1, 1, 20, 140, 8, 8}, dtype, 810);
    Problem& p = g.problem;
    p.options.softcap = 7;
    const double huge = dtype == DType::f64 ? 1e300 : dtype == DType::f16 ? 6e4 : 1e30;
    p.options.scale = dtype == DType::f16 ? 1e33 : 1;
    p.query.fill([&] { return huge; });
    p.key.fill([n = 0, huge]() mutable { return (n++ / 8 % 2 == 0 ? 1 : -1) * huge; });
    const GradientOutputs o = run(g, {.dscale = false});
    ASSERT_FALSE(o.error) << o.error.message();
    // Saturated: nothing flows through the cap, and the weights are what they are.
    expect_zeros(o.dq, "dq");
    expect_zeros(o.dk, "dk");
    const ReferenceGradients<double> r = reference_gradients_of<double>(g);
    for (std::size_t n = 0; n < r.dvalue.size(); ++n)
      EXPECT_NEAR(o.dv.at(static_cast<std::int64_t>(n)), r.dvalue[n],
                  size_bytes(dtype) == 2 ? 0.02 : 1e-5);
  });
}

TEST(gradient_edges, huge_finite_scores_have_finite_gradients) {
  for_each_isa_and_dtype([](DType dtype) {
    const std::vector<double> sizes =
        dtype == DType::f16 ? std::vector<double>{1, 1e2} : std::vector<double>{1e4, 1e10, 1e17};
    for (double size : sizes) {
      GradientProblem g = made({1, 1, 1, 40, 700, 8, 8}, dtype, 811, size);
      g.problem.key.fill([rng = Rng(812), size]() mutable { return size * rng.normal(); });
      const GradientOutputs o = run(g);
      ASSERT_EQ(disagreement(g, o), "") << size;
      for (double x : o.dq.values()) EXPECT_TRUE(std::isfinite(x)) << size;
    }
  });
}

TEST(gradient_edges, a_mask_that_hides_nothing_changes_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    // Several tiles of queries and blocks of keys, the last ones short.
    const GradientProblem g = made({1, 2, 1, 150, 300, 16, 16}, dtype, 814, 2, true);
    const GradientOutputs bare = run(g);
    GradientProblem masked = g;
    masked.problem.mask = TensorBuffer(DType::boolean, {150, 300});
    masked.problem.mask.fill([] { return 1.0; });
    EXPECT_EQ(difference(run(masked), bare, "a mask of true"), "");
  });
}

// Dots beyond the range of f32 (or a bias of +inf): those rows are NaN, with the keys they see.
TEST(gradient_edges, an_infinite_logit_makes_its_row_nan_and_no_other) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 1, 1, 75, 400, 16, 16}, dtype, 813, 1, true);
    Problem& p = g.problem;
    p.mask = TensorBuffer(DType::boolean, {75, 400});
    // Rows 30 ... 34 see keys 100 ... 399, the others 0 ... 259.
    p.mask.fill([n = 0]() mutable {
      const int i = n / 400, j = n++ % 400;
      return (i / 5 == 6 ? j >= 100 : j < 260) ? 1.0 : 0.0;
    });
    const GradientOutputs clean = run(g);
    for (bool by_bias : {true, false}) {
      GradientProblem bad = g;
      Problem& b = bad.problem;
      if (by_bias) {
        b.bias = TensorBuffer(dtype, {75, 400});
        b.bias.fill([] { return 0.0; });
        b.bias.set(32 * 400 + 300, kInfinity);
      } else {
        b.key = p.key.copied(Layout::contiguous);
        fill_row(b.key, 0, 300, kInfinity);
      }
      const GradientOutputs o = run(bad);
      ASSERT_FALSE(o.error) << o.error.message();
      for (std::int64_t i = 0; i < 75; ++i) {
        const bool sick = by_bias ? i == 32 : i / 5 == 6;
        for (std::int64_t d = 0; d < 16; ++d) {
          const double x = o.dq.at(i * 16 + d);
          ASSERT_TRUE(sick ? std::isnan(x) : x == clean.dq.at(i * 16 + d)) << i;
        }
      }
      for (std::int64_t j = 0; j < 400; ++j)
        for (std::int64_t d = 0; d < 16; ++d) {
          EXPECT_EQ(std::isnan(o.dk.at(j * 16 + d)), j >= 100) << j;
          EXPECT_EQ(std::isnan(o.dv.at(j * 16 + d)), j >= 100) << j;
          ASSERT_TRUE(j >= 100 || o.dv.at(j * 16 + d) == clean.dv.at(j * 16 + d)) << j;
        }
    }
  });
}

// Logits of -inf at keys that positions and masks leave visible count as masked; rows of only such
// keys are rows without keys.
TEST(gradient_edges, a_logit_of_minus_infinity_counts_as_masked) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 1, 1, 40, 700, 8, 8}, dtype, 814, 1, true);
    Problem& p = g.problem;
    p.query.fill([] { return 1.0; });
    GradientProblem masked = g;
    masked.problem.key = p.key.copied(Layout::contiguous);
    masked.problem.mask = TensorBuffer(DType::boolean, {700});
    for (std::int64_t j = 0; j < 700; ++j) {
      const bool gone = j % 3 == 0 || (j >= 128 && j < 256);
      masked.problem.mask.set(j, gone ? 0 : 1);
      if (gone) fill_row(p.key, 0, j, -kInfinity);
    }
    EXPECT_EQ(difference(run(masked), run(g), "-inf logits"), "");
    p.key.fill([] { return -kInfinity; });
    const GradientOutputs none = run(g);
    ASSERT_FALSE(none.error);
    for (const auto& [name, tensor] : none.tensors()) expect_zeros(*tensor, name);
  });
}

// A slope so steep that every logit is -inf.
TEST(gradient_edges, an_alibi_that_overflows_everywhere_leaves_rows_without_keys) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 1, 1, 40, 140, 8, 8}, dtype, 815, 1, true);
    Problem& p = g.problem;
    p.alibi_slopes = TensorBuffer(p.number_dtype(), {1});
    p.alibi_slopes.set(0, dtype == DType::f64 ? 1e308 : 3e38);
    p.options.diagonal = 1000;
    const GradientOutputs o = run(g);
    ASSERT_FALSE(o.error) << o.error.message();
    for (const auto& [name, tensor] : o.tensors()) expect_zeros(*tensor, name);
  });
}

TEST(gradient_edges, scale_zero_has_a_scale_gradient_and_no_other) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({2, 4, 2, 33, 150, 12, 9}, dtype, 816, 1, true);
    Problem& p = g.problem;
    p.scale_per_head = TensorBuffer(p.number_dtype(), {4});
    for (std::int64_t h = 0; h < 4; ++h) p.scale_per_head.set(h, h == 1 ? 0 : h == 2 ? -0.5 : 0.25);
    const GradientOutputs o = run(g, {.scale_per_head = true});
    ASSERT_EQ(disagreement(g, o), "");
    expect_zeros(o.dq.sliced(1, 1, 1), "dq of the head");
    EXPECT_NE(o.dscale.at(1), 0);
  });
}

TEST(gradient_edges, the_hosts_rounding_and_flushing_change_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    GradientProblem g = made({1, 2, 1, 70, 300, 24, 20}, dtype, 817, 4, true);
    g.problem.options.softcap = 9;
    const ForwardState state(g.problem);
    const GradientWish wish{.bias_extents = {300}, .threads = 2};
    const GradientOutputs usual = run(g, state, wish);
    for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      const GradientOutputs o = run(g, state, wish);
      const int after = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(after, mode);
      EXPECT_EQ(difference(usual, o, "rounding"), "");
    }
  });
}

}  // namespace
}  // namespace poise::test
