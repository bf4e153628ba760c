// How the recordings are made: independent normal q and k for the spread, one coordinate that is
// the same in every key for what all scores have on top, one that only key 0 has for a sink. In:
// plans of heads. Out: statistics. What each function promises: made_recordings.h.
#include "support/made_recordings.h"

#include <poise/attention.h>
#include <poise/theory.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <utility>

#include "support/rng.h"
#include "support/sample_report.h"
#include "support/tensor_buffer.h"

namespace poise::test {
namespace {

constexpr std::int64_t kLength = 40;  // queries and keys

struct MadeHead {
  double spread;      // of the scores within a row
  double sink = 0;    // score of key 0 on top
  double offset = 0;  // score of every key on top: no softmax sees it, every number format does
};
struct MadeLayer {
  std::int64_t head_dim;
  double scale;
  std::vector<MadeHead> heads;
};
struct MadeModel {
  const char* title;
  std::vector<MadeLayer> layers;
};

MadeModel healthy() {
  return {"made: a healthy model",
          {{64, 0.125, {{0.9}, {1.0}, {1.1}, {1.3}}}, {64, 0.125, {{0.8}, {1.0}, {1.2}, {1.5}}}}};
}

// Elements of size 1, as at initialisation, and nobody divides by the root of D.
MadeModel unscaled() {
  const double spread = std::sqrt(512.0);
  return {"made: scores that nobody divided", {{512, 1, {{spread}, {spread}, {spread}}}}};
}

// Keys with a large common part: harmless to the softmax, infinite in float16.
MadeModel overflowing() {
  return {"made: keys with a large mean",
          {{64, 0.125, {{1.0}, {1.1}, {0.9}, {1.2}}},
           {64, 0.125, {{1.0}, {1.0, 0, 9000}, {1.1}, {1.0, 0, 4400}}}}};
}

// Divided by D where the root of D was meant.
MadeModel diffuse() {
  return {"made: scores divided twice",
          {{64, 1 / 64.0, {{0.125}, {0.125}}}, {64, 1 / 64.0, {{0.125}, {0.125}}}}};
}

MadeModel sinks() {
  return {"made: the first key as a sink",
          {{64, 0.125, {{1.0}, {1.0, 4.0}, {1.1, 4.2}, {0.9, 5.0}}},
           {64, 0.125, {{1.0, 6.0}, {1.2, 4.0}, {1.0}, {1.0, 7.0}}}}};
}

// Two heads in each of 24 layers. The first ones widen with depth, the second ones have the
// troubles: one-hot in layer 2, sinks from 6 to 11, hot in 14, diffuse in 20 and 21.
MadeModel mixed() {
  MadeModel model{"made: 24 layers with something of everything", {}};
  for (int layer = 0; layer < 24; ++layer) {
    MadeHead second{1.0 + 0.02 * layer};
    if (layer == 2) second = {30.0};
    if (layer >= 6 && layer < 12) second = {1.0, 4.0 + 0.3 * (layer - 6)};
    if (layer == 14) second = {1.5, 0, 120};
    if (layer == 20 || layer == 21) second = {0.15};
    model.layers.push_back({64, 0.125, {{0.8 + 0.05 * layer}, second}});
  }
  return model;
}

const std::vector<std::pair<std::string, std::function<MadeModel()>>>& models() {
  static const std::vector<std::pair<std::string, std::function<MadeModel()>>> all = {
      {"healthy", healthy}, {"unscaled", unscaled}, {"overflowing", overflowing},
      {"diffuse", diffuse}, {"sinks", sinks},       {"mixed", mixed}};
  return all;
}

MadeModel model_of(const std::string& name) {
  for (const auto& [known, make] : models()) {
    if (known == name) return make();
  }
  throw std::runtime_error("no recording is called " + name);
}

ReportInput described(const MadeModel& model) {
  ReportInput input;
  input.title = model.title;
  input.precision = "float32";
  input.mask = "no mask";
  input.date = "30 Nov 2026";
  input.batch = 1;
  input.q_len = input.kv_len = kLength;
  return input;
}

LayerInput run(const MadeLayer& plan, std::uint64_t seed) {
  Rng rng(seed);
  const auto heads = static_cast<std::int64_t>(plan.heads.size());
  const Extents extents{1, heads, kLength, plan.head_dim};
  TensorBuffer query(DType::f32, extents), key(DType::f32, extents), value(DType::f32, extents);
  TensorBuffer out(DType::f32, extents);
  for (TensorBuffer* tensor : {&query, &key, &value}) tensor->fill([&] { return rng.normal(); });
  // Scores of independent elements of size 1 have a spread of scale times the root of D.
  const double natural = plan.scale * std::sqrt(static_cast<double>(plan.head_dim));
  for (std::int64_t h = 0; h < heads; ++h) {
    const MadeHead& head = plan.heads[static_cast<std::size_t>(h)];
    for (std::int64_t row = 0; row < kLength; ++row) {
      for (std::int64_t d = 0; d < plan.head_dim; ++d) {
        const std::int64_t at = key.index({0, h, row, d});
        key.set(at, key.at(at) * head.spread / natural);
      }
      const bool first = row == 0;
      query.set(query.index({0, h, row, 0}), 1);
      key.set(key.index({0, h, row, 0}), head.offset / plan.scale);
      query.set(query.index({0, h, row, 1}), 1);
      key.set(key.index({0, h, row, 1}), first ? head.sink / plan.scale : 0);
    }
  }
  const auto attend = [&](Stats* stats) {
    Options options;
    options.scale = plan.scale;
    options.threads = 1;
    Extras extras;
    extras.stats = stats;
    if (const Error error =
            attention(query.view(), key.view(), value.view(), out.view(), options, extras))
      throw std::runtime_error(error.message());
  };
  LayerInput layer;
  layer.stats.request.level = StatsLevel::full;
  double reach = 0;
  for (const MadeHead& head : plan.heads)
    reach = std::max(reach, 5 * head.spread + head.sink + head.offset);
  while (layer.stats.request.histogram_width * kHistogramBins / 2 < reach)
    layer.stats.request.histogram_width *= 2;
  layer.stats.request.histogram_low = -layer.stats.request.histogram_width * kHistogramBins / 2;
  attend(&layer.stats);
  if (const Error error = measure_inputs(query.view(), key.view(), &layer.stats))
    throw std::runtime_error(error.message());
  return layer;
}

}  // namespace

const std::vector<std::string>& made_recordings() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : models()) all.push_back(name);
    return all;
  }();
  return names;
}

ReportInput make_recording(const std::string& name) {
  const MadeModel model = model_of(name);
  ReportInput input = described(model);
  std::uint64_t seed = 20261130;
  for (const MadeLayer& layer : model.layers) input.layers.push_back(run(layer, seed++));
  return input;
}

ReportInput stored_recording(const std::string& name) {
  const std::string path = std::string(POISE_SOURCE_DIR) + "/tests/golden/" + name + "_stats.json";
  if (const char* update = std::getenv("POISE_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream file(path, std::ios::binary);
    file << "[";
    const char* separator = "\n";
    for (const LayerInput& layer : make_recording(name).layers) {
      file << separator << to_json(layer.stats);
      separator = ",\n";
    }
    file << "\n]\n";
  }
  ReportInput input = described(model_of(name));
  const auto stored = nlohmann::ordered_json::parse(read_file(path));
  for (const auto& layer : stored) {
    LayerInput next;
    if (const Error error = from_json(layer.dump(), next.stats))
      throw std::runtime_error(name + ": " + error.message());
    input.layers.push_back(std::move(next));
  }
  return input;
}

}  // namespace poise::test
