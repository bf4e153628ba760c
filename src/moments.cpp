// measure_inputs(): the moments of q and k that set the spread of q . k, without any q . k.
//
// In: query and key views of any floating dtype. Out: HeadStats::inputs per query head, one batch
// at a time, joined by InputMoments::merge. Work per kv head and batch: one D x D covariance of the
// keys, shared by the query heads of its group, and one quadratic form per query row.
// Two passes throughout (means first), so that large means cost no digits. Not here: the
// predictions made from these moments (theory.cpp).
#include <poise/theory.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "check_view.h"
#include "view_values.h"
#include "widen.h"

namespace poise {
namespace {

Argument at(const char* name) { return {"measure_inputs", name}; }

Error check_operand(const char* name, const ConstTensor& view, const char* letters) {
  const Argument argument = at(name);
  if (Error error = check_rank(argument, view, 4, letters)) return error;
  if (Error error = check_dtype(argument, view, {DType::f32, DType::f64, DType::f16, DType::bf16}))
    return error;
  return check_layout(argument, view);
}

// The length of batch b, `all` when no lengths are given.
std::int64_t length(const ConstTensor& lengths, std::int64_t b, std::int64_t all) {
  return lengths.given() ? read_integer(lengths, b) : all;
}

Error check_lengths(const char* name, const ConstTensor& lengths, std::int64_t batch,
                    std::int64_t all) {
  if (!lengths.given()) return {};
  const Argument argument = at(name);
  if (Error error = check_rank(argument, lengths, 1, "[B]")) return error;
  if (Error error = check_dtype(argument, lengths, {DType::i32, DType::i64})) return error;
  if (Error error = check_layout(argument, lengths)) return error;
  if (Error error = check_extent(argument, "batch", lengths.extent(0), "query", batch))
    return error;
  for (std::int64_t b = 0; b < batch; ++b)
    if (const std::int64_t value = length(lengths, b, all); value < 0 || value > all)
      return refuse(ErrorCode::bad_value, argument, "entry {} is {}, expected 0 ... {}",
                    {text(b), text(value), text(all)});
  return {};
}

Error check(const ConstTensor& query, const ConstTensor& key, const Stats* stats,
            const ConstTensor& q_lengths, const ConstTensor& kv_lengths) {
  if (stats == nullptr)
    return refuse(ErrorCode::bad_value, at("stats"), "null, expected statistics to fill", {});
  if (Error error = check_operand("query", query, "[B, Hq, Lq, D]")) return error;
  if (Error error = check_operand("key", key, "[B, Hkv, Lk, D]")) return error;
  const std::int64_t batch = query.extent(0), q_heads = query.extent(1), dim = query.extent(3);
  if (Error error = check_extent(at("key"), "batch", key.extent(0), "query", batch)) return error;
  if (Error error = check_extent(at("key"), "head_dim", key.extent(3), "query", dim)) return error;
  if (q_heads > 0 && (key.extent(1) == 0 || q_heads % key.extent(1) != 0))
    return refuse(ErrorCode::bad_shape, at("query"), "{} heads are no multiple of {} key heads",
                  {text(q_heads), text(key.extent(1))});
  if (!stats->heads.empty()) {
    const auto heads = static_cast<std::int64_t>(stats->heads.size());
    if (Error error = check_extent(at("stats"), "heads", heads, "query", q_heads)) return error;
    if (Error error = check_extent(at("stats"), "head_dim", stats->head_dim, "query", dim))
      return error;
  }
  if (Error error = check_lengths("q_lengths", q_lengths, batch, query.extent(2))) return error;
  return check_lengths("kv_lengths", kv_lengths, batch, key.extent(2));
}

// The vectors of one head and batch, row by row, with their mean vector.
struct Vectors {
  std::size_t rows, dim;
  std::vector<double> values;  // [rows, dim]
  std::vector<double> mean;    // [dim]

  Vectors(const ConstTensor& t, std::int64_t b, std::int64_t h, std::int64_t count)
      : rows(static_cast<std::size_t>(count)),
        dim(static_cast<std::size_t>(t.extent(3))),
        values(rows * dim),
        mean(dim) {
    const std::int64_t head = b * t.stride(0) + h * t.stride(1);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t d = 0; d < dim; ++d) {
        values[i * dim + d] = element(t, head + static_cast<std::int64_t>(i) * t.stride(2) +
                                             static_cast<std::int64_t>(d) * t.stride(3));
        mean[d] += values[i * dim + d];
      }
    for (double& m : mean) m /= static_cast<double>(rows);
  }
  const double* row(std::size_t i) const { return values.data() + i * dim; }
  double max_abs_mean() const {
    double largest = 0;
    for (double m : mean) largest = std::max(largest, std::fabs(m));
    return largest;
  }
};

struct ElementMoments {
  double mean = 0, variance = 0, skewness = 0, excess_kurtosis = 0;
};

ElementMoments element_moments(const Vectors& x) {
  ElementMoments m;
  const auto count = static_cast<double>(x.values.size());
  for (double value : x.values) m.mean += value;
  m.mean /= count;
  double m3 = 0, m4 = 0;
  for (double value : x.values) {
    const double off = value - m.mean, squared = off * off;
    m.variance += squared;
    m3 += squared * off;
    m4 += squared * squared;
  }
  m.variance /= count;
  if (m.variance == 0) return m;
  m.skewness = m3 / count / (m.variance * std::sqrt(m.variance));
  m.excess_kurtosis = m4 / count / (m.variance * m.variance) - 3;
  return m;
}

// Sum over d of |correlation of components d and d + 1|; constant components count as uncorrelated.
double sum_adjacent_correlation(const Vectors& x) {
  std::vector<double> variance(x.dim), covariance(x.dim);
  for (std::size_t i = 0; i < x.rows; ++i)
    for (std::size_t d = 0; d < x.dim; ++d) {
      const double off = x.row(i)[d] - x.mean[d];
      variance[d] += off * off;
      if (d + 1 < x.dim) covariance[d] += off * (x.row(i)[d + 1] - x.mean[d + 1]);
    }
  double sum = 0;
  for (std::size_t d = 0; d + 1 < x.dim; ++d) {
    const double scale = std::sqrt(variance[d] * variance[d + 1]);
    if (scale != 0) sum += std::fabs(covariance[d]) / scale;
  }
  return sum;
}

// Keys of one kv head and batch, with what every query head of the group needs of them.
struct Keys {
  Vectors vectors;
  ElementMoments elements;
  double adjacent;
  std::vector<double> covariance;  // [D, D], upper triangle filled

  explicit Keys(Vectors k)
      : vectors(std::move(k)),
        elements(element_moments(vectors)),
        adjacent(sum_adjacent_correlation(vectors)),
        covariance(vectors.dim * vectors.dim) {
    const std::size_t dim = vectors.dim;
    const auto rows = static_cast<double>(vectors.rows);
    std::vector<double> off(dim);
    for (std::size_t j = 0; j < vectors.rows; ++j) {
      for (std::size_t d = 0; d < dim; ++d) off[d] = vectors.row(j)[d] - vectors.mean[d];
      for (std::size_t d = 0; d < dim; ++d)
        for (std::size_t e = d; e < dim; ++e) covariance[d * dim + e] += off[d] * off[e];
    }
    for (double& c : covariance) c /= rows;
  }

  double trace() const {
    double sum = 0;
    for (std::size_t d = 0; d < vectors.dim; ++d) sum += covariance[d * vectors.dim + d];
    return sum;
  }
  // q^T Sigma q: the variance over the keys of q . k.
  double variance_seen_by(const double* q) const {
    const std::size_t dim = vectors.dim;
    double sum = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      const double* row = covariance.data() + d * dim;
      double to_the_right = 0;
      for (std::size_t e = d + 1; e < dim; ++e) to_the_right += row[e] * q[e];
      sum += q[d] * (row[d] * q[d] + 2 * to_the_right);
    }
    return sum;
  }
};

InputMoments moments_of_batch(const Vectors& q, const Keys& keys) {
  InputMoments m;
  m.q_rows = static_cast<std::int64_t>(q.rows);
  m.k_rows = static_cast<std::int64_t>(keys.vectors.rows);
  m.batches = 1;
  const ElementMoments of_q = element_moments(q), &of_k = keys.elements;
  m.q_mean = of_q.mean;
  m.q_variance = of_q.variance;
  m.q_skewness = of_q.skewness;
  m.q_excess_kurtosis = of_q.excess_kurtosis;
  m.k_mean = of_k.mean;
  m.k_variance = of_k.variance;
  m.k_skewness = of_k.skewness;
  m.k_excess_kurtosis = of_k.excess_kurtosis;

  const auto dim = static_cast<double>(q.dim);
  m.q_second_moment = of_q.variance + of_q.mean * of_q.mean;
  m.k_variance_centred = keys.trace() / dim;
  double seen = 0;
  for (std::size_t i = 0; i < q.rows; ++i) seen += keys.variance_seen_by(q.row(i));
  seen /= static_cast<double>(q.rows);
  const double isotropic = dim * m.q_second_moment * m.k_variance_centred;
  if (isotropic != 0) m.alignment = seen / isotropic;

  for (std::size_t d = 0; d < q.dim; ++d) m.qk_mean += q.mean[d] * keys.vectors.mean[d];
  m.q_max_abs_mean = q.max_abs_mean();
  m.k_max_abs_mean = keys.vectors.max_abs_mean();
  if (q.dim > 1)
    m.mean_adjacent_correlation = (sum_adjacent_correlation(q) + keys.adjacent) / (2 * (dim - 1));
  return m;
}

// One InputMoments per query head.
std::vector<InputMoments> measure(const ConstTensor& query, const ConstTensor& key,
                                  const ConstTensor& q_lengths, const ConstTensor& kv_lengths) {
  const std::int64_t q_heads = query.extent(1), kv_heads = key.extent(1);
  std::vector<InputMoments> moments(static_cast<std::size_t>(q_heads));
  // Nothing to see, whatever batch the views claim.
  if (q_heads == 0 || query.extent(3) == 0 || query.extent(2) < 1 || key.extent(2) < 2)
    return moments;
  const std::int64_t group = q_heads / kv_heads;
  for (std::int64_t b = 0; b < query.extent(0); ++b) {
    const std::int64_t q_rows = length(q_lengths, b, query.extent(2));
    const std::int64_t k_rows = length(kv_lengths, b, key.extent(2));
    if (q_rows < 1 || k_rows < 2) continue;
    for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      const Keys keys(Vectors(key, b, kv_head, k_rows));
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
        moments[static_cast<std::size_t>(h)].merge(
            moments_of_batch(Vectors(query, b, h, q_rows), keys));
    }
  }
  return moments;
}

}  // namespace

Error measure_inputs(const ConstTensor& query, const ConstTensor& key, Stats* stats,
                     const ConstTensor& q_lengths, const ConstTensor& kv_lengths) {
  if (Error error = check(query, key, stats, q_lengths, kv_lengths)) return error;
  try {
    const std::vector<InputMoments> moments = measure(query, key, q_lengths, kv_lengths);
    if (stats->heads.empty()) {
      stats->heads.resize(moments.size());
      stats->head_dim = query.extent(3);
      stats->kv_heads = key.extent(1);
    }
    for (std::size_t h = 0; h < moments.size(); ++h) stats->heads[h].inputs = moments[h];
  } catch (const std::exception&) {  // bad_alloc, or length_error of a size no memory holds
    return refuse(ErrorCode::out_of_memory, at("query"),
                  "no memory for [D, D] and [L, D] doubles with D = {}", {text(query.extent(3))});
  }
  return {};
}

}  // namespace poise
