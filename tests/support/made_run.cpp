// Attention on fixed random queries and keys, one head of which is multiplied by a growing factor;
// and the same story told by made statistics. In: which layer, step and process. Out: Stats, logs.
// What each function promises: made_run.h.
#include "support/made_run.h"

#include <poise/attention.h>

#include <cmath>
#include <stdexcept>

#include "support/rng.h"
#include "support/sample_report.h"

namespace poise::test {
namespace {

constexpr std::int64_t kRows = 24, kKeys = 40, kHeadDim = 32;

}  // namespace

MadeRun::MadeRun(double growth) : growth_(growth) {
  Rng rng(5);
  for (int layer = 0; layer < kLayers; ++layer) {
    query_[layer] = TensorBuffer(DType::f64, {kProcesses, kHeads, kRows, kHeadDim});
    key_[layer] = TensorBuffer(DType::f64, {kProcesses, kHeads, kKeys, kHeadDim});
    query_[layer].fill([&rng] { return rng.normal(); });
    key_[layer].fill([&rng] { return rng.normal(); });
  }
}

Stats MadeRun::measure(int layer, int i, int first_process, int processes) const {
  TensorBuffer query = query_[layer].copied(Layout::contiguous);
  if (layer == kGrowingLayer) {
    const double factor = std::pow(growth_, i);
    for (std::int64_t b = 0; b < kProcesses; ++b) {
      const std::int64_t begin = query.index({b, kGrowingHead, 0, 0});
      for (std::int64_t e = begin; e < begin + kRows * kHeadDim; ++e)
        query.set(e, factor * query.at(e));
    }
  }
  const TensorBuffer q = query.sliced(0, first_process, processes);
  const TensorBuffer k = key_[layer].sliced(0, first_process, processes);
  const TensorBuffer out(DType::f64, {processes, kHeads, kRows, kHeadDim});
  Stats stats;
  stats.request.level = StatsLevel::full;
  Extras extras;
  extras.stats = &stats;
  if (const Error error = attention(q.view(), k.view(), k.view(), out.view(), {}, extras))
    throw std::runtime_error(error.message());
  return stats;
}

std::string MadeRun::log() const {
  std::string text;
  for (int i = 0; i < kSteps; ++i)
    for (int layer = 0; layer < kLayers; ++layer)
      text += log_line(step(i), label(layer), measure(layer, i));
  return text;
}

std::vector<std::string> MadeRun::logs() const {
  std::vector<std::string> texts(kProcesses);
  for (int i = 0; i < kSteps; ++i)
    for (int layer = 0; layer < kLayers; ++layer)
      for (int process = 0; process < kProcesses; ++process)
        texts[static_cast<std::size_t>(process)] += log_line(
            step(i), label(layer), measure(layer, i, process), "rank " + std::to_string(process));
  return texts;
}

ReportInput input_of(const std::vector<std::string>& logs) {
  RunLog log;
  for (const std::string& text : logs)
    if (const Error error = log.add(text, "run.jsonl")) throw std::runtime_error(error.message());
  ReportInput input;
  if (const Error error = read_run(log, input)) throw std::runtime_error(error.message());
  return input;
}

ReportInput made_series_input() {
  std::string log;
  for (int i = 0; i < 12; ++i) {
    const double spread = std::pow(1.35, i);
    log += log_line(100 * i, "L0",
                    layer_of({head_of_spread(1), head_of_spread(1 + 0.1 * (i % 2))}).stats);
    log += log_line(100 * i, "L1", layer_of({head_of_spread(1), head_of_spread(spread)}).stats);
  }
  ReportInput input = input_of({log});
  input.title = "a made run";
  input.date = "30 Nov 2026 10:00 UTC";
  return input;
}

}  // namespace poise::test
