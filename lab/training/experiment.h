// The training experiment: the same model and task learned with each scale, head_dim and seed.
//
// In: which ones. Out: a curve for each task, scale and head_dim, averaged over the seeds; from
// these tables and a picture. Runs go side by side, each on one thread. The numbers depend on the
// request, the first seed and the instruction set, not on threads. Must not happen here: a training
// step.
#pragma once

#include <poise/error.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/result.h"
#include "lab/training/run.h"
#include "lab/units.h"

namespace poise::lab::training {

struct TrainingRequest {
  std::vector<Task> tasks{Task::recall, Task::averaging};
  std::vector<ScaleRule> rules{ScaleRule::one, ScaleRule::inverse_sqrt};
  std::vector<std::int64_t> head_dims{16, 64, 256};  // 1 ... 1024
  int seeds = 3;                // 2 ... 20: RunSettings::seed and the next ones
  int steps = 400;              // 40 ... 100000
  double learning_rate = 3e-3;  // above 0, at most 1
};

// The rules, sizes and seeds of `poise lab training --full`.
TrainingRequest full_request();

// A run has learned its task when it answers this share of the held-out queries.
inline constexpr double kLearned = 0.9;

struct CurvePoint {
  int step = 0;
  // Over seeds. A metric that is averaged by its logarithm has the geometric mean, and the standard
  // error of the logarithm times that mean.
  std::array<Estimate, kMetrics> values{};
  const Estimate& operator[](Metric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
};

struct Curve {
  Task task{};
  ScaleRule rule{};
  std::int64_t head_dim = 0;
  std::vector<CurvePoint> points;
  std::vector<std::vector<Point>> runs;  // by seed
};

// The first step at which a run has learned its task, of those it was measured at.
std::optional<int> step_learned(const std::vector<Point>& run);

// Errors: bad_value, naming what of the request is out of range.
Error run_curves(const TrainingRequest& request, const RunSettings& settings,
                 std::vector<Curve>* curves);

// run_curves, its tables and its picture.
Error run_training(const TrainingRequest& request, const RunSettings& settings, Outcome* outcome);

// The faces of curves. All: in the order of the request.
Result training_result(const TrainingRequest& request, const std::vector<Curve>& curves,
                       std::uint64_t first_seed);
std::string training_chart(const TrainingRequest& request, const std::vector<Curve>& curves);

}  // namespace poise::lab::training
