// One call of attention() per set, statistics at level full, the scores handed out.
//
// In: q and k. Out: moments in double. Must not happen here: random numbers.
#include "lab/scores.h"

#include <poise/attention.h>

#include <cmath>
#include <limits>

namespace poise::lab {
namespace {

double size_of(std::size_t n) { return static_cast<double>(n); }

}  // namespace

Error measure_set(std::span<const float> q, std::span<const float> k, std::int64_t head_dim,
                  std::optional<double> scale, SetMoments* moments) {
  const std::int64_t rows = static_cast<std::int64_t>(q.size()) / head_dim;
  const std::int64_t keys = static_cast<std::int64_t>(k.size()) / head_dim;
  const std::vector<float> value(static_cast<std::size_t>(keys));
  std::vector<float> out(static_cast<std::size_t>(rows));
  std::vector<float> scores(static_cast<std::size_t>(rows * keys));
  Stats stats;
  stats.request.level = StatsLevel::full;
  const Tensor handed_out = view(scores.data(), {1, 1, rows, keys});
  Options options;
  options.scale = scale;
  options.executor = &serial_executor();
  Extras extras;
  extras.stats = &stats;
  extras.scores = &handed_out;
  if (Error error = attention(
          view(q.data(), {1, 1, rows, head_dim}), view(k.data(), {1, 1, keys, head_dim}),
          view(value.data(), {1, 1, keys, 1}), view(out.data(), {1, 1, rows, 1}), options, extras))
    return error;
  const HeadStats& head = stats.heads[0];
  const auto measured = static_cast<double>(head.measured_rows), n = static_cast<double>(keys);
  moments->mean = head.scores.sum_mean / measured;
  moments->variance = head.scores.sum_variance / measured * n / (n - 1);
  moments->histogram = head.histogram;
  double second = 0, fourth = 0;
  for (const float score : scores) {
    const double square = static_cast<double>(score) * static_cast<double>(score);
    second += square;
    fourth += square * square;
  }
  moments->second = second / size_of(scores.size());
  moments->fourth = fourth / size_of(scores.size());
  return {};
}

Estimate excess_kurtosis(const std::vector<SetMoments>& sets) {
  const double n = size_of(sets.size());
  double second = 0, fourth = 0;
  for (const SetMoments& set : sets) {
    second += set.second;
    fourth += set.fourth;
  }
  const auto kurtosis = [](double count, double sum2, double sum4) {
    return sum4 / count / (sum2 / count * sum2 / count) - 3;
  };
  const double all = kurtosis(n, second, fourth);
  double mean = 0, squares = 0;
  for (const SetMoments& set : sets) {
    const double without = kurtosis(n - 1, second - set.second, fourth - set.fourth);
    mean += without / n;
    squares += (without - all) * (without - all);
  }
  const double scatter = squares / n - (mean - all) * (mean - all);
  return {n * all - (n - 1) * mean, std::sqrt((n - 1) * scatter)};
}

double share_within(const Histogram& histogram, double bound) {
  double inside = 0, all = static_cast<double>(histogram.below + histogram.above);
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    const auto count = static_cast<double>(histogram.counts[i]);
    const double low = histogram.low + histogram.width * size_of(i);
    all += count;
    if (low >= -bound && low + histogram.width <= bound) inside += count;
  }
  return inside / all;
}

}  // namespace poise::lab
