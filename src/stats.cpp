// Merging of statistics: what one call measured joins what others measured.
//
// In: two Stats of the same heads, measured the same way. Out: the first, as if it had seen the
// rows of both: counts, sums and bins add, extremes are taken. What does not belong together is
// refused. Not here: how a row becomes numbers (tally.cpp), what the numbers mean (health.cpp).
#include <poise/stats.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "wording.h"

namespace poise {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool before(const PlaceCounts::Entry& entry, std::int64_t place) { return entry.first < place; }

// The smaller of two row indices of which -1 means none.
std::int64_t earlier_row(std::int64_t a, std::int64_t b) {
  if (a < 0) return b;
  return b < 0 ? a : std::min(a, b);
}

Error differ(ErrorCode code, const std::string& what, const std::string& theirs,
             const std::string& ours) {
  return {code, "[merge] other: " + what + " " + theirs + " differs from " + ours};
}

Error check_shape(const Stats& ours, const Stats& theirs) {
  const struct {
    const char* what;
    std::int64_t their, our;
  } sizes[] = {
      {"number of heads", static_cast<std::int64_t>(theirs.heads.size()),
       static_cast<std::int64_t>(ours.heads.size())},
      {"kv_heads", theirs.kv_heads, ours.kv_heads},
      {"head_dim", theirs.head_dim, ours.head_dim},
  };
  for (const auto& size : sizes)
    if (size.their != size.our)
      return differ(ErrorCode::bad_shape, size.what, std::to_string(size.their),
                    std::to_string(size.our));
  return {};
}

struct Number {
  std::string what;
  double their, our;
};

Error check_numbers(std::initializer_list<Number> numbers) {
  for (const Number& n : numbers)
    if (n.their != n.our)
      return differ(ErrorCode::bad_value, n.what, number(n.their), number(n.our));
  return {};
}

// Everything that gives a number another meaning.
Error check_meaning(const Stats& ours, const Stats& theirs) {
  const StatsRequest &our = ours.request, &their = theirs.request;
  if (our.level != their.level)
    return differ(ErrorCode::bad_value, "level", name(their.level), name(our.level));
  if (Error error = check_numbers({
          {"histogram_low", their.histogram_low, our.histogram_low},
          {"histogram_width", their.histogram_width, our.histogram_width},
          {"stand_in_bias", their.stand_in_bias, our.stand_in_bias},
          {"near_tie_gap", their.near_tie_gap, our.near_tie_gap},
          {"softcap", theirs.softcap, ours.softcap},
          {"logits that differ from the scores", theirs.logits_differ() ? 1.0 : 0.0,
           ours.logits_differ() ? 1.0 : 0.0},
      }))
    return error;
  for (std::size_t k = 0; k < our.tracked.size(); ++k)
    if (our.tracked[k] != their.tracked[k])
      return differ(ErrorCode::bad_value, "tracked key", std::to_string(their.tracked[k]),
                    std::to_string(our.tracked[k]));
  for (std::size_t h = 0; h < ours.heads.size(); ++h) {
    const HeadStats &our_head = ours.heads[h], &their_head = theirs.heads[h];
    const std::string head = "head " + std::to_string(h) + ": ";
    if (Error error = check_numbers({
            {head + "scale", their_head.scale, our_head.scale},
            {head + "column", static_cast<double>(their_head.column.key),
             static_cast<double>(our_head.column.key)},
            {head + "histogram_low", their_head.histogram.low, our_head.histogram.low},
            {head + "histogram_width", their_head.histogram.width, our_head.histogram.width},
        }))
      return error;
  }
  return {};
}

// Moments of scalar elements, to be averaged about zero and centred again.
struct ElementMoments {
  double& mean;
  double& variance;
  double& skewness;
  double& excess_kurtosis;
};
struct RawMoments {
  double m1, m2, m3, m4;
};

// Central moments of elements about another origin.
RawMoments about(double origin, const ElementMoments& e) {
  const double d = e.mean - origin, v = e.variance, m3 = e.skewness * v * std::sqrt(v),
               m4 = (e.excess_kurtosis + 3) * v * v;
  return {d, v + d * d, m3 + 3 * d * v + d * d * d,
          m4 + 4 * d * m3 + 6 * d * d * v + d * d * d * d};
}

// whole <- the moments of share_whole parts of `whole` and share_part parts of `part`.
void merge_elements(ElementMoments whole, const ElementMoments& part, double share_whole,
                    double share_part) {
  const double mean = share_whole * whole.mean + share_part * part.mean;
  const RawMoments a = about(mean, whole), b = about(mean, part);
  const double variance = share_whole * a.m2 + share_part * b.m2;
  const double m3 = share_whole * a.m3 + share_part * b.m3;
  const double m4 = share_whole * a.m4 + share_part * b.m4;
  whole.mean = mean;
  whole.variance = variance;
  whole.skewness = variance > 0 ? m3 / (variance * std::sqrt(variance)) : 0;
  whole.excess_kurtosis = variance > 0 ? m4 / (variance * variance) - 3 : 0;
}

}  // namespace

const char* name(StatsLevel level) {
  switch (level) {
    case StatsLevel::off:
      return "off";
    case StatsLevel::max:
      return "max";
    case StatsLevel::core:
      return "core";
    case StatsLevel::full:
      return "full";
  }
  return "?";
}

PlaceCounts::PlaceCounts(std::vector<Entry> entries) : entries_(std::move(entries)) {
  if (!std::is_sorted(entries_.begin(), entries_.end()))
    std::sort(entries_.begin(), entries_.end());
  std::size_t kept = 0;
  for (const Entry& entry : entries_) {
    if (kept > 0 && entries_[kept - 1].first == entry.first)
      entries_[kept - 1].second += entry.second;
    else
      entries_[kept++] = entry;
  }
  entries_.resize(kept);
}

std::int64_t& PlaceCounts::operator[](std::int64_t place) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), place, before);
  if (at == entries_.end() || at->first != place) at = entries_.insert(at, {place, 0});
  return at->second;
}

std::int64_t PlaceCounts::at(std::int64_t place) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), place, before);
  return at == entries_.end() || at->first != place ? 0 : at->second;
}

void PlaceCounts::merge(const PlaceCounts& other) {
  std::size_t fresh = 0;
  auto ours = entries_.cbegin();
  for (const Entry& theirs : other.entries_) {
    while (ours != entries_.cend() && ours->first < theirs.first) ++ours;
    fresh += ours == entries_.cend() || ours->first != theirs.first;
  }
  // From the back, where there is room.
  std::size_t from = entries_.size(), to = from + fresh;
  entries_.resize(to);
  for (auto theirs = other.entries_.crbegin(); theirs != other.entries_.crend(); ++theirs) {
    while (from > 0 && entries_[from - 1].first > theirs->first) entries_[--to] = entries_[--from];
    if (from > 0 && entries_[from - 1].first == theirs->first) {
      entries_[--to] = entries_[--from];
      entries_[to].second += theirs->second;
    } else {
      entries_[--to] = *theirs;
    }
  }
}

double SpreadStats::max_abs() const {
  // At level max no minimum is kept and min is still +inf.
  return min > max ? std::fabs(max) * (std::isinf(max) ? -1 : 1)
                   : std::max(std::fabs(max), std::fabs(min));
}

void SpreadStats::merge(const SpreadStats& other) {
  max = std::max(max, other.max);
  min = std::min(min, other.min);
  sum_mean += other.sum_mean;
  sum_variance += other.sum_variance;
  sum_mean_squared += other.sum_mean_squared;
  sigma.merge(other.sigma);
}

void TrackedKey::merge(const TrackedKey& other) {
  sum_weight += other.sum_weight;
  rows_without += other.rows_without;
  above_99_without += other.above_99_without;
  sum_entropy_without += other.sum_entropy_without;
  trace_without.merge(other.trace_without);
  sigma_without.merge(other.sigma_without);
}

void InputMoments::merge(const InputMoments& other) {
  if (other.q_rows == 0) return;
  if (q_rows == 0) {
    *this = other;
    return;
  }
  InputMoments part = other;
  const auto share = [](std::int64_t ours, std::int64_t theirs) {
    return static_cast<double>(theirs) / static_cast<double>(ours + theirs);
  };
  const double q_part = share(q_rows, part.q_rows), k_part = share(k_rows, part.k_rows);
  merge_elements({q_mean, q_variance, q_skewness, q_excess_kurtosis},
                 {part.q_mean, part.q_variance, part.q_skewness, part.q_excess_kurtosis},
                 1 - q_part, q_part);
  merge_elements({k_mean, k_variance, k_skewness, k_excess_kurtosis},
                 {part.k_mean, part.k_variance, part.k_skewness, part.k_excess_kurtosis},
                 1 - k_part, k_part);
  // Within-row variance is a mean over query rows, so its three factors are weighted by them.
  const auto mix = [&](double ours, double theirs) {
    return (1 - q_part) * ours + q_part * theirs;
  };
  const double product = mix(q_second_moment * k_variance_centred * alignment,
                             part.q_second_moment * part.k_variance_centred * part.alignment);
  q_second_moment = mix(q_second_moment, part.q_second_moment);
  k_variance_centred = mix(k_variance_centred, part.k_variance_centred);
  const double isotropic = q_second_moment * k_variance_centred;
  alignment = isotropic != 0 ? product / isotropic : 1;
  qk_mean = mix(qk_mean, part.qk_mean);
  q_max_abs_mean = mix(q_max_abs_mean, part.q_max_abs_mean);
  k_max_abs_mean = mix(k_max_abs_mean, part.k_max_abs_mean);
  mean_adjacent_correlation = mix(mean_adjacent_correlation, part.mean_adjacent_correlation);
  q_rows += part.q_rows;
  k_rows += part.k_rows;
  batches += part.batches;
}

double GradientStats::transmission() const {
  return sent_squares > 0 ? std::sqrt(arrived_squares / sent_squares) : kNaN;
}

double GradientStats::rms_transmission() const {
  return measured_rows > 0
             ? std::sqrt(sum_transmission_squared / static_cast<double>(measured_rows))
             : kNaN;
}

double GradientStats::dq_norm() const { return std::sqrt(dq_squares); }
double GradientStats::dk_norm() const { return std::sqrt(dk_squares); }
double GradientStats::dv_norm() const { return std::sqrt(dv_squares); }

void GradientStats::merge(const GradientStats& other) {
  measured_rows += other.measured_rows;
  silent_rows += other.silent_rows;
  nonfinite_rows += other.nonfinite_rows;
  sent_squares += other.sent_squares;
  arrived_squares += other.arrived_squares;
  sum_transmission_squared += other.sum_transmission_squared;
  row_transmission.merge(other.row_transmission);
  row_gain.merge(other.row_gain);
  dead_rows += other.dead_rows;
  dq_squares += other.dq_squares;
  dk_squares += other.dk_squares;
  dv_squares += other.dv_squares;
}

double HeadStats::expected_transmission() const {
  return sum_expected_transmission_squared > 0 && measured_rows > 0
             ? std::sqrt(sum_expected_transmission_squared / static_cast<double>(measured_rows))
             : kNaN;
}

double Stats::entropy_slope(const HeadStats& head) const {
  const auto rows = static_cast<double>(head.measured_rows);
  if (head.gain.count() == 0) return kNaN;  // below level full, or no row
  if (!logits_differ()) return -head.sum_temperature_variance / rows;
  return head.sum_scale_covariance != 0 ? -head.sum_scale_covariance / rows : kNaN;
}

void HeadStats::merge(const HeadStats& other) {
  rows += other.rows;
  empty_rows += other.empty_rows;
  single_rows += other.single_rows;
  nonfinite_rows += other.nonfinite_rows;
  first_nonfinite_row = earlier_row(first_nonfinite_row, other.first_nonfinite_row);
  stand_ins += other.stand_ins;
  measured_rows += other.measured_rows;
  visible_keys += other.visible_keys;
  sum_log_keys += other.sum_log_keys;
  scores.merge(other.scores);
  logits.merge(other.logits);
  max_dot = std::max(max_dot, other.max_dot);
  min_dot = std::min(min_dot, other.min_dot);
  lse_min = std::min(lse_min, other.lse_min);
  lse_max = std::max(lse_max, other.lse_max);
  sum_lse += other.sum_lse;
  sum_sink_weight += other.sum_sink_weight;
  sum_entropy += other.sum_entropy;
  sum_entropy_ratio += other.sum_entropy_ratio;
  sum_kl += other.sum_kl;
  sum_top1 += other.sum_top1;
  sum_squares += other.sum_squares;
  sum_effective_keys += other.sum_effective_keys;
  sum_trace += other.sum_trace;
  sum_frobenius += other.sum_frobenius;
  sum_frobenius_squared += other.sum_frobenius_squared;
  sum_expected_transmission += other.sum_expected_transmission;
  sum_expected_transmission_squared += other.sum_expected_transmission_squared;
  sum_temperature_variance += other.sum_temperature_variance;
  sum_scale_covariance += other.sum_scale_covariance;
  rows_above_99 += other.rows_above_99;
  near_tie_rows += other.near_tie_rows;
  dead_rows += other.dead_rows;
  entropy_ratio.merge(other.entropy_ratio);
  kl.merge(other.kl);
  top1.merge(other.top1);
  rest.merge(other.rest);
  trace.merge(other.trace);
  gain.merge(other.gain);
  effective_keys.merge(other.effective_keys);
  for (std::size_t i = 0; i < histogram.counts.size(); ++i)
    histogram.counts[i] += other.histogram.counts[i];
  histogram.below += other.histogram.below;
  histogram.above += other.histogram.above;
  for (std::size_t k = 0; k < tracked.size(); ++k) tracked[k].merge(other.tracked[k]);
  column.tracked.merge(other.column.tracked);
  argmax_column.merge(other.argmax_column);
  argmax_offset.merge(other.argmax_offset);
  inputs.merge(other.inputs);
  gradient.merge(other.gradient);
}

Error Stats::merge(const Stats& other) {
  if (other.heads.empty()) return {};
  if (heads.empty()) {
    *this = other;
    return {};
  }
  if (Error error = check_shape(*this, other)) return error;
  if (Error error = check_meaning(*this, other)) return error;
  has_softcap = has_softcap || other.has_softcap;
  has_bias = has_bias || other.has_bias;
  has_alibi = has_alibi || other.has_alibi;
  has_mask = has_mask || other.has_mask;
  for (std::size_t h = 0; h < heads.size(); ++h) heads[h].merge(other.heads[h]);
  return {};
}

}  // namespace poise
