// The grid of runs and the averages over its seeds.
//
// In and out: experiment.h. Every run has its place in the list before it begins; averages are
// taken afterwards, in order.
#include "lab/training/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <utility>

#include "lab/mean.h"

namespace poise::lab::training {
namespace {

Error refusal(const std::string& what, double value, const char* expected) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return {ErrorCode::bad_value, what + " is " + text + "; expected " + expected};
}

Error check(const TrainingRequest& request) {
  const auto none = [](const char* what) {
    return Error(ErrorCode::bad_value, std::string(what) + " is 0 of them; expected at least one");
  };
  if (request.tasks.empty()) return none("tasks");
  if (request.rules.empty()) return none("scales");
  if (request.head_dims.empty()) return none("head_dims");
  for (const std::int64_t head_dim : request.head_dims)
    if (head_dim < 1 || head_dim > 1024)
      return refusal("head_dim", static_cast<double>(head_dim), "1 ... 1024");
  if (request.seeds < 2 || request.seeds > 20)
    return refusal("seeds", request.seeds, "2 ... 20: errors come from the scatter of seeds");
  if (request.steps < 40 || request.steps > 100000)
    return refusal("steps", request.steps, "40 ... 100000");
  if (!(request.learning_rate > 0 && request.learning_rate <= 1))
    return refusal("learning_rate", request.learning_rate, "a number above 0 and at most 1");
  return {};
}

CurvePoint averaged(const std::vector<std::vector<Point>>& runs, std::size_t index) {
  // Where nothing arrives the logarithm still needs a number: where a Sketch begins to tell any
  // value from zero.
  constexpr double kLeast = 0x1p-80;
  CurvePoint point;
  point.step = runs.front()[index].step;
  for (const MetricInfo& metric : all_metrics()) {
    Mean mean;
    for (const std::vector<Point>& run : runs) {
      const double value = run[index][metric.metric];
      mean.add(metric.logarithmic ? std::log(std::max(value, kLeast)) : value);
    }
    Estimate& estimate = point.values[static_cast<std::size_t>(metric.metric)];
    estimate = mean.estimate();
    if (metric.logarithmic)
      estimate = {std::exp(mean.value()), std::exp(mean.value()) * mean.error()};
  }
  return point;
}

}  // namespace

TrainingRequest full_request() {
  TrainingRequest request;
  request.rules.assign(std::begin(kScaleRules), std::end(kScaleRules));
  request.head_dims = {16, 64, 256, 512};
  request.seeds = 5;
  return request;
}

std::optional<int> step_learned(const std::vector<Point>& run) {
  const auto found = std::find_if(run.begin(), run.end(), [](const Point& point) {
    return point[Metric::accuracy] >= kLearned;
  });
  return found == run.end() ? std::nullopt : std::optional(found->step);
}

Error run_curves(const TrainingRequest& request, const RunSettings& settings,
                 std::vector<Curve>* curves) {
  if (Error error = check(request)) return error;
  const auto seeds = static_cast<std::size_t>(request.seeds);
  std::vector<Curve> all;
  for (const Task task : request.tasks)
    for (const ScaleRule rule : request.rules)
      for (const std::int64_t head_dim : request.head_dims) {
        Curve curve;
        curve.task = task;
        curve.rule = rule;
        curve.head_dim = head_dim;
        curve.runs.resize(seeds);
        all.push_back(std::move(curve));
      }
  // The widest heads take longest: begun first, they do not leave the other threads idle at the
  // end.
  std::vector<std::size_t> order(all.size() * seeds);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return all[a / seeds].head_dim > all[b / seeds].head_dim;
  });
  if (settings.watcher != nullptr) settings.watcher->begin(static_cast<std::int64_t>(order.size()));
  const auto unit = [&](std::int64_t index) -> Error {
    const std::size_t place = order[static_cast<std::size_t>(index)];
    Curve& curve = all[place / seeds];
    TrainingRun run;
    run.task = curve.task;
    run.rule = curve.rule;
    run.attention.head_dim = curve.head_dim;
    run.adam.learning_rate = request.learning_rate;
    run.seed = settings.seed + place % seeds;
    run.steps = request.steps;
    curve.runs[place % seeds] = train(run);
    return {};
  };
  if (Error error = run_units(settings, static_cast<std::int64_t>(order.size()), unit))
    return error;
  for (Curve& curve : all)
    for (std::size_t i = 0; i < curve.runs.front().size(); ++i)
      curve.points.push_back(averaged(curve.runs, i));
  *curves = std::move(all);
  return {};
}

Error run_training(const TrainingRequest& request, const RunSettings& settings, Outcome* outcome) {
  std::vector<Curve> curves;
  if (Error error = run_curves(request, settings, &curves)) return error;
  *outcome = {training_result(request, curves, settings.seed), training_chart(request, curves)};
  return {};
}

}  // namespace poise::lab::training
