// A recording run through attention: statistics, wider histograms where scores are far out, times.
//
// In: runnable layers. Out: LayerInputs and a Timing. Runs with and without statistics are
// interleaved so that a slow spell of the machine meets both.
// Must not happen here: judging, words, files.
#include "measure.h"

#include <poise/theory.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "failure.h"
#include "output_tensor.h"
#include "timing/series.h"

namespace poise::cli {
namespace {

// A histogram that misses more than this share of the scores of a head is worth another run.
constexpr double kMaxOutside = 0.01;
// Enough runs for a steady median of short inputs; long inputs get one.
constexpr int kMaxRuns = 51;
// Columns of one layer that are measured as sinks: four further runs at most.
constexpr std::size_t kMostColumns = 4 * kTrackedKeys;
constexpr std::chrono::milliseconds kTimingBudget{700};

OutputTensor output_of(const RunnableLayer& layer) {
  return {
      layer.query.dtype,
      {layer.query.extent(0), layer.query.extent(1), layer.query.extent(2), layer.value.extent(3)}};
}

void run(const RunnableLayer& layer, const Tensor& out, Stats* stats) {
  Extras extras;
  extras.stats = stats;
  if (const Error error =
          attention(layer.query, layer.key, layer.value, out, layer.options, extras))
    throw Failure(layer.label + ": " + error.message());
}

// The smallest doubling of the bins that holds every finite score; nullopt when they fit already.
std::optional<StatsRequest> wider_request(const Stats& stats) {
  double reach = 0;
  bool many_outside = false;
  for (const HeadStats& head : stats.heads) {
    const Histogram& histogram = head.histogram;
    std::int64_t inside = 0;
    for (const std::int64_t count : histogram.counts) inside += count;
    const auto outside = static_cast<double>(histogram.below + histogram.above);
    many_outside |= outside > kMaxOutside * (outside + static_cast<double>(inside));
    if (const double largest = head.scores.max_abs(); std::isfinite(largest))
      reach = std::max(reach, largest);
  }
  if (!many_outside) return std::nullopt;
  StatsRequest request = stats.request;
  while (request.histogram_width * kHistogramBins / 2 <= reach) request.histogram_width *= 2;
  request.histogram_low = -request.histogram_width * kHistogramBins / 2;
  return request;
}

// Runs a layer again, as often as it takes to measure the columns that hold many rows' largest
// weight and lie beyond the tracked keys, and adds them to its statistics.
void measure_columns(const RunnableLayer& layer, const Tensor& out, Stats* stats) {
  const std::vector<std::int64_t> columns = stats->untracked_columns();
  for (std::size_t at = 0; at < columns.size() && at < kMostColumns; at += kTrackedKeys) {
    Stats again;
    again.request = stats->request;
    for (std::size_t k = 0; k < kTrackedKeys && at + k < columns.size(); ++k)
      again.request.tracked[k] = columns[at + k];
    run(layer, out, &again);
    throw_if(stats->adopt_columns(again));
  }
}

}  // namespace

std::vector<LayerInput> measure_layers(const std::vector<RunnableLayer>& layers,
                                       const std::function<void()>& progress) {
  std::vector<LayerInput> measured;
  for (const RunnableLayer& layer : layers) {
    const OutputTensor out = output_of(layer);
    LayerInput input;
    input.label = layer.label;
    input.stats.request.level = StatsLevel::full;
    run(layer, out.tensor(), &input.stats);
    measure_columns(layer, out.tensor(), &input.stats);
    throw_if(measure_inputs(layer.query, layer.key, &input.stats));
    if (const auto request = wider_request(input.stats)) {
      input.wide.emplace();
      input.wide->request = *request;
      run(layer, out.tensor(), &*input.wide);
    }
    measured.push_back(std::move(input));
    progress();
  }
  return measured;
}

Timing time_layers(const std::vector<RunnableLayer>& layers,
                   const std::function<void()>& progress) {
  using Clock = std::chrono::steady_clock;
  std::vector<OutputTensor> outputs;
  for (const RunnableLayer& layer : layers) outputs.push_back(output_of(layer));
  std::vector<Stats> stats(layers.size());
  for (Stats& one : stats) one.request.level = StatsLevel::full;

  std::vector<double> without, with;
  const auto milliseconds = [&](bool measuring) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      run(layers[i], outputs[i].tensor(), measuring ? &stats[i] : nullptr);
      if (without.empty() || with.empty()) progress();
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const auto start = Clock::now();
  for (int i = 0; i < kMaxRuns && (i == 0 || Clock::now() - start < kTimingBudget); ++i) {
    without.push_back(milliseconds(false));
    with.push_back(milliseconds(true));
  }
  Timing timing;
  timing.attention_ms = timing::median_of(without);
  timing.measuring_percent = 100 * (timing::median_of(with) / timing.attention_ms - 1);
  return timing;
}

}  // namespace poise::cli
