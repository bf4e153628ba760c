// What attention measures of its own scores: per head, inside the same pass, without the Lq x Lk
// matrix. Every quantity with its formula and unit; all logs natural.
//
// Notation for one row: s = logit of a visible key, n = visible keys, m = max s, t = s - m <= 0,
// p = softmax(s) over the keys (a sink takes no part), Z = sum of exp(t), J = diag(p) - p p^T the
// softmax Jacobian. "scores" are scale * dots, before softcap, ALiBi and bias.
// Of the gradient, dP = dout value^T is what a row's weights are sent and dS = J dP what of it
// arrives at the logits. Rows with n < 2 enter counts, maxima, lse and histogram only. Stats merge
// exactly: over calls, threads, ranks, steps; the bits of one call's Stats do not depend on its
// thread count.
#pragma once

#include <poise/error.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

namespace poise {

// How much is measured; each level includes the one before. off costs nothing.
//   max   counts, largest and second-largest logit, lse, top-1
//   core  + smallest score, within-row mean and variance, entropy, sum p^2, Jacobian trace
//   full  + Jacobian Frobenius norm, temperature sensitivity, arg-max index, tracked keys,
//   histogram
enum class StatsLevel : std::uint8_t { off, max, core, full };
const char* name(StatsLevel level);  // "off", "max", "core", "full"; "?" for no level

// Keys of which a call measures the weight, and each row without them.
inline constexpr int kTrackedKeys = 4;
inline constexpr int kHistogramBins = 64;
inline constexpr double kOneHot = 0.99;   // a row whose top-1 exceeds this sits on one key
inline constexpr double kDeadGain = 0.1;  // a row whose gain is below this passes no gradient

struct StatsRequest {
  StatsLevel level = StatsLevel::core;
  // Measure every n-th lane vector of query rows (a vector is 16 rows with avx512 f32, 8 with avx2
  // f32, 4 with neon f32, half for f64; 1 with scalar): the cost divides by n. 1 = every row.
  // Range 1 ... 2^20.
  int every = 1;
  // Histogram of scores: kHistogramBins bins of histogram_width from histogram_low; finite, > 0.
  double histogram_low = -8;
  double histogram_width = 0.25;
  // A finite bias at or below this is a stand-in for -inf: such keys are left out of n, min, mean
  // and variance, and counted; a row of only such keys counts as empty.
  double stand_in_bias = -9e3;
  // Keys closer than this to the row maximum make a near tie.
  double near_tie_gap = 1e-3;
  // Level full measures the weight of these keys, and each row without them. Sinks live in the
  // first few; Stats::untracked_columns() names others. Each >= 0; one that a call does not have
  // weighs 0.
  std::array<std::int64_t, kTrackedKeys> tracked{0, 1, 2, 3};
};

// Counts of non-negative values in bins of 1/32 of an octave: [1, 1 + 1/32), [1 + 1/32, 1 + 2/32),
// ... times powers of two, so a bin's index is read off the bits of the double. Quantiles lie
// within 1.6 % of the value; merged by adding counts, in any order, to the same sketch.
class Sketch {
 public:
  // value: >= 0 and finite; anything at or below 2^-80 counts as zero, at or above 2^40 as 2^40.
  // Cost: a few ns; allocates only when the value widens the range seen so far.
  void add(double value, std::int64_t times = 1) {
    count_ += times;
    if (!(value > kSmallest)) {
      zeros_ += times;
      return;
    }
    const int index = bin_of(value < kLargest ? value : kLargest);
    const auto place = static_cast<std::size_t>(index - first_bin_);
    if (index >= first_bin_ && place < bins_.size())
      bins_[place] += times;
    else
      widen(index) += times;
  }
  void merge(const Sketch& other);
  std::int64_t count() const { return count_; }
  // The q-quantile, 0 <= q <= 1 (nearest rank; geometric middle of its bin, exact 0 for zeros);
  // NaN when empty.
  double quantile(double q) const;
  // The share of values at or above `bound`, exact when bound is a bin border (see border()),
  // otherwise of the bins that begin at or above it; NaN when empty.
  double share_above(double bound) const;

  // The raw bins, for storage: counts of bins first_bin(), first_bin() + 1, ...; zeros apart. The
  // first and last are never 0. Bin i holds border(i) <= value < border(i + 1).
  std::int64_t zeros() const { return zeros_; }
  int first_bin() const { return first_bin_; }
  const std::vector<std::int64_t>& bins() const { return bins_; }
  static double border(int bin) {
    return std::bit_cast<double>((std::int64_t{bin} + kBinOfOne) << kDroppedBits);
  }
  // Rebuilds a sketch from raw bins. Counts below 0 and bins outside [2^-80, 2^40] are refused with
  // an empty sketch.
  static Sketch from_bins(std::int64_t zeros, int first_bin, std::vector<std::int64_t> bins);

  bool operator==(const Sketch&) const = default;

 private:
  static constexpr double kSmallest = 0x1p-80, kLargest = 0x1p40;
  static constexpr int kDroppedBits = 52 - 5;           // keeps 5 mantissa bits: 32 bins an octave
  static constexpr std::int64_t kBinOfOne = 1023 * 32;  // exponent bias of a double, in bins
  static int bin_of(double value) {
    return static_cast<int>((std::bit_cast<std::int64_t>(value) >> kDroppedBits) - kBinOfOne);
  }
  std::int64_t& widen(int index);

  std::int64_t count_ = 0, zeros_ = 0;
  int first_bin_ = 0;
  std::vector<std::int64_t> bins_;
};

// How many rows chose each of some places (key indices, offsets), ascending by place. A sorted
// array: merging many places at once is what happens for every few hundred rows of every call.
class PlaceCounts {
 public:
  using Entry = std::pair<std::int64_t, std::int64_t>;  // place, rows
  PlaceCounts() = default;
  PlaceCounts(std::initializer_list<Entry> entries) : PlaceCounts(std::vector<Entry>(entries)) {}
  // In any order; rows of the same place add up. Cost: n log n, n when they ascend already.
  explicit PlaceCounts(std::vector<Entry> entries);
  // The rows of a place, which joins with none when it is new. Cost: linear in the places then.
  std::int64_t& operator[](std::int64_t place);
  // The rows of a place, 0 where it is not among them.
  std::int64_t at(std::int64_t place) const;
  void merge(const PlaceCounts& other);  // cost: linear in the places of both
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  bool operator==(const PlaceCounts&) const = default;

 private:
  std::vector<Entry> entries_;  // no place twice
};

struct Histogram {
  double low = -8, width = 0.25;
  std::array<std::int64_t, kHistogramBins> counts{};
  std::int64_t below = 0, above = 0;  // outliers, counted and not binned

  bool operator==(const Histogram&) const = default;
};

// Mean, variance and extremes of one kind of score over keys, row by row.
struct SpreadStats {
  double max = -std::numeric_limits<double>::infinity();  // signed, over all rows
  double min = std::numeric_limits<double>::infinity();
  double sum_mean = 0;          // sum over rows of the row mean
  double sum_variance = 0;      // sum over rows of the within-row variance S2/n - (S1/n)^2
  double sum_mean_squared = 0;  // sum over rows of the squared row mean: between-row variance
  Sketch sigma;                 // within-row standard deviation

  double max_abs() const;  // max(|max|, |min|); |max| at level max; -inf when nothing was seen
  void merge(const SpreadStats& other);
  bool operator==(const SpreadStats&) const = default;
};

// One fixed key (StatsRequest::tracked) and the row without it. Level full.
struct TrackedKey {
  double sum_weight = 0;              // sum over measured rows of the key's weight (0 where masked)
  std::int64_t rows_without = 0;      // measured rows with another key left, and some weight on it
  std::int64_t above_99_without = 0;  // of these, rows whose largest remaining weight is > .99
  double sum_entropy_without = 0;     // nats; sum over rows of H_rest = (H - h_b(p))/(1 - p)
  Sketch trace_without;               // tr J of the remaining keys, renormalised
  Sketch sigma_without;               // within-row standard deviation of the remaining scores

  void merge(const TrackedKey& other);
  bool operator==(const TrackedKey&) const = default;
};

// One more key of a head, which another run of the same call tracked (Stats::adopt_columns).
struct SinkColumn {
  std::int64_t key = -1;  // -1 = none
  TrackedKey tracked;

  bool operator==(const SinkColumn&) const = default;
};

// Moments of the elements and vectors of q and k of one head: what the theory of the spread needs
// (health.h, Expectation). Filled by measure_inputs() (theory.h). Each batch is measured against
// its own keys; batches and calls merge weighted by their rows.
struct InputMoments {
  std::int64_t q_rows = 0, k_rows = 0;                                       // 0 = not measured
  std::int64_t batches = 0;                                                  // how many were merged
  double q_mean = 0, q_variance = 0, q_skewness = 0, q_excess_kurtosis = 0;  // over all elements
  double k_mean = 0, k_variance = 0, k_skewness = 0, k_excess_kurtosis = 0;
  double q_second_moment = 0;     // tr(Mq)/D with Mq = E[q q^T]: mean square of an element of q
  double k_variance_centred = 0;  // tr(Sigma_k)/D: variance of k about its mean vector
  double alignment = 1;  // D tr(Mq Sigma_k) / (tr Mq tr Sigma_k): 1 isotropic, D one direction
  double qk_mean = 0;    // mean of q . k over all pairs: mu_q . mu_k
  double q_max_abs_mean = 0, k_max_abs_mean = 0;  // largest |component| of the mean vectors, mean
                                                  // over batches
  double mean_adjacent_correlation = 0;  // mean |correlation| of neighbouring components of q and k

  void merge(const InputMoments& other);
  bool operator==(const InputMoments&) const = default;
};

// What backward() measures of one head beside the gradients: how much of what is sent to the
// weights arrives at the logits. J 1 = 0, so the mean of dP never counts. The softmax is that over
// the keys: neither a sink nor dlse takes part, stand-ins for -inf (StatsRequest) are left out of
// n, sent and arrived. Rows are sampled as in forward; the norms are of every row. Measured at any
// level but off; the default is "nothing measured".
struct GradientStats {
  // Query rows with n >= 2. The three do not overlap.
  std::int64_t measured_rows = 0;
  std::int64_t silent_rows = 0;  // dP is the same for every key, mostly 0: nothing to pass on
  // NaN or infinity among logits or dP, any n; squares of dP may be infinite from values of 1e9 on
  // (f64 1e60). Left out of everything below but the norms.
  std::int64_t nonfinite_rows = 0;

  // Over measured rows, in units of the loss squared.
  double sent_squares = 0;     // sum of |dP - mean dP|^2
  double arrived_squares = 0;  // sum of |dS|^2

  // Of a row, transmission = |dS| / |dP - mean dP| and gain = n transmission: 1/n and 1 for a
  // uniform row, whatever dP is.
  double sum_transmission_squared = 0;
  Sketch row_transmission, row_gain;
  std::int64_t dead_rows = 0;  // gain < kDeadGain

  // Sums of squares over every row of the gradients of the loss; 0 where backward was not asked for
  // the tensor. dk and dv are those of the key head that this head reads, so the heads of a group
  // hold the same number: sum over one head of each group for a total.
  double dq_squares = 0, dk_squares = 0, dv_squares = 0;

  bool measured() const { return measured_rows + silent_rows + nonfinite_rows > 0; }
  // Root of arrived over sent: rows count by what they were sent. NaN when nothing was sent.
  double transmission() const;
  // Root mean square of the rows' transmission, every measured row counting alike; NaN without one.
  // Its expectation over independent dP is HeadStats::expected_transmission().
  double rms_transmission() const;
  double dq_norm() const;  // |dq|, Euclidean, over batch, rows and head_dim
  double dk_norm() const;
  double dv_norm() const;

  void merge(const GradientStats& other);
  bool operator==(const GradientStats&) const = default;
};

struct HeadStats {
  double scale = 0;  // the scale this head ran with

  // Counts of query rows. rows = all rows measured, of which the others are parts.
  std::int64_t rows = 0;
  std::int64_t empty_rows = 0;   // no visible key (or only stand-ins for -inf)
  std::int64_t single_rows = 0;  // exactly one visible key
  // A NaN or +inf logit, or an infinite score that a softcap hides; left out of everything below.
  std::int64_t nonfinite_rows = 0;
  std::int64_t first_nonfinite_row = -1;  // smallest batch * Lq + query, -1 = none
  std::int64_t stand_ins = 0;             // keys with a finite stand-in for -inf
  std::int64_t measured_rows = 0;         // n >= 2, all of it finite: the count behind the sums
  double visible_keys = 0;                // sum of n over measured rows (exact below 2^53)
  double sum_log_keys = 0;                // sum of ln n over measured rows

  SpreadStats scores;  // of scale * dots
  SpreadStats logits;  // after softcap, ALiBi and bias; filled only when Stats::logits_differ
  double max_dot = -std::numeric_limits<double>::infinity();  // largest and smallest q . k of
  double min_dot = std::numeric_limits<double>::infinity();   // visible keys: scores / scale

  double lse_min = std::numeric_limits<double>::infinity();  // of the keys, without the sink
  double lse_max = -std::numeric_limits<double>::infinity();
  double sum_lse = 0;  // nats, over measured rows
  double sum_sink_weight =
      0;  // share of the sink in the denominator, over measured and single rows

  // Sums over measured rows; divide by measured_rows for means.
  double sum_entropy = 0;         // H = log1p(u) - A/Z, nats
  double sum_entropy_ratio = 0;   // H / ln n
  double sum_kl = 0;              // ln n - H, nats from uniform
  double sum_top1 = 0;            // largest weight
  double sum_squares = 0;         // sum of p^2
  double sum_effective_keys = 0;  // 1 / sum p^2
  double sum_trace = 0;           // tr J = 1 - sum p^2
  double sum_frobenius = 0;       // |J|_F (full)
  double sum_frobenius_squared = 0;
  // Over independent dP, E |J dP|^2 / |dP - mean dP|^2 = |J|_F^2 / (n - 1) exactly; the mean of the
  // ratio itself is lower than the root, so compare root mean squares. Files written before the
  // second sum existed hold 0 there: unknown.
  double sum_expected_transmission = 0;          // |J|_F / sqrt(n - 1) (full)
  double sum_expected_transmission_squared = 0;  // |J|_F^2 / (n - 1) (full)
  // Var_p(s) (full): dH/d ln beta = -this when every logit is multiplied by beta.
  double sum_temperature_variance = 0;
  // Cov_p(w, s) (full, only where Stats::logits_differ()), w = d s/d ln scale: the score, with a
  // softcap times 1 - tanh^2(score/softcap). dH/d ln scale = -this, of either sign; where logits
  // are the scores it is Var_p(s). Files written before this sum existed hold 0 there: unknown.
  double sum_scale_covariance = 0;
  std::int64_t rows_above_99 = 0;  // top-1 > kOneHot
  std::int64_t near_tie_rows = 0;  // m - second <= near_tie_gap
  std::int64_t dead_rows = 0;      // gain < kDeadGain (full)

  Sketch entropy_ratio, kl, top1, rest, trace, gain,
      effective_keys;   // rest = 1 - top1;
                        // gain = |J|_F n / sqrt(n - 1) (full)
  Histogram histogram;  // of finite scores, of every row with keys (full)
  std::array<TrackedKey, kTrackedKeys> tracked{};  // full; of the keys StatsRequest::tracked
  SinkColumn column;                               // full
  PlaceCounts argmax_column;                       // key index -> rows (full)
  PlaceCounts argmax_offset;                       // key - (query + diagonal) -> rows (full)

  InputMoments inputs;
  GradientStats gradient;  // written by backward()

  // sqrt(mean of |J|_F^2 / (n - 1)) over measured rows: what GradientStats::rms_transmission() is
  // for independent dP. NaN when unknown: below level full, or without measured rows.
  double expected_transmission() const;

  void merge(const HeadStats& other);  // Stats::merge checks first that the two belong together
  bool operator==(const HeadStats&) const = default;
};

// The statistics of one call, or of many merged. heads has Hq entries: forward's, and in each
// HeadStats::gradient what the backward call of the same inputs added.
struct Stats {
  StatsRequest request;  // the caller's wish; everything below is written by the call

  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;
  bool has_softcap = false, has_bias = false, has_alibi = false, has_mask = false;
  double softcap = 0;
  bool logits_differ() const { return has_softcap || has_bias || has_alibi; }
  std::vector<HeadStats> heads;

  // Mean over measured rows of dH/d ln scale, nats, of a head of this call: what a small change of
  // its temperature does to its entropy. NaN when unknown: below level full, or without measured
  // rows.
  double entropy_slope(const HeadStats& head) const;

  // Columns (key indices) that more than a fifth of some head's measured rows have their largest
  // weight on and that the head has not measured: at most one for each head, its most frequent,
  // each named once, those with most rows first. Track them in another run of the same call,
  // kTrackedKeys at a time, and adopt_columns(): a sink need not lie in the first keys. Empty below
  // level full.
  std::vector<std::int64_t> untracked_columns() const;
  // Takes over, for each head whose column that is, what `other` tracked of it. `other`: the same
  // call, with other keys tracked. Errors: bad_shape, bad_value (not of the same rows); nothing
  // changes then.
  Error adopt_columns(const Stats& other);

  // Joins another call's statistics of the same heads: counts and sums add, extremes are taken.
  // Stats without heads are the neutral element: default-constructed, they become `other`.
  // Errors: bad_shape (other head count, kv_heads or head_dim), bad_value (other level, histogram
  // bins, tracked keys, stand-in or tie thresholds, softcap, kinds of bias, or scale or column of a
  // head). Nothing changes
  // on an error. Not exact to the last bit for sums of doubles in another order.
  Error merge(const Stats& other);
};

}  // namespace poise
