// A recording run through attention layer by layer: its statistics, and what measuring costs.
//
// In: layers as recorded, what the command line overrides. Out: the layers of a ReportInput, times
// in milliseconds. Must not happen here: judging, words, files.
#pragma once

#include <poise/attention.h>
#include <poise/report.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "inputs.h"
#include "io/recording.h"

namespace poise::cli {

// One layer ready to run: f16 and bf16 widened to f32.
struct RunnableLayer {
  std::string label;
  ConstTensor query, key, value;
  Options options;
};

struct Timing {
  double attention_ms = 0;       // all layers, statistics off, median
  double measuring_percent = 0;  // extra time at level full, of the medians
};

// Runs every layer once at level full, with the moments of its inputs; layers with columns beyond
// the tracked keys that hold many rows' largest weight are run again to measure these, layers of
// which many scores leave the histogram once more with a wider one. progress is called after each
// layer. Throws Failure, naming the layer, when attention refuses one.
std::vector<LayerInput> measure_layers(const std::vector<RunnableLayer>& layers,
                                       const std::function<void()>& progress);

// Medians over interleaved runs of all layers, with and without statistics: as many as fit into
// most of a second, at least one. progress is called twice for each layer.
Timing time_layers(const std::vector<RunnableLayer>& layers, const std::function<void()>& progress);

}  // namespace poise::cli
