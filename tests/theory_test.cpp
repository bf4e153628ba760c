// Closed forms against published or independently integrated figures and random rows; the moments
// of q and k against scores formed explicitly.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/health.h>
#include <poise/theory.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "support/rng.h"
#include "support/tensor_buffer.h"

namespace poise {
namespace {

using test::Layout;
using test::Rng;
using test::TensorBuffer;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Theory, rows_freeze_at_the_random_energy_threshold) {
  EXPECT_NEAR(saturation_threshold(8), 2.04, 0.005);
  EXPECT_NEAR(saturation_threshold(64), 2.88, 0.005);
  EXPECT_NEAR(saturation_threshold(512), 3.53, 0.005);
  EXPECT_NEAR(saturation_threshold(4096), 4.08, 0.005);
  EXPECT_EQ(saturation_threshold(1), 0);
}

TEST(Theory, the_mean_trace_constant_is_that_of_the_integral) {
  EXPECT_NEAR(mean_trace_constant(8), 1.4236, 5e-5);
  EXPECT_NEAR(mean_trace_constant(64), 2.3437, 5e-5);
  EXPECT_NEAR(mean_trace_constant(512), 3.0439, 5e-5);
  EXPECT_NEAR(mean_trace_constant(4096), 3.6261, 5e-5);
  EXPECT_NEAR(mean_trace_constant(2), 2 / std::sqrt(4 * 3.14159265358979), 1e-12);
  EXPECT_EQ(mean_trace_constant(1), 0);
}

TEST(Theory, kl_of_a_narrow_row_is_half_its_variance) {
  Rng rng(1);
  const int keys = 200'000;
  double z = 0, mean = 0;
  for (int j = 0; j < keys; ++j) {
    const double score = 0.5 * rng.normal(), e = std::exp(score);
    z += e;
    mean += score * e;
  }
  const double entropy = std::log(z) - mean / z;
  EXPECT_NEAR(std::log(keys) - entropy, kl_of_spread(0.5), 0.003);
}

// Random softmax rows over many shapes: Gaussian, one outlier, two levels, ties.
struct RandomRow {
  std::vector<double> p;
  double variance = 0, entropy = 0, trace = 0, frobenius = 0, largest_p1p = 0;

  explicit RandomRow(Rng& rng) {
    const std::int64_t n = rng.integer(2, 60), shape = rng.integer(0, 3);
    const double spread = std::exp2(rng.uniform(-6, 5));
    std::vector<double> s;
    for (std::int64_t j = 0; j < n; ++j)
      s.push_back(shape == 0   ? spread * rng.normal()
                  : shape == 1 ? (j == 0 ? spread : 0)
                  : shape == 2 ? (rng.chance(0.5) ? spread : 0)
                               : spread * static_cast<double>(rng.integer(0, 2)));
    const double top = *std::max_element(s.begin(), s.end());
    const double mean = std::accumulate(s.begin(), s.end(), 0.0) / static_cast<double>(n);
    double z = 0, squares = 0, cubes = 0;
    for (double x : s) {
      variance += (x - mean) * (x - mean) / static_cast<double>(n);
      z += std::exp(x - top);
    }
    for (double x : s) {
      p.push_back(std::exp(x - top) / z);
      if (p.back() > 0) entropy -= p.back() * std::log(p.back());
      largest_p1p = std::max(largest_p1p, p.back() * (1 - p.back()));
      squares += p.back() * p.back();
      cubes += p.back() * p.back() * p.back();
    }
    trace = 1 - squares;
    frobenius = std::sqrt(std::max(0.0, squares - 2 * cubes + squares * squares));
  }
  double keys() const { return static_cast<double>(p.size()); }

  // Largest eigenvalue of diag(p) - p p^T by power iteration; approaches it from below.
  double spectral(Rng& rng) const {
    std::vector<double> v;
    for (std::size_t j = 0; j < p.size(); ++j) v.push_back(rng.normal());
    double length = 0;
    for (int round = 0; round < 300; ++round) {
      double dot = 0, squared = 0;
      for (std::size_t j = 0; j < p.size(); ++j) dot += p[j] * v[j];
      for (std::size_t j = 0; j < p.size(); ++j) {
        v[j] = p[j] * (v[j] - dot);
        squared += v[j] * v[j];
      }
      length = std::sqrt(squared);
      if (length == 0) return 0;
      for (double& x : v) x /= length;
    }
    return length;
  }
};

TEST(Theory, no_row_has_less_entropy_than_its_spread_allows) {
  Rng rng(2);
  for (int i = 0; i < 20'000; ++i) {
    const RandomRow row(rng);
    ASSERT_GE(row.entropy, entropy_lower_bound(row.keys(), row.variance) - 1e-9) << i;
  }
}

// One outlier among equals is the extreme case of the theorem.
TEST(Theory, the_entropy_bound_is_reached_by_one_key_above_equal_others) {
  const double n = 10, gap = 3;
  const double variance = gap * gap * (n - 1) / (n * n);
  const double z = std::exp(gap) + n - 1, p = std::exp(gap) / z, q = 1 / z;
  const double entropy = -p * std::log(p) - (n - 1) * q * std::log(q);
  EXPECT_NEAR(entropy_lower_bound(n, variance), entropy, 1e-12);
}

TEST(Theory, jacobian_norms_lie_in_their_brackets) {
  Rng rng(3);
  for (int i = 0; i < 5'000; ++i) {
    const RandomRow row(rng);
    const JacobianBounds bounds = jacobian_bounds(row.keys(), row.largest_p1p, row.trace);
    // Squares, since the norm of a one-hot row is the root of a rounding error.
    const double high = bounds.frobenius_high, low = bounds.frobenius_low;
    ASSERT_LE(row.frobenius * row.frobenius, high * high + 1e-14) << i;
    ASSERT_GE(row.frobenius * row.frobenius, low * low - 1e-14) << i;
    const double spectral = row.spectral(rng);
    ASSERT_LE(spectral, bounds.spectral_high + 1e-9) << i;
    ASSERT_GE(spectral, bounds.spectral_low * 0.97) << i;
  }
}

TEST(Theory, a_uniform_row_has_the_smallest_frobenius_norm_for_its_trace) {
  const double n = 16, frobenius = std::sqrt(n - 1) / n;
  EXPECT_NEAR(jacobian_bounds(n, (n - 1) / (n * n), 1 - 1 / n).frobenius_low, frobenius, 1e-15);
}

// q and k with mean vectors, unequal components and a direction in common.
TensorBuffer vectors(std::uint64_t seed, const test::Extents& extents, double mean,
                     DType dtype = DType::f64, Layout layout = Layout::contiguous) {
  Rng rng(seed);
  TensorBuffer buffer(dtype, extents, layout);
  const std::int64_t dim = extents[3];
  double shared = 0;
  std::int64_t at = 0;
  buffer.fill([&] {
    const auto d = static_cast<double>(at++ % dim);
    if (d == 0) shared = rng.normal();
    return mean * std::sin(d) + (0.5 + 0.1 * d) * rng.normal() + shared;
  });
  return buffer;
}

// Mean over rows of the variance over keys of q . k, of one query head.
double within_row_variance(const TensorBuffer& q, const TensorBuffer& k, std::int64_t h,
                           const std::vector<std::int64_t>& q_lengths,
                           const std::vector<std::int64_t>& kv_lengths) {
  const std::int64_t group = q.extent(1) / k.extent(1);
  double sum = 0, rows = 0;
  for (std::int64_t b = 0; b < q.extent(0); ++b) {
    const auto keys = kv_lengths[static_cast<std::size_t>(b)];
    if (keys < 2) continue;
    for (std::int64_t i = 0; i < q_lengths[static_cast<std::size_t>(b)]; ++i, ++rows) {
      std::vector<double> dots;
      for (std::int64_t j = 0; j < keys; ++j) {
        double dot = 0;
        for (std::int64_t d = 0; d < q.extent(3); ++d)
          dot += q.at(q.index({b, h, i, d})) * k.at(k.index({b, h / group, j, d}));
        dots.push_back(dot);
      }
      const auto n = static_cast<double>(keys);
      const double mean = std::accumulate(dots.begin(), dots.end(), 0.0) / n;
      for (double dot : dots) sum += (dot - mean) * (dot - mean) / n;
    }
  }
  return sum / rows;
}

double predicted(const Stats& stats, std::size_t h) {
  return expect(stats.heads[h], stats.head_dim).full;
}

TEST(Theory, full_moments_equal_the_measured_within_row_variance) {
  const TensorBuffer q = vectors(1, {1, 1, 13, 6}, 3), k = vectors(2, {1, 1, 29, 6}, 50);
  Stats stats;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));
  const double measured = within_row_variance(q, k, 0, {13}, {29});
  EXPECT_NEAR(predicted(stats, 0) / measured, 1, 1e-12);
}

TEST(Theory, the_equality_holds_with_batches_groups_lengths_and_strides) {
  const TensorBuffer q = vectors(3, {3, 4, 9, 5}, 2, DType::f64, Layout::transposed);
  const TensorBuffer k = vectors(4, {3, 2, 17, 5}, 1, DType::f64, Layout::reversed);
  const std::vector<std::int64_t> q_lengths{9, 4, 7}, kv_lengths{17, 3, 1};
  Stats stats;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats, view(q_lengths.data(), {3}),
                              view(kv_lengths.data(), {3})));
  ASSERT_EQ(stats.heads.size(), 4U);
  EXPECT_EQ(stats.kv_heads, 2);
  EXPECT_EQ(stats.heads[0].inputs.q_rows, 13);
  EXPECT_EQ(stats.heads[0].inputs.batches, 2);
  for (std::size_t h = 0; h < 4; ++h) {
    const double measured =
        within_row_variance(q, k, static_cast<std::int64_t>(h), q_lengths, kv_lengths);
    EXPECT_NEAR(predicted(stats, h) / measured, 1, 1e-12) << h;
  }
}

TEST(Theory, moments_of_calls_merge_as_moments_of_batches) {
  const TensorBuffer q = vectors(5, {2, 1, 8, 4}, 1), k = vectors(6, {2, 1, 8, 4}, 1);
  Stats both, first, second;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &both));
  const auto half = [](const TensorBuffer& buffer, std::int64_t b) {
    Tensor part = buffer.view();
    part.data = static_cast<double*>(part.data) + b * part.stride(0);
    part.extents[0] = 1;
    return part;
  };
  ASSERT_FALSE(measure_inputs(half(q, 0), half(k, 0), &first));
  ASSERT_FALSE(measure_inputs(half(q, 1), half(k, 1), &second));
  ASSERT_FALSE(first.merge(second));
  EXPECT_EQ(first.heads[0].inputs, both.heads[0].inputs);
}

TEST(Theory, element_moments_of_batches_are_those_of_all_elements) {
  const TensorBuffer q = vectors(7, {3, 1, 11, 4}, 2), k = vectors(8, {3, 1, 11, 4}, 0);
  Stats stats;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));
  const std::vector<double> x = q.values();
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double m2 = 0, m3 = 0, m4 = 0;
  for (double v : x) {
    m2 += std::pow(v - mean, 2) / n;
    m3 += std::pow(v - mean, 3) / n;
    m4 += std::pow(v - mean, 4) / n;
  }
  const InputMoments& m = stats.heads[0].inputs;
  EXPECT_NEAR(m.q_mean, mean, 1e-12);
  EXPECT_NEAR(m.q_variance, m2, 1e-12 * m2);
  EXPECT_NEAR(m.q_skewness, m3 / std::pow(m2, 1.5), 1e-11);
  EXPECT_NEAR(m.q_excess_kurtosis, m4 / (m2 * m2) - 3, 1e-11);
  EXPECT_NEAR(m.q_second_moment, m2 + mean * mean, 1e-12 * m2);
}

TEST(Theory, sixteen_bit_inputs_are_read_exactly) {
  for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const TensorBuffer q = vectors(9, {1, 1, 6, 4}, 1, dtype),
                       k = vectors(10, {1, 1, 7, 4}, 1, dtype);
    Stats narrow, wide;
    ASSERT_FALSE(measure_inputs(q.view(), k.view(), &narrow));
    ASSERT_FALSE(
        measure_inputs(q.copied_as(DType::f64).view(), k.copied_as(DType::f64).view(), &wide));
    EXPECT_EQ(narrow.heads[0].inputs, wide.heads[0].inputs) << name(dtype);
  }
}

TEST(Theory, alignment_is_1_when_isotropic_and_head_dim_when_all_share_one_direction) {
  Rng rng(11);
  TensorBuffer q(DType::f64, {1, 1, 4000, 8}), k(DType::f64, {1, 1, 4000, 8});
  q.fill([&] { return rng.normal(); });
  k.fill([&] { return rng.normal(); });
  Stats isotropic, aligned;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &isotropic));
  EXPECT_NEAR(isotropic.heads[0].inputs.alignment, 1, 0.02);
  std::int64_t at = 0;
  const auto one_direction = [&] { return at++ % 8 == 3 ? rng.normal() : 0.0; };
  q.fill(one_direction);
  at = 0;
  k.fill(one_direction);
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &aligned));
  EXPECT_NEAR(aligned.heads[0].inputs.alignment, 8, 1e-9);
}

Expectation expect_of(const std::function<double(std::int64_t)>& element) {
  TensorBuffer q(DType::f64, {1, 1, 300, 16}), k(DType::f64, {1, 1, 300, 16});
  std::int64_t at = 0;
  q.fill([&] { return element(at++); });
  k.fill([&] { return element(at++); });
  Stats stats;
  EXPECT_FALSE(measure_inputs(q.view(), k.view(), &stats));
  return expect(stats.heads[0], 16);
}

TEST(Theory, independent_standard_elements_meet_the_assumption_whatever_their_distribution) {
  Rng rng(12);
  const Expectation gaussian = expect_of([&](std::int64_t) { return rng.normal(); });
  EXPECT_TRUE(gaussian.assumption_holds) << gaussian.assumption;
  EXPECT_EQ(gaussian.iid, 16);
  EXPECT_NEAR(gaussian.norms, 16, 1);
  const Expectation signs = expect_of([&](std::int64_t) { return rng.chance(0.5) ? 1.0 : -1.0; });
  EXPECT_TRUE(signs.assumption_holds) << signs.assumption;
}

TEST(Theory, the_part_of_the_assumption_that_fails_is_named) {
  Rng rng(13);
  const Expectation wide = expect_of([&](std::int64_t) { return 1.2 * rng.normal(); });
  EXPECT_EQ(wide.assumption.substr(0, 58),
            "The textbook assumption fails: q elements have variance 1.");
  const Expectation mean =
      expect_of([&](std::int64_t at) { return (at % 16 == 2 ? 0.7 : 0) + rng.normal(); });
  EXPECT_NE(mean.assumption.find("q has components of mean up to 0.8"), std::string::npos)
      << mean.assumption;
  double last = 0;
  const Expectation chained = expect_of([&](std::int64_t at) {
    last = at % 16 == 0 ? rng.normal() : 0.6 * last + 0.8 * rng.normal();
    return last;
  });
  EXPECT_NE(chained.assumption.find("neighbouring components are correlated, by 0.59"),
            std::string::npos)
      << chained.assumption;
  const Expectation aligned =
      expect_of([&](std::int64_t at) { return (at % 4 == 0 ? 1.6 : 0.692820323) * rng.normal(); });
  EXPECT_NE(aligned.assumption.find("q and k share directions"), std::string::npos)
      << aligned.assumption;
  for (const Expectation& e : {wide, mean, chained, aligned}) EXPECT_FALSE(e.assumption_holds);
}

TEST(Theory, without_moments_only_the_iid_prediction_is_made) {
  HeadStats head;
  head.scale = 0.5;
  head.measured_rows = 2;
  head.scores.sum_variance = 3;
  head.scores.sigma.add(1, 2);
  const Expectation e = expect(head, 64);
  EXPECT_EQ(e.iid, 64);
  EXPECT_EQ(e.measured, 6);
  EXPECT_FALSE(e.moments_known);
  EXPECT_TRUE(std::isnan(e.norms) && std::isnan(e.full));
  EXPECT_EQ(e.assumption, "The moments of q and k were not measured.");
}

TEST(Theory, a_scale_of_zero_has_no_measured_spread_of_dots) {
  HeadStats head;
  head.measured_rows = 1;
  head.scores.sigma.add(0);
  EXPECT_TRUE(std::isnan(expect(head, 64).measured));
}

TEST(Theory, nan_in_visible_inputs_shows_and_beyond_the_lengths_is_not_touched) {
  TensorBuffer q = vectors(14, {1, 1, 5, 4}, 1), k = vectors(15, {1, 1, 6, 4}, 1);
  k.set(k.index({0, 0, 5, 1}), kNaN);
  Stats stats;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));
  EXPECT_EQ(expect(stats.heads[0], 4).assumption, "The moments of q and k are not finite.");
  const std::vector<std::int32_t> five{5};
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats, {}, view(five.data(), {1})));
  EXPECT_TRUE(expect(stats.heads[0], 4).moments_known);
}

TEST(Theory, empty_inputs_leave_the_moments_unmeasured) {
  for (const test::Extents& extents :
       {test::Extents{0, 1, 3, 4}, {1, 0, 3, 4}, {1, 1, 0, 4}, {1, 1, 3, 0}}) {
    TensorBuffer q(DType::f32, extents), k(DType::f32, {extents[0], 1, 3, extents[3]});
    k.fill([] { return 1.0; });
    q.fill([] { return 1.0; });
    Stats stats;
    ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));
    for (const HeadStats& head : stats.heads) EXPECT_EQ(head.inputs, InputMoments());
  }
}

TEST(Theory, measuring_inputs_leaves_every_other_statistic_alone) {
  const TensorBuffer q = vectors(16, {1, 2, 5, 4}, 1), k = vectors(17, {1, 1, 6, 4}, 1);
  Stats stats;
  stats.head_dim = 4;
  stats.heads.resize(2);
  stats.heads[1].rows = 7;
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));
  ASSERT_FALSE(measure_inputs(q.view(), k.view(), &stats));  // overwrites, never accumulates
  EXPECT_EQ(stats.heads[1].rows, 7);
  EXPECT_EQ(stats.heads[1].inputs.q_rows, 5);
}

TEST(Theory, wrong_inputs_are_refused_in_one_sentence_and_nothing_is_written) {
  const TensorBuffer q(DType::f32, {2, 4, 5, 8}), k(DType::f32, {2, 2, 6, 8});
  const auto refused = [&](const ConstTensor& query, const ConstTensor& key,
                           const ConstTensor& q_lengths = {}, const ConstTensor& kv_lengths = {}) {
    Stats stats;
    const Error error = measure_inputs(query, key, &stats, q_lengths, kv_lengths);
    EXPECT_TRUE(stats.heads.empty());
    return error.message();
  };
  const auto buffer = [](const test::Extents& extents, DType dtype = DType::f32) {
    return TensorBuffer(dtype, extents);
  };
  EXPECT_EQ(refused(buffer({2, 4, 5}).view(), k.view()),
            "[measure_inputs] query: rank 3, expected 4 for [B, Hq, Lq, D]");
  EXPECT_EQ(refused(q.view(), buffer({2, 2, 6, 8}, DType::i32).view()),
            "[measure_inputs] key: dtype i32 is not one of f32, f64, f16, bf16");
  EXPECT_EQ(refused(q.view(), buffer({2, 2, 6, 9}).view()),
            "[measure_inputs] key: head_dim 9 differs from query head_dim 8");
  EXPECT_EQ(refused(q.view(), buffer({1, 2, 6, 8}).view()),
            "[measure_inputs] key: batch 1 differs from query batch 2");
  EXPECT_EQ(refused(q.view(), buffer({2, 3, 6, 8}).view()),
            "[measure_inputs] query: 4 heads are no multiple of 3 key heads");
  EXPECT_EQ(refused(q.view(), buffer({2, 0, 6, 8}).view()),
            "[measure_inputs] query: 4 heads are no multiple of 0 key heads");
  Tensor null = k.view();
  null.data = nullptr;
  EXPECT_EQ(refused(q.view(), null), "[measure_inputs] key: null data for 192 elements");
  const std::vector<std::int64_t> long_lengths{5, 6}, three{1, 2, 3};
  EXPECT_EQ(refused(q.view(), k.view(), view(long_lengths.data(), {2})),
            "[measure_inputs] q_lengths: entry 1 is 6, expected 0 ... 5");
  EXPECT_EQ(refused(q.view(), k.view(), {}, view(three.data(), {3})),
            "[measure_inputs] kv_lengths: batch 3 differs from query batch 2");
  EXPECT_EQ(measure_inputs(q.view(), k.view(), nullptr).message(),
            "[measure_inputs] stats: null, expected statistics to fill");
  Stats other;
  other.heads.resize(3);
  EXPECT_EQ(measure_inputs(q.view(), k.view(), &other).message(),
            "[measure_inputs] stats: heads 3 differs from query heads 4");
}

}  // namespace
}  // namespace poise
