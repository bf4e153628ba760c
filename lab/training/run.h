// One training run: a model, a task, a seed; what it measures of itself while it learns.
//
// In: TrainingRun. Out: a point every few steps: loss and accuracy on sequences held out from the
// training, and the library's statistics of attention and its gradient on the batch of that step.
// The numbers depend on the settings and the instruction set alone. Must not happen here: threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lab/training/settings.h"
#include "lab/training/task.h"

namespace poise::lab::training {

// What is measured at a point; all_metrics() says how. Loss and accuracy are of the held-out
// sequences, all others of the training batch of that step, over every head and query row.
enum class Metric : std::uint8_t {
  loss,
  accuracy,
  entropy,
  top1,
  spread,
  transmission,
  middle_transmission,
  dead_rows,
  query_key_grad,
  all_grad,
  temperature
};
inline constexpr int kMetrics = 11;

struct MetricInfo {
  Metric metric;
  std::string_view name;     // in JSON
  std::string_view label;    // over a column
  std::string_view meaning;  // formula and unit
  bool logarithmic;          // averaged over seeds, and drawn, by its logarithm
};
const MetricInfo& info(Metric metric);
const std::array<MetricInfo, kMetrics>& all_metrics();

struct Point {
  int step = 0;  // updates done before it
  std::array<double, kMetrics> values{};
  double operator[](Metric metric) const { return values[static_cast<std::size_t>(metric)]; }
  double& operator[](Metric metric) { return values[static_cast<std::size_t>(metric)]; }
};

struct TrainingRun {
  Task task = Task::recall;
  ScaleRule rule = ScaleRule::inverse_sqrt;
  AttentionShape attention;
  BatchShape batch;
  AdamSettings adam;
  std::uint64_t seed = 1;
  int steps = 400;
  // Spread evenly over the steps, both ends included; at least 2, at most steps + 1.
  int points = 41;

  // The step of a point.
  int step_of(int point) const {
    return static_cast<int>(std::int64_t{point} * steps / (points - 1));
  }
};

// Sequences held out, the same for every rule and head_dim of a seed.
inline constexpr int kHeldOut = 32;

std::vector<Point> train(const TrainingRun& run);

}  // namespace poise::lab::training
