// Read-outs: one row's streaming state becomes signals, signals become a head's sums and sketches.
//
// With Z = 1 + rest (one arg-max is left out of every rest sum: its t = 0, e = 1 is implicit) each
// signal is a few operations that neither cancel on a saturated row nor overflow on a wide one.
// In: RowTally and RowGradient, what the kernels leave. Out: HeadStats. No loop over keys, no state
// between rows. Formulas: docs/health.md, "Read-outs"; checked against two passes in
// tests/tally_test.cpp.
#include "tally.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace poise {
namespace {

// ln(1 + x) for x > -1, in a third of the time of log1p. Small x by the series, whose next term is
// below half of the last digit; others by ln w, w = 1 + x, and a factor that gives back what
// rounding took from w (Goldberg 1991, What Every Computer Scientist Should Know About
// Floating-Point Arithmetic, theorem 4).
double log_one_plus(double x) {
  if (std::fabs(x) < 0x1p-6) {
    const double z = x * x;
    const double even = 1.0 / 2 + z * (1.0 / 4 + z * (1.0 / 6 + z * (1.0 / 8)));
    const double odd = 1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9)));
    return x - z * (even - x * odd);
  }
  const double w = 1 + x;
  return std::log(w) * (x / (w - 1));
}

// What rows say by their number of keys alone, which most share with the row before them.
struct KeyCount {
  double n = 1;  // visible keys, stand-ins left out
  double log_n = 0;
  double inverse = 1;
  double inverse_less = std::numeric_limits<double>::infinity();  // 1 / (n - 1)
  double root_less = 0;                                           // sqrt(n - 1)

  void become(double keys) {
    if (keys == n) return;
    n = keys;
    log_n = std::log(n);
    inverse = 1 / n;
    inverse_less = 1 / (n - 1);
    root_less = std::sqrt(n - 1);
  }
};

// What rows folded together share.
struct FoldState {
  KeyCount keys;
  double smallest = std::numeric_limits<double>::infinity();  // of the scores
  double largest = -std::numeric_limits<double>::infinity();
};

// What the softmax of one row says at every level.
struct RowSignals {
  const KeyCount& keys;
  double log_z;    // lse - max
  double inverse;  // 1 / Z = top-1
  double rest;     // 1 - top-1
};

RowSignals read_softmax(const RowTally& row, const KeyCount& keys) {
  const double inverse = 1 / (1 + row.rest);
  return {keys, log_one_plus(row.rest), inverse, row.rest * inverse};
}

// And from level core on.
struct RowShape {
  double squares;  // sum p^2
  double trace;    // 1 - sum p^2
  double entropy;
};

RowShape read_shape(const RowTally& row, const RowSignals& s) {
  const double rest_squares = row.rest_e2 * s.inverse * s.inverse;
  return {s.inverse * s.inverse + rest_squares,
          std::max(0.0, s.rest * (1 + s.inverse) - rest_squares),
          // Rounding may leave a uniform row a last digit above ln n.
          std::clamp(s.log_z - row.rest_t * s.inverse, 0.0, s.keys.log_n)};
}

// Variance from sums about a shift.
double shifted_variance(double s1, double s2, double inverse_n) {
  const double mean = s1 * inverse_n, variance = s2 * inverse_n - mean * mean;
  // Squares of a spread beyond the kernel's type are infinite, their difference NaN.
  if (!std::isfinite(variance)) return std::numeric_limits<double>::max();
  return std::max(0.0, variance);
}

void add_extremes(double min, double max, SpreadStats* spread) {
  spread->min = std::min(spread->min, min);
  spread->max = std::max(spread->max, max);
}

void add_moments(double shift, double s1, double s2, double inverse_n, double min, double max,
                 SpreadStats* spread) {
  double mean = shift + s1 * inverse_n;
  // A sum of scores may be beyond the kernel's type where each score is not.
  if (!std::isfinite(mean)) mean = min / 2 + max / 2;
  const double variance = shifted_variance(s1, s2, inverse_n);
  spread->sum_mean += mean;
  spread->sum_mean_squared += mean * mean;
  spread->sum_variance += variance;
  spread->sigma.add(std::sqrt(variance));
}

// Extremes of scores and logits. At level max a row knows its largest score, no smallest.
void add_row_extremes(const RowTally& row, const TaskFacts& facts, HeadStats* head,
                      FoldState* fold) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool has_moments = facts.level >= StatsLevel::core;
  if (facts.logits_differ)
    add_extremes(has_moments ? row.logit_min : kInfinity, row.max, &head->logits);
  if (has_moments) fold->smallest = std::min(fold->smallest, row.score_min);
  fold->largest =
      std::max(fold->largest, has_moments || facts.logits_differ ? row.score_max : row.max);
}

// Extremes of the dots, from those of the scores.
void add_dots(double smallest, double largest, double scale, HeadStats* head) {
  // Without a row there are none, and without a scale the dots left no trace in the scores.
  if (largest == -std::numeric_limits<double>::infinity() || scale == 0) return;
  const double from_smallest = smallest / scale, from_largest = largest / scale;
  head->max_dot = std::max(head->max_dot, scale < 0 ? from_smallest : from_largest);
  head->min_dot = std::min(head->min_dot, scale < 0 ? from_largest : from_smallest);
}

void add_shape(const RowSignals& s, const RowShape& shape, HeadStats* head) {
  const double ratio = shape.entropy / s.keys.log_n, kl = s.keys.log_n - shape.entropy;
  const double effective = 1 / shape.squares;
  head->sum_entropy += shape.entropy;
  head->sum_entropy_ratio += ratio;
  head->sum_kl += kl;
  head->sum_squares += shape.squares;
  head->sum_effective_keys += effective;
  head->sum_trace += shape.trace;
  head->entropy_ratio.add(ratio);
  head->kl.add(kl);
  head->trace.add(shape.trace);
  head->effective_keys.add(effective);
}

void add_jacobian(const RowTally& row, const RowSignals& s, bool logits_differ, HeadStats* head) {
  const double p1 = s.inverse, b = row.rest_e2 * p1 * p1, c3 = row.rest_e3 * p1 * p1 * p1;
  // |J|_F^2 = sum p^2 - 2 sum p^3 + (sum p^2)^2 with the arg-max's share gathered: nothing cancels
  // when p1 is close to 1.
  const double squared =
      std::max(0.0, p1 * p1 * s.rest * s.rest + 2 * p1 * p1 * b + b - 2 * c3 + b * b);
  const double frobenius = std::sqrt(squared), transmission = frobenius / s.keys.root_less;
  const double gain = transmission * s.keys.n;
  head->sum_frobenius += frobenius;
  head->sum_frobenius_squared += squared;
  head->sum_expected_transmission += transmission;
  head->sum_expected_transmission_squared += transmission * transmission;
  head->gain.add(gain);
  head->dead_rows += gain < kDeadGain;
  const double mean_t = row.rest_t * p1;
  head->sum_temperature_variance += std::max(0.0, row.rest_t2 * p1 - mean_t * mean_t);
  // E[w t] - E[w] E[t], the same for any shift of w.
  if (logits_differ) head->sum_scale_covariance += row.drive_t * p1 - row.drive * p1 * mean_t;
}

// The row as it would be without the k-th tracked key: shares renormalised, moments less that key.
void add_tracked(const RowTally& row, const RowSignals& s, const RowShape& shape,
                 const TaskFacts& facts, int k, TrackedKey* tracked) {
  const double logit = row.tracked_logit[k];
  const bool visible = logit > -std::numeric_limits<double>::infinity();
  const double log_p = logit - row.max - s.log_z;
  const double p = visible ? std::exp(log_p) : 0;
  tracked->sum_weight += p;

  const double score = row.tracked_score[k];
  const bool stand_in = row.tracked_bias[k] <= facts.stand_in_bias;
  const bool counted = visible && !stand_in;
  const double n = counted ? s.keys.n - 1 : s.keys.n;
  const bool is_argmax = row.argmax == facts.tracked[static_cast<std::size_t>(k)];
  if (n < 1 || (is_argmax && row.rest <= 0)) return;

  double top1, trace, entropy;
  if (p == 0) {
    top1 = s.inverse;
    trace = shape.trace;
    entropy = shape.entropy;
  } else {
    // 1 - p is the rest where p is the largest weight, at least 1/2 elsewhere: no digits lost.
    const double others = is_argmax ? s.rest : 1 - p;
    const double log_others = is_argmax ? std::log(s.rest) : log_one_plus(-p);
    const double inverse = 1 / others;
    top1 = is_argmax ? std::exp(row.second - row.max) / row.rest : s.inverse * inverse;
    trace = is_argmax ? 1 - row.rest_e2 / (row.rest * row.rest)
                      : (shape.trace - 2 * p * others) * inverse * inverse;
    // H = h_b(p) + (1 - p) H_rest with h_b(p) = -p ln p - (1 - p) ln(1 - p).
    entropy = (shape.entropy + p * log_p) * inverse + log_others;
  }
  ++tracked->rows_without;
  tracked->above_99_without += top1 > kOneHot;
  tracked->sum_entropy_without += std::max(0.0, entropy);
  tracked->trace_without.add(std::clamp(trace, 0.0, 1.0));
  const double off = counted ? score - row.score_shift : 0;
  tracked->sigma_without.add(
      std::sqrt(shifted_variance(row.score_s1 - off, row.score_s2 - off * off,
                                 counted ? s.keys.inverse_less : s.keys.inverse)));
}

// Returns true when the row is measured: n >= 2, finite logits.
bool fold_row(const RowTally& row, const TaskFacts& facts, FoldState* fold, HeadStats* head) {
  ++head->rows;
  if (row.bad > 0) {
    ++head->nonfinite_rows;
    const std::int64_t index = facts.batch * facts.q_len + row.row;
    if (head->first_nonfinite_row < 0 || index < head->first_nonfinite_row)
      head->first_nonfinite_row = index;
    return false;
  }
  head->stand_ins += static_cast<std::int64_t>(row.stand_ins);
  const double n = row.visible - row.stand_ins;
  if (n < 1) {
    ++head->empty_rows;
    return false;
  }
  fold->keys.become(n);
  const RowSignals s = read_softmax(row, fold->keys);
  const double lse = row.max + s.log_z;
  add_row_extremes(row, facts, head, fold);
  head->lse_min = std::min(head->lse_min, lse);
  head->lse_max = std::max(head->lse_max, lse);
  if (facts.sink > -std::numeric_limits<double>::infinity())
    head->sum_sink_weight += 1 / (1 + std::exp(lse - facts.sink));
  if (n < 2) {
    ++head->single_rows;
    return false;
  }

  ++head->measured_rows;
  head->visible_keys += n;
  head->sum_log_keys += s.keys.log_n;
  head->sum_lse += lse;
  head->sum_top1 += s.inverse;
  head->top1.add(s.inverse);
  head->rest.add(s.rest);
  head->rows_above_99 += s.inverse > kOneHot;
  head->near_tie_rows += row.max - row.second <= facts.near_tie_gap;
  if (facts.level < StatsLevel::core) return true;
  const double inverse_n = s.keys.inverse;
  add_moments(row.score_shift, row.score_s1, row.score_s2, inverse_n, row.score_min, row.score_max,
              &head->scores);
  if (facts.logits_differ)
    add_moments(row.logit_shift, row.logit_s1, row.logit_s2, inverse_n, row.logit_min,
                row.logit_max, &head->logits);
  const RowShape shape = read_shape(row, s);
  add_shape(s, shape, head);
  if (facts.level < StatsLevel::full) return true;
  add_jacobian(row, s, facts.logits_differ, head);
  for (int k = 0; k < kTrackedKeys; ++k)
    add_tracked(row, s, shape, facts, k, &head->tracked[static_cast<std::size_t>(k)]);
  return true;
}

// Adds one count per place. Rows look at neighbouring places more often than not, so all are
// counted in an array that spans old and new ones rather than sorted and merged.
void count_places(const std::vector<std::int64_t>& places, PlaceCounts* counts) {
  if (places.empty()) return;
  auto [low, high] = std::minmax_element(places.begin(), places.end());
  std::int64_t first = *low, last = *high;
  if (!counts->empty()) {
    first = std::min(first, counts->begin()->first);
    last = std::max(last, std::prev(counts->end())->first);
  }
  // Unsigned, since two offsets can be further apart than int64 holds.
  const std::size_t range = static_cast<std::size_t>(last) - static_cast<std::size_t>(first) + 1;
  std::vector<PlaceCounts::Entry> entries;
  if (range == 0 || range > 8 * (places.size() + counts->size())) {
    entries.reserve(places.size());
    for (std::int64_t place : places) entries.emplace_back(place, 1);
    return counts->merge(PlaceCounts(std::move(entries)));
  }
  std::vector<std::int64_t> dense(range);
  for (const auto& [place, rows] : *counts) dense[static_cast<std::size_t>(place - first)] = rows;
  for (std::int64_t place : places) ++dense[static_cast<std::size_t>(place - first)];
  // Every entry is written and only those with rows are kept: nothing to guess for the processor.
  entries.resize(std::min(range, places.size() + counts->size()) + 1);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < range; ++i) {
    entries[kept] = {first + static_cast<std::int64_t>(i), dense[i]};
    kept += dense[i] != 0;
  }
  entries.resize(kept);
  *counts = PlaceCounts(std::move(entries));
}

}  // namespace

HeadStats start_head(const StatsRequest& request, double scale) {
  HeadStats head;
  head.scale = scale;
  head.histogram.low = request.histogram_low;
  head.histogram.width = request.histogram_width;
  return head;
}

void fold_rows(const RowTally* rows, std::int64_t count, std::int64_t which, const TaskFacts& facts,
               HeadStats* head) {
  if (facts.level == StatsLevel::off) return;
  FoldState fold;
  std::vector<std::int64_t> columns, offsets;
  if (facts.level == StatsLevel::full) {
    columns.reserve(static_cast<std::size_t>(count));
    offsets.reserve(static_cast<std::size_t>(count));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[i].head != which) continue;
    if (!fold_row(rows[i], facts, &fold, head) || facts.level < StatsLevel::full) continue;
    columns.push_back(rows[i].argmax);
    offsets.push_back(offset_from_diagonal(rows[i].argmax, rows[i].row, facts.diagonal));
  }
  add_extremes(fold.smallest, fold.largest, &head->scores);
  add_dots(fold.smallest, fold.largest, facts.scale, head);
  count_places(columns, &head->argmax_column);
  count_places(offsets, &head->argmax_offset);
}

void fold_gradients(const RowGradient* rows, std::int64_t count, GradientStats* gradient) {
  for (std::int64_t i = 0; i < count; ++i) {
    const RowGradient& row = rows[i];
    gradient->dq_squares += row.dq_squares;
    if (!std::isfinite(row.sent_squares) || !std::isfinite(row.arrived_squares)) {
      ++gradient->nonfinite_rows;
      continue;
    }
    if (row.keys < 2) continue;
    if (row.sent_squares == 0) {
      ++gradient->silent_rows;
      continue;
    }
    const double squared = row.arrived_squares / row.sent_squares;
    const double transmission = std::sqrt(squared), gain = row.keys * transmission;
    ++gradient->measured_rows;
    gradient->sent_squares += row.sent_squares;
    gradient->arrived_squares += row.arrived_squares;
    gradient->sum_transmission_squared += squared;
    gradient->row_transmission.add(transmission);
    gradient->row_gain.add(gain);
    gradient->dead_rows += gain < kDeadGain;
  }
}

void fold_histogram(const std::int64_t* counts, HeadStats* head) {
  head->histogram.below += counts[0];
  for (std::size_t i = 0; i < head->histogram.counts.size(); ++i)
    head->histogram.counts[i] += counts[1 + i];
  head->histogram.above += counts[1 + kHistogramBins];
}

}  // namespace poise
