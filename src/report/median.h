// The upper median of a few numbers: where a list of heads is summarised by one of them.
// In: values without NaN. Out: one of them; NaN for an empty list.
// Medians over rows are not taken here: those are the sketches of the statistics.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

namespace poise::report {

inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace poise::report
