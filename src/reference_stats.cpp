// The definition of the statistics: two passes over materialised rows, in double.
//
// In: a ReferenceResult. Out: per-row read-outs and their sums per head, by the textbook formulas
// of docs/health.md. Where a textbook formula cancels (1 - p of a saturated row), the same number
// is summed from its parts instead. No streaming state, no merge: those are what is being judged.
#include "reference.h"
#include "tally.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace poise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Moments {
  double mean = 0, variance = 0, min = kInfinity, max = -kInfinity;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (double value : x) {
    m.mean += value / n;
    m.min = std::min(m.min, value);
    m.max = std::max(m.max, value);
  }
  for (double value : x) m.variance += (value - m.mean) * (value - m.mean) / n;
  return m;
}

// The softmax of one row of finite logits and what it says.
struct Distribution {
  std::vector<double> p, log_p;
  std::size_t argmax = 0;
  double rest = 0;  // 1 - p[argmax]

  explicit Distribution(const std::vector<double>& logits) {
    argmax =
        static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    double others = 0;  // sum of e^t without the arg-max, whose e^t is 1
    for (std::size_t j = 0; j < logits.size(); ++j)
      if (j != argmax) others += std::exp(logits[j] - logits[argmax]);
    for (double logit : logits) {
      log_p.push_back(logit - logits[argmax] - std::log1p(others));
      p.push_back(std::exp(logit - logits[argmax]) / (1 + others));
    }
    rest = others / (1 + others);
  }

  double complement(std::size_t j) const { return j == argmax ? rest : 1 - p[j]; }
  double entropy() const {
    double sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j)
      if (p[j] > 0) sum -= p[j] * log_p[j];
    return sum;
  }
  double sum_squares() const {
    double sum = 0;
    for (double x : p) sum += x * x;
    return sum;
  }
  double trace() const {
    double sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j) sum += p[j] * complement(j);
    return sum;
  }
  // |diag(p) - p p^T|_F, diagonal and off-diagonal elements apart.
  double frobenius() const {
    double diagonal = 0, off_diagonal = 0, earlier = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      diagonal += p[j] * complement(j) * p[j] * complement(j);
      off_diagonal += 2 * p[j] * p[j] * earlier;
      earlier += p[j] * p[j];
    }
    return std::sqrt(diagonal + off_diagonal);
  }
  double covariance_of(const std::vector<double>& x, const std::vector<double>& y) const {
    double x_mean = 0, y_mean = 0, covariance = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      x_mean += p[j] * x[j];
      y_mean += p[j] * y[j];
    }
    for (std::size_t j = 0; j < p.size(); ++j)
      covariance += p[j] * (x[j] - x_mean) * (y[j] - y_mean);
    return covariance;
  }
};

// The visible keys of one row: parallel arrays, and the same without stand-ins for -inf.
struct VisibleKeys {
  std::vector<std::int64_t> keys;
  std::vector<double> logits;
  std::vector<double> drives;  // d logit / d ln scale
  std::vector<double> true_scores, true_logits, true_dots;
  std::vector<std::int64_t> true_keys;
};

VisibleKeys visible_keys(const ReferenceResult<double>& r, std::int64_t row,
                         const StatsRequest& request) {
  VisibleKeys v;
  for (std::int64_t j = 0; j < r.kv_len; ++j) {
    const auto at = static_cast<std::size_t>(row * r.kv_len + j);
    if (r.logits[at] == -kInfinity) continue;
    v.keys.push_back(j);
    v.logits.push_back(r.logits[at]);
    const double bend = r.softcap > 0 ? std::tanh(r.scores[at] / r.softcap) : 0;
    v.drives.push_back(bend * bend < 1 ? r.scores[at] * (1 - bend * bend) : 0);
    if (r.bias[at] <= request.stand_in_bias) continue;
    v.true_keys.push_back(j);
    v.true_scores.push_back(r.scores[at]);
    v.true_logits.push_back(r.logits[at]);
    v.true_dots.push_back(r.dots[at]);
  }
  return v;
}

template <class T>
void erase_key(std::vector<T>& values, const std::vector<std::int64_t>& keys, std::int64_t key) {
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found != keys.end()) values.erase(values.begin() + (found - keys.begin()));
}

ReferenceRow::Without row_without(const VisibleKeys& visible, const Distribution& whole,
                                  std::int64_t key) {
  ReferenceRow::Without w;
  const auto found = std::find(visible.keys.begin(), visible.keys.end(), key);
  if (found != visible.keys.end())
    w.weight = whole.p[static_cast<std::size_t>(found - visible.keys.begin())];
  std::vector<double> logits = visible.logits, scores = visible.true_scores;
  erase_key(logits, visible.keys, key);
  erase_key(scores, visible.true_keys, key);
  w.something_left = !scores.empty();
  if (!w.something_left) return w;
  const Distribution rest(logits);
  w.top1 = rest.p[rest.argmax];
  w.entropy = rest.entropy();
  w.trace = rest.trace();
  w.sigma = std::sqrt(moments(scores).variance);
  return w;
}

ReferenceRow read_row(const ReferenceResult<double>& r, std::int64_t b, std::int64_t h,
                      std::int64_t i, const StatsRequest& request) {
  ReferenceRow out;
  out.batch = b;
  out.row = i;
  const std::int64_t row = r.row_index(b, h, i);
  const double max_score = r.max_score[static_cast<std::size_t>(row)];
  out.nonfinite = std::isnan(max_score) || max_score == kInfinity;
  if (out.nonfinite) return out;

  const VisibleKeys visible = visible_keys(r, row, request);
  // Under a softcap the logit of an infinite score is finite; the scores have no mean.
  for (double score : visible.true_scores) out.nonfinite = out.nonfinite || std::isinf(score);
  if (out.nonfinite) return out;
  out.visible = static_cast<double>(visible.keys.size());
  out.stand_ins = out.visible - static_cast<double>(visible.true_keys.size());
  if (out.keys() < 1) return out;

  const Distribution distribution(visible.logits);
  out.max = max_score;
  out.second = -kInfinity;
  for (std::size_t j = 0; j < visible.logits.size(); ++j)
    if (j != distribution.argmax) out.second = std::max(out.second, visible.logits[j]);
  out.argmax = visible.keys[distribution.argmax];
  out.lse = r.lse_without_sink[static_cast<std::size_t>(row)];
  out.sink_weight =
      std::exp(r.sinks[static_cast<std::size_t>(h)] - r.lse[static_cast<std::size_t>(row)]);

  const Moments scores = moments(visible.true_scores), logits = moments(visible.true_logits),
                dots = moments(visible.true_dots);
  out.score_mean = scores.mean;
  out.score_variance = scores.variance;
  out.score_min = scores.min;
  out.score_max = scores.max;
  out.logit_mean = logits.mean;
  out.logit_variance = logits.variance;
  out.logit_min = logits.min;
  out.logit_max = logits.max;
  out.dot_min = dots.min;
  out.dot_max = dots.max;

  const double n = out.keys();
  out.entropy = distribution.entropy();
  out.kl = std::log(n) - out.entropy;
  out.top1 = distribution.p[distribution.argmax];
  out.rest = distribution.rest;
  out.sum_squares = distribution.sum_squares();
  out.trace = distribution.trace();
  out.frobenius = distribution.frobenius();
  out.gain = n > 1 ? out.frobenius * n / std::sqrt(n - 1) : 0;
  out.temperature_variance = distribution.covariance_of(visible.logits, visible.logits);
  out.scale_covariance = distribution.covariance_of(visible.drives, visible.logits);
  for (std::size_t k = 0; k < kTrackedKeys; ++k)
    out.without[k] = row_without(visible, distribution, request.tracked[k]);
  return out;
}

void add_spread(SpreadStats& spread, double mean, double variance) {
  spread.sum_mean += mean;
  spread.sum_variance += variance;
  spread.sum_mean_squared += mean * mean;
}

void add_extremes(SpreadStats& spread, double min, double max) {
  spread.min = std::min(spread.min, min);
  spread.max = std::max(spread.max, max);
}

void add_histogram(Histogram& histogram, const ReferenceResult<double>& r, std::int64_t row,
                   const StatsRequest& request) {
  for (double score : visible_keys(r, row, request).true_scores) {
    if (!std::isfinite(score)) continue;
    const double bin = std::floor((score - request.histogram_low) / request.histogram_width);
    if (bin < 0)
      ++histogram.below;
    else if (bin >= kHistogramBins)
      ++histogram.above;
    else
      ++histogram.counts[static_cast<std::size_t>(bin)];
  }
}

// Sums that take every row with keys: counts, maxima, lse.
void add_row(HeadStats& sums, const ReferenceRow& row, std::int64_t q_len) {
  ++sums.rows;
  if (row.nonfinite) {
    ++sums.nonfinite_rows;
    const std::int64_t index = row.batch * q_len + row.row;
    if (sums.first_nonfinite_row < 0 || index < sums.first_nonfinite_row)
      sums.first_nonfinite_row = index;
    return;
  }
  sums.stand_ins += static_cast<std::int64_t>(row.stand_ins);
  if (row.keys() < 1) {
    ++sums.empty_rows;
    return;
  }
  add_extremes(sums.scores, row.score_min, row.score_max);
  add_extremes(sums.logits, row.logit_min, row.logit_max);
  sums.max_dot = std::max(sums.max_dot, row.dot_max);
  sums.min_dot = std::min(sums.min_dot, row.dot_min);
  sums.lse_min = std::min(sums.lse_min, row.lse);
  sums.lse_max = std::max(sums.lse_max, row.lse);
  sums.sum_sink_weight += row.sink_weight;
  if (row.keys() < 2) ++sums.single_rows;
}

// Sums that take measured rows only.
void add_measured_row(HeadStats& sums, const ReferenceRow& row, std::int64_t diagonal,
                      const StatsRequest& request) {
  const double n = row.keys();
  ++sums.measured_rows;
  sums.visible_keys += n;
  sums.sum_log_keys += std::log(n);
  add_spread(sums.scores, row.score_mean, row.score_variance);
  add_spread(sums.logits, row.logit_mean, row.logit_variance);
  sums.sum_lse += row.lse;
  sums.sum_entropy += row.entropy;
  sums.sum_entropy_ratio += row.entropy / std::log(n);
  sums.sum_kl += row.kl;
  sums.sum_top1 += row.top1;
  sums.sum_squares += row.sum_squares;
  sums.sum_effective_keys += 1 / row.sum_squares;
  sums.sum_trace += row.trace;
  sums.sum_frobenius += row.frobenius;
  sums.sum_frobenius_squared += row.frobenius * row.frobenius;
  sums.sum_expected_transmission += row.frobenius / std::sqrt(n - 1);
  sums.sum_expected_transmission_squared += row.frobenius * row.frobenius / (n - 1);
  sums.sum_temperature_variance += row.temperature_variance;
  sums.sum_scale_covariance += row.scale_covariance;
  sums.rows_above_99 += row.top1 > 0.99;
  sums.near_tie_rows += row.max - row.second <= request.near_tie_gap;
  sums.dead_rows += row.gain < 0.1;
  ++sums.argmax_column[row.argmax];
  ++sums.argmax_offset[offset_from_diagonal(row.argmax, row.row, diagonal)];
  for (std::size_t k = 0; k < kTrackedKeys; ++k) {
    const ReferenceRow::Without& without = row.without[k];
    TrackedKey& tracked = sums.tracked[k];
    tracked.sum_weight += without.weight;
    if (!without.something_left) continue;
    ++tracked.rows_without;
    tracked.above_99_without += without.top1 > 0.99;
    tracked.sum_entropy_without += without.entropy;
  }
}

}  // namespace

std::vector<ReferenceHead> reference_statistics(const ReferenceResult<double>& r,
                                                const StatsRequest& request, std::int64_t lanes) {
  std::vector<ReferenceHead> heads(static_cast<std::size_t>(r.q_heads));
  for (std::int64_t h = 0; h < r.q_heads; ++h) {
    ReferenceHead& head = heads[static_cast<std::size_t>(h)];
    head.sums.scale = r.scales[static_cast<std::size_t>(h)];
    head.sums.histogram.low = request.histogram_low;
    head.sums.histogram.width = request.histogram_width;
    for (std::int64_t b = 0; b < r.batch; ++b)
      for (std::int64_t i = 0; i < r.q_lengths[static_cast<std::size_t>(b)]; ++i) {
        if (i / lanes % request.every != 0) continue;
        const ReferenceRow row = read_row(r, b, h, i, request);
        add_row(head.sums, row, r.q_len);
        add_histogram(head.sums.histogram, r, r.row_index(b, h, i), request);
        if (row.measured())
          add_measured_row(head.sums, row, r.diagonals[static_cast<std::size_t>(b)], request);
        head.rows.push_back(row);
      }
  }
  return heads;
}

}  // namespace poise
