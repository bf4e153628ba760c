// Error bounds per row and the comparison of a run with the definition.
//
// In: Problem, Outputs, ReferenceResult. Out: RowBounds, AssertionResult whose message names the
// first element that is too far off, its bound, and the problem.
#include "support/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Half an ulp of a 16-bit output, relative; 0 where the output has the accumulation's dtype.
double output_roundoff(DType dtype) {
  if (dtype == DType::f16) return 0x1p-11;
  return dtype == DType::bf16 ? 0x1p-8 : 0;
}

// The definition in double rounds too: with f64 inputs both sides err.
double unit_roundoff(const Problem& p) { return p.dtype == DType::f64 ? 0x1p-52 : 0x1p-24; }

bool within(double got, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(got);
  if (got == expected) return true;
  return std::isfinite(got) && std::isfinite(expected) && std::fabs(got - expected) <= bound;
}

// max over the keys of |scale| * sum_d |q_d k_jd|, what the rounding of a dot scales with.
double dot_size(const std::vector<double>& query, const std::vector<double>& key, std::size_t q_row,
                std::size_t k_row, std::size_t keys, std::size_t dim, double scale) {
  double largest = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    double sum = 0;
    for (std::size_t d = 0; d < dim; ++d)
      sum += std::fabs(query[q_row * dim + d] * key[(k_row + j) * dim + d]);
    if (std::isfinite(sum)) largest = std::max(largest, sum);
  }
  return largest * std::fabs(scale);
}

// Names the element and both numbers.
testing::AssertionResult too_far(const Problem& p, const char* output, std::int64_t index,
                                 double got, double expected, double bound) {
  return testing::AssertionFailure() << output << '[' << index << "] is " << got << ", expected "
                                     << expected << " within " << bound << "; " << p.describe();
}

struct RowLook {
  double logit = 0, alibi_and_bias = 0, spread = 0, value = 0;
  bool comparable = true;
};

// The sizes one row's bounds are made of.
RowLook look_at(const ReferenceResult<double>& r, std::size_t row, const std::vector<double>& value,
                std::size_t first_value, bool f32) {
  RowLook look;
  const auto keys = static_cast<std::size_t>(r.kv_len), dim = static_cast<std::size_t>(r.value_dim);
  for (std::size_t j = 0; j < keys; ++j) {
    const std::size_t at = row * keys + j;
    for (double x : {r.dots[at], r.scores[at], r.logits[at]})
      if (f32 && std::fabs(x) > kLargestCompared && x != -kInfinity) look.comparable = false;
    if (!std::isfinite(r.logits[at])) continue;
    look.logit = std::max({look.logit, std::fabs(r.logits[at]), std::fabs(r.scores[at])});
    const double bias = std::fabs(r.bias[at]);
    const double alibi = std::fabs(r.logits[at] - r.bias[at] - r.capped[at]);
    look.alibi_and_bias = std::max(look.alibi_and_bias, bias + alibi);
    look.spread += r.weights[at] * std::fabs(r.logits[at] - r.row_max[row]);
    for (std::size_t c = 0; c < dim; ++c) {
      const double v = std::fabs(value[first_value + j * dim + c]);
      if (std::isfinite(v)) look.value = std::max(look.value, v);
    }
  }
  return look;
}

}  // namespace

std::vector<RowBounds> bounds_of(const Problem& p, const ReferenceResult<double>& r) {
  const double u = unit_roundoff(p);
  const std::vector<double> query = p.query.values(), key = p.key.values(),
                            value = p.value.values();
  const auto dim = static_cast<std::size_t>(p.shape.head_dim);
  std::vector<RowBounds> bounds(static_cast<std::size_t>(r.batch * r.q_heads * r.q_len));
  for (std::int64_t b = 0; b < r.batch; ++b)
    for (std::int64_t h = 0; h < r.q_heads; ++h)
      for (std::int64_t i = 0; i < r.q_lengths[static_cast<std::size_t>(b)]; ++i) {
        const auto row = static_cast<std::size_t>(r.row_index(b, h, i));
        const std::int64_t kv_head = h / (r.q_heads / p.shape.kv_heads);
        const auto k_row = static_cast<std::size_t>((b * p.shape.kv_heads + kv_head) * r.kv_len);
        const RowLook look = look_at(r, row, value, k_row * static_cast<std::size_t>(r.value_dim),
                                     p.dtype != DType::f64);
        const auto keys = static_cast<std::size_t>(r.kv_lengths[static_cast<std::size_t>(b)]);
        const double dots =
            dot_size(query, key, row, k_row, keys, dim, r.scales[static_cast<std::size_t>(h)]);
        RowBounds& bound = bounds[row];
        bound.comparable = look.comparable;
        bound.logit = u * ((2 + std::sqrt(static_cast<double>(dim))) * dots + 2 * look.logit +
                           3 * look.alibi_and_bias + 8 * p.options.softcap);
        const double weight = 2 * (bound.logit + u * (1.25 * look.spread + 19));
        const double kept = 1 / (1 - p.options.dropout.probability);  // what dropout scales by
        bound.weight = kept * weight;
        bound.out = bound.weight * look.value;
        bound.written = bound.out + output_roundoff(p.dtype) * kept * look.value;
        bound.lse = weight + 2 * u * std::fabs(r.lse[row]);
      }
  return bounds;
}

Expected::Expected(const Problem& problem)
    : reference(reference_of<double>(problem)), bounds(bounds_of(problem, reference)) {}

testing::AssertionResult agrees(const Problem& p, const Outputs& o, const Expected& expected_run) {
  if (o.error) return testing::AssertionFailure() << o.error.message() << "; " << p.describe();
  const auto& [r, bounds] = expected_run;
  const std::int64_t dim = r.value_dim, keys = r.kv_len;
  std::vector<double> weights(r.weights.size());
  for (std::size_t n = 0; n < weights.size(); ++n) weights[n] = r.weight_after_dropout(n);
  struct Judged {
    const char* name;
    const TensorBuffer& got;
    const std::vector<double>& expected;
    std::int64_t width;
    double RowBounds::*bound;
  };
  const Judged all[] = {
      {"out", o.out, r.out, dim, &RowBounds::written},
      {"lse", o.lse, r.lse, 1, &RowBounds::lse},
      {"lse_without_sink", o.lse_without_sink, r.lse_without_sink, 1, &RowBounds::lse},
      {"max_score", o.max_score, r.max_score, 1, &RowBounds::logit},
      {"scores", o.scores, r.scores, keys, &RowBounds::logit},
      {"capped", o.capped, r.capped, keys, &RowBounds::logit},
      {"logits", o.logits, r.logits, keys, &RowBounds::logit},
      {"weights", o.weights, weights, keys, &RowBounds::weight},
  };
  for (const Judged& judged : all) {
    if (!judged.got.given()) continue;
    for (std::int64_t n = 0; n < judged.got.count(); ++n) {
      const RowBounds& row = bounds[static_cast<std::size_t>(n / judged.width)];
      if (!row.comparable) continue;
      const double got = judged.got.at(n), expected = judged.expected[static_cast<std::size_t>(n)];
      if (!within(got, expected, row.*judged.bound))
        return too_far(p, judged.name, n, got, expected, row.*judged.bound);
    }
  }
  if (!o.row_sum.given()) return testing::AssertionSuccess();
  // The state is the kernels' own; what it must say is lse and out, and 0 for a row without keys.
  for (std::int64_t n = 0; n < o.row_sum.count(); ++n) {
    const auto row = static_cast<std::size_t>(n);
    if (!bounds[row].comparable || std::isnan(r.lse[row])) continue;
    const double sum = o.row_sum.at(n);
    if ((sum == 0) != (r.row_sum[row] == 0))
      return too_far(p, "row_sum", n, sum, r.row_sum[row], 0);
    if (sum == 0) continue;
    const double lse = o.row_max.at(n) + std::log(sum);
    if (!within(lse, r.lse[row], bounds[row].lse))
      return too_far(p, "row_max + log(row_sum)", n, lse, r.lse[row], bounds[row].lse);
    for (std::int64_t c = 0; c < dim; ++c) {
      const double out = o.accumulator.at(n * dim + c) / sum;
      const double expected = r.out[static_cast<std::size_t>(n * dim + c)];
      if (!within(out, expected, bounds[row].out))
        return too_far(p, "accumulator / row_sum", n * dim + c, out, expected, bounds[row].out);
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult agrees(const Problem& p, const Outputs& o) {
  return agrees(p, o, Expected(p));
}

testing::AssertionResult agree(const Problem& p, const Outputs& a, const Outputs& b,
                               const Expected& expected) {
  if (a.error || b.error)
    return testing::AssertionFailure() << a.error.message() << b.error.message();
  const auto& [r, bounds] = expected;
  for (std::int64_t n = 0; n < a.out.count(); ++n) {
    const RowBounds& row = bounds[static_cast<std::size_t>(n / r.value_dim)];
    if (row.comparable && !within(a.out.at(n), b.out.at(n), 2 * row.written))
      return too_far(p, "out", n, a.out.at(n), b.out.at(n), 2 * row.written);
  }
  for (std::int64_t n = 0; n < a.lse.count(); ++n) {
    const RowBounds& row = bounds[static_cast<std::size_t>(n)];
    if (row.comparable && !within(a.lse.at(n), b.lse.at(n), 2 * row.lse))
      return too_far(p, "lse", n, a.lse.at(n), b.lse.at(n), 2 * row.lse);
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult agree(const Problem& p, const Outputs& a, const Outputs& b) {
  return agree(p, a, b, Expected(p));
}

}  // namespace poise::test
