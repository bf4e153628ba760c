// Error bounds of gradients and the comparison of a run with the definition.
//
// In: GradientProblem, GradientOutputs. Out: bounds, words. The loops are those of the definition,
// with sizes in place of numbers.
#include "support/gradient_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A sum of n products, relative to the sum of their sizes.
double sum_units(double n) { return 4 + std::sqrt(n); }

// What one pair's numbers are made of.
struct Sizes {
  double values = 0, dots = 0;  // |dout| . |value|, |query| . |key|
};

class Bounding {
 public:
  Bounding(const GradientProblem& g, const ReferenceGradients<double>& reference, bool from_lse,
           ExpectedGradients* to)
      : g_(g), r_(reference.forward), gradients_(reference), from_lse_(from_lse), to_(*to) {}

  void fill();

 private:
  void add_row(std::int64_t b, std::int64_t h, std::int64_t i);
  void add_pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);
  Sizes sizes_of(std::size_t key) const;

  const GradientProblem& g_;
  const ReferenceResult<double>& r_;
  const ReferenceGradients<double>& gradients_;
  const bool from_lse_;
  ExpectedGradients& to_;

  double u_ = 0, cut_ = 0;  // exp is 0 below the cut
  std::size_t dim_ = 0, value_dim_ = 0;
  std::vector<double> query_, key_, value_, dout_;
  std::vector<RowBounds> rows_;
  // Of the row at work.
  std::size_t row_ = 0;
  double weight_ = 0, mean_ = 0, dlse_ = 0, dout_sum_ = 0, out_size_ = 0, pairs_ = 0;
};

void Bounding::fill() {
  const Problem& p = g_.problem;
  u_ = p.dtype == DType::f64 ? 0x1p-52 : 0x1p-24;
  cut_ = p.dtype == DType::f64 ? 0x1p-999 : 0x1p-99;
  dim_ = static_cast<std::size_t>(p.shape.head_dim);
  value_dim_ = static_cast<std::size_t>(p.shape.value_dim);
  query_ = p.query.values();
  key_ = p.key.values();
  value_ = p.value.values();
  dout_ = g_.dout.values();
  rows_ = bounds_of(p, r_);
  to_.dquery.assign(gradients_.dquery.size(), 0);
  to_.dkey.assign(gradients_.dkey.size(), 0);
  to_.dvalue.assign(gradients_.dvalue.size(), 0);
  to_.dlogits.assign(gradients_.dlogits.size(), 0);
  to_.dsinks.assign(gradients_.dsinks.size(), 0);
  to_.dscale.assign(gradients_.dscale.size(), 0);
  to_.dslopes.assign(gradients_.dslopes.size(), 0);
  for (std::int64_t b = 0; b < r_.batch; ++b)
    for (std::int64_t h = 0; h < r_.q_heads; ++h)
      for (std::int64_t i = 0; i < r_.q_lengths[static_cast<std::size_t>(b)]; ++i) add_row(b, h, i);
}

void Bounding::add_row(std::int64_t b, std::int64_t h, std::int64_t i) {
  row_ = static_cast<std::size_t>(r_.row_index(b, h, i));
  const RowBounds& bound = rows_[row_];
  weight_ = bound.weight + (from_lse_ ? bound.lse + u_ * std::fabs(r_.lse[row_]) : 0);
  const bool has_lse = r_.row_sum[row_] != 0;
  dlse_ = g_.dlse.given() && has_lse ? g_.dlse.at(static_cast<std::int64_t>(row_)) : 0;
  dout_sum_ = out_size_ = mean_ = 0;
  for (std::size_t c = 0; c < value_dim_; ++c) {
    const double dout = dout_[row_ * value_dim_ + c], out = r_.out[row_ * value_dim_ + c];
    dout_sum_ += std::fabs(dout);
    out_size_ += std::fabs(dout * out);
    mean_ += dout * out;
  }
  pairs_ = static_cast<double>(r_.kv_len + r_.q_len * r_.q_heads);
  for (std::int64_t j = 0; j < r_.kv_lengths[static_cast<std::size_t>(b)]; ++j)
    add_pair(b, h, i, j);
  const auto head = static_cast<std::size_t>(h);
  if (r_.sinks[head] == -kInfinity) return;
  const double p_sink = std::exp(r_.sinks[head] - r_.row_max[row_]) / r_.row_sum[row_];
  const double share = std::fabs(dlse_ - mean_);
  to_.dsinks[head] +=
      cut_ * share +
      p_sink * ((weight_ + u_ * sum_units(pairs_)) * share + dout_sum_ * bound.written +
                u_ * sum_units(static_cast<double>(value_dim_)) * (out_size_ + std::fabs(dlse_)));
}

Sizes Bounding::sizes_of(std::size_t key) const {
  Sizes sizes;
  for (std::size_t c = 0; c < value_dim_; ++c)
    sizes.values += std::fabs(dout_[row_ * value_dim_ + c] * value_[key * value_dim_ + c]);
  for (std::size_t d = 0; d < dim_; ++d)
    sizes.dots += std::fabs(query_[row_ * dim_ + d] * key_[key * dim_ + d]);
  return sizes;
}

void Bounding::add_pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Shape& s = g_.problem.shape;
  const auto pair = row_ * static_cast<std::size_t>(r_.kv_len) + static_cast<std::size_t>(j);
  if (r_.logits[pair] == -kInfinity) return;
  const std::int64_t kv_head = h / (s.q_heads / s.kv_heads);
  const auto key = static_cast<std::size_t>((b * s.kv_heads + kv_head) * r_.kv_len + j);
  const auto head = static_cast<std::size_t>(h);
  const Sizes sizes = sizes_of(key);
  const double p = r_.weights[pair], dlogit = std::fabs(gradients_.dlogits[pair]);
  const double inner = std::fabs(gradients_.dweights[pair] - mean_ + dlse_);
  const double logit_error =
      cut_ * inner + p * (weight_ * inner +
                          u_ * (5 + std::sqrt(static_cast<double>(value_dim_))) *
                              (sizes.values + out_size_ + std::fabs(dlse_)) +
                          dout_sum_ * rows_[row_].written);
  to_.dlogits[pair] = logit_error;

  double slope = 1, slope_error = 0;
  if (g_.problem.options.softcap > 0) {
    const double x = std::fabs(r_.scores[pair]) / g_.problem.options.softcap;
    const double e = std::exp(-2 * x);
    slope = 4 * e / ((1 + e) * (1 + e));
    slope_error = 2 * rows_[row_].logit / g_.problem.options.softcap + u_ * (4 + 6 * x);
  }
  // The slope is 4 e, and exp cuts e off at half of cut_.
  const double score_error = slope * logit_error + dlogit * (slope * slope_error + 2 * cut_);
  const double scale = std::fabs(r_.scales[head]), units = u_ * sum_units(pairs_);
  const double dot_error = scale * (score_error + units * slope * dlogit);
  for (std::size_t d = 0; d < dim_; ++d) {
    to_.dquery[row_ * dim_ + d] += dot_error * std::fabs(key_[key * dim_ + d]);
    to_.dkey[key * dim_ + d] += dot_error * std::fabs(query_[row_ * dim_ + d]);
  }
  for (std::size_t c = 0; c < value_dim_; ++c)
    to_.dvalue[key * value_dim_ + c] +=
        (cut_ + p * (weight_ + units)) * std::fabs(dout_[row_ * value_dim_ + c]);
  to_.dscale[head] += (score_error + units * slope * dlogit) * sizes.dots;
  const double distance =
      std::fabs(static_cast<double>(i + r_.diagonals[static_cast<std::size_t>(b)] - j));
  to_.dslopes[static_cast<std::size_t>(b * s.q_heads + h)] +=
      (logit_error + units * dlogit) * distance;
}

// Relative and absolute rounding of a gradient as written.
double written_error(DType dtype, double x) {
  if (dtype == DType::f16) return 0x1p-11 * std::fabs(x) + 0x1p-25;
  if (dtype == DType::bf16) return 0x1p-8 * std::fabs(x);
  return 0;
}

std::string compare(const char* name, const TensorBuffer& got, const std::vector<double>& expected,
                    const std::vector<double>& bound) {
  if (!got.given()) return {};
  for (std::int64_t n = 0; n < got.count(); ++n) {
    const auto at = static_cast<std::size_t>(n);
    const double x = got.at(n), y = expected[at];
    // Below the smallest normal number everything is 0.
    const double most = bound[at] + written_error(got.dtype(), y) + 0x1p-120;
    if (std::isnan(y) ? std::isnan(x) : x == y || std::fabs(x - y) <= most) continue;
    char text[160];
    std::snprintf(text, sizeof text, "%s[%lld] is %.9g, expected %.9g within %.3g", name,
                  static_cast<long long>(n), x, y, most);
    return text;
  }
  return {};
}

// Sums over the places that one element of `like` stands for, of [B, Hq, Lq, Lk] numbers.
std::vector<double> broadcast_sum(const TensorBuffer& like, const Shape& s,
                                  const std::vector<double>& pairs) {
  std::vector<double> sums(static_cast<std::size_t>(like.count()), 0);
  const int first = kMaxRank - like.view().rank;
  std::size_t pair = 0;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.q_heads; ++h)
      for (std::int64_t i = 0; i < s.q_len; ++i)
        for (std::int64_t j = 0; j < s.kv_len; ++j, ++pair) {
          const std::int64_t place[] = {b, h, i, j};
          std::int64_t index = 0;
          for (int axis = first; axis < kMaxRank; ++axis) {
            const std::int64_t extent = like.extent(axis - first);
            index = index * extent + (extent == 1 ? 0 : place[axis]);
          }
          sums[static_cast<std::size_t>(index)] += pairs[pair];
        }
  return sums;
}

std::string compare_dbias(const Shape& s, const TensorBuffer& dbias,
                          const ExpectedGradients& expected) {
  if (!dbias.given()) return {};
  std::vector<double> sizes = expected.reference.dlogits;
  for (double& x : sizes) x = std::fabs(x);
  std::vector<double> bound = broadcast_sum(dbias, s, expected.dlogits);
  const std::vector<double> size = broadcast_sum(dbias, s, sizes);
  const double u = dbias.dtype() == DType::f64 ? 0x1p-52 : 0x1p-24;
  const double terms = static_cast<double>(sizes.size()) / static_cast<double>(bound.size());
  for (std::size_t n = 0; n < bound.size(); ++n) bound[n] += u * sum_units(terms) * size[n];
  return compare("dbias", dbias, broadcast_sum(dbias, s, expected.reference.dlogits), bound);
}

// [Hq] as it is, or its sum.
std::vector<double> per_head(const TensorBuffer& like, const std::vector<double>& heads) {
  if (like.count() == static_cast<std::int64_t>(heads.size())) return heads;
  double sum = 0;
  for (double x : heads) sum += x;
  return {sum};
}

// [B, Hq] as it is, or summed over the batch.
std::vector<double> per_slope(const TensorBuffer& like, const std::vector<double>& slopes) {
  if (!like.given() || like.view().rank == 2) return slopes;
  std::vector<double> sums(static_cast<std::size_t>(like.count()), 0);
  for (std::size_t n = 0; n < slopes.size(); ++n) sums[n % sums.size()] += slopes[n];
  return sums;
}

}  // namespace

ExpectedGradients::ExpectedGradients(const GradientProblem& problem, bool from_lse)
    : reference(reference_gradients_of<double>(problem)) {
  Bounding(problem, reference, from_lse, this).fill();
}

std::string disagreement(const GradientProblem& g, const GradientOutputs& got,
                         const ExpectedGradients& expected) {
  if (got.error) return got.error.message();
  const ReferenceGradients<double>& r = expected.reference;
  for (const std::string& found :
       {compare("dq", got.dq, r.dquery, expected.dquery),
        compare("dk", got.dk, r.dkey, expected.dkey),
        compare("dv", got.dv, r.dvalue, expected.dvalue),
        compare("dsinks", got.dsinks, r.dsinks, expected.dsinks),
        compare("dscale", got.dscale, per_head(got.dscale, r.dscale),
                per_head(got.dscale, expected.dscale)),
        compare("dslopes", got.dslopes, per_slope(got.dslopes, r.dslopes),
                per_slope(got.dslopes, expected.dslopes)),
        compare_dbias(g.problem.shape, got.dbias, expected)})
    if (!found.empty()) return found + "; " + g.problem.describe();
  return {};
}

std::string disagreement(const GradientProblem& g, const GradientOutputs& got) {
  return disagreement(g, got, ExpectedGradients(g));
}

}  // namespace poise::test
