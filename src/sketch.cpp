// Sketch: quantiles of non-negative values from counts in bins of 1/32 octave.
//
// In: values, or another sketch's counts. Out: quantiles and shares. The bins are those of the
// double itself (exponent and five mantissa bits), so no logarithm is ever taken; adding in another
// order gives the same sketch, since its range is exactly that of the values seen.
// add() stays inline in the header: it runs for every row and signal. Same idea with logarithmic
// bins: Masson et al. 2019, DDSketch (1908.10693).
#include <poise/stats.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace poise {

std::int64_t& Sketch::widen(int index) {
  if (bins_.empty()) first_bin_ = index;
  if (index < first_bin_) {
    bins_.insert(bins_.begin(), static_cast<std::size_t>(first_bin_ - index), 0);
    first_bin_ = index;
  }
  const auto place = static_cast<std::size_t>(index - first_bin_);
  if (place >= bins_.size()) bins_.resize(place + 1, 0);
  return bins_[place];
}

void Sketch::merge(const Sketch& other) {
  count_ += other.count_;
  zeros_ += other.zeros_;
  if (other.bins_.empty()) return;
  widen(other.first_bin_);
  widen(other.first_bin_ + static_cast<int>(other.bins_.size()) - 1);
  const auto shift = static_cast<std::size_t>(other.first_bin_ - first_bin_);
  for (std::size_t i = 0; i < other.bins_.size(); ++i) bins_[shift + i] += other.bins_[i];
}

double Sketch::quantile(double q) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const double nearest = std::ceil(q * static_cast<double>(count_));
  const std::int64_t rank = std::clamp(static_cast<std::int64_t>(nearest), std::int64_t{1}, count_);
  std::int64_t passed = zeros_;
  if (rank <= passed) return 0;
  int index = first_bin_;
  for (std::int64_t in_bin : bins_) {
    passed += in_bin;
    if (rank <= passed) break;
    ++index;
  }
  return std::sqrt(border(index) * border(index + 1));
}

double Sketch::share_above(double bound) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  std::int64_t above = bound <= 0 ? zeros_ : 0;
  int index = first_bin_;
  for (std::int64_t in_bin : bins_) {
    if (border(index) >= bound) above += in_bin;
    ++index;
  }
  return static_cast<double>(above) / static_cast<double>(count_);
}

Sketch Sketch::from_bins(std::int64_t zeros, int first_bin, std::vector<std::int64_t> bins) {
  const auto used = [](std::int64_t count) { return count != 0; };
  const auto begin = std::find_if(bins.begin(), bins.end(), used);
  first_bin += static_cast<int>(begin - bins.begin());
  bins.erase(bins.begin(), begin);
  while (!bins.empty() && bins.back() == 0) bins.pop_back();

  Sketch sketch;
  const std::int64_t last_bin = first_bin + static_cast<std::int64_t>(bins.size()) - 1;
  const bool in_range =
      bins.empty() || (first_bin >= bin_of(kSmallest) && last_bin <= bin_of(kLargest));
  const auto negative = [](std::int64_t count) { return count < 0; };
  if (zeros < 0 || !in_range || std::any_of(bins.begin(), bins.end(), negative)) return sketch;
  sketch.count_ = sketch.zeros_ = zeros;
  for (std::int64_t in_bin : bins) sketch.count_ += in_bin;
  if (!bins.empty()) sketch.first_bin_ = first_bin;
  sketch.bins_ = std::move(bins);
  return sketch;
}

}  // namespace poise
