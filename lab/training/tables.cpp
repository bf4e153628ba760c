// The training experiment in words and tables.
//
// In: curves. Out: a Result: what came out at the widest head, the state before the first update
// and after the last, every run's end, and the curves point by point. Must not happen here: a claim
// that its numbers do not make.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "lab/mean.h"
#include "lab/table.h"
#include "lab/training/experiment.h"

namespace poise::lab::training {
namespace {

const Column kTask{"task", "task",
                   "recall: the value that stands with the query's key; averaging: the value most "
                   "pairs have"};
const Column kRule{"scale", "scale",
                   "1, 1/sqrt(D), 1/D, learned (per head, from 1/sqrt(D) on), qk-norm (RMS norm "
                   "of q and k, then 1/sqrt(D))"};
const Column kHeadDim{"head_dim", "D", "head_dim, the width of q and k"};

std::vector<Cell> place_of(const Curve& curve) {
  return {std::string(name(curve.task)), std::string(name(curve.rule)), curve.head_dim};
}

Column column_of(Metric metric) {
  const MetricInfo& told = info(metric);
  return {std::string(told.name), std::string(told.label),
          std::string(told.meaning) +
              (told.logarithmic ? "; geometric mean over seeds, 8e-25 for anything smaller" : "")};
}

// The chosen metrics of one point of every curve.
Table state_table(const std::vector<Curve>& curves, bool last, std::string name, std::string title,
                  std::initializer_list<Metric> metrics) {
  Table table{std::move(name), std::move(title), {kTask, kRule, kHeadDim}, {}};
  for (const Metric metric : metrics) table.columns.push_back(column_of(metric));
  if (last) {
    table.columns.push_back({"seeds_learned", "learned",
                             "how many seeds answered at least 90 % of the held-out queries at "
                             "some point"});
    table.columns.push_back(
        {"step_learned", "at step", "the first such point's step, mean over these seeds"});
  }
  for (const Curve& curve : curves) {
    std::vector<Cell> row = place_of(curve);
    const CurvePoint& point = last ? curve.points.back() : curve.points.front();
    for (const Metric metric : metrics) row.emplace_back(point[metric]);
    if (last) {
      Mean steps;
      for (const std::vector<Point>& run : curve.runs)
        if (const std::optional<int> step = step_learned(run)) steps.add(*step);
      row.emplace_back(steps.count());
      if (steps.count() == 0)
        row.emplace_back(std::numeric_limits<double>::quiet_NaN());
      else
        row.emplace_back(steps.estimate());
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table runs_table(const std::vector<Curve>& curves, std::uint64_t first_seed) {
  Table table{"runs",
              "Every run after its last step",
              {kTask, kRule, kHeadDim, {"seed", "seed", "the seed of the run"}},
              {}};
  for (const Metric metric : {Metric::loss, Metric::accuracy})
    table.columns.push_back(column_of(metric));
  table.in_text = false;
  for (const Curve& curve : curves)
    for (std::size_t i = 0; i < curve.runs.size(); ++i) {
      std::vector<Cell> row = place_of(curve);
      row.emplace_back(static_cast<std::int64_t>(first_seed + i));
      for (const Metric metric : {Metric::loss, Metric::accuracy})
        row.emplace_back(curve.runs[i].back()[metric]);
      table.rows.push_back(std::move(row));
    }
  return table;
}

Table curves_table(const std::vector<Curve>& curves) {
  Table table{"curves",
              "Everything against the step",
              {kTask, kRule, kHeadDim, {"step", "step", "updates done"}},
              {}};
  for (const MetricInfo& metric : all_metrics()) table.columns.push_back(column_of(metric.metric));
  table.in_text = false;
  for (const Curve& curve : curves)
    for (const CurvePoint& point : curve.points) {
      std::vector<Cell> row = place_of(curve);
      row.emplace_back(std::int64_t{point.step});
      for (const Estimate& value : point.values) row.emplace_back(value);
      table.rows.push_back(std::move(row));
    }
  return table;
}

const Curve* find(const std::vector<Curve>& curves, Task task, ScaleRule rule,
                  std::int64_t head_dim) {
  const auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) {
    return curve.task == task && curve.rule == rule && curve.head_dim == head_dim;
  });
  return found == curves.end() ? nullptr : &*found;
}

// Accuracy at the widest head, rule by rule.
std::string statement(const TrainingRequest& request, const std::vector<Curve>& curves) {
  const std::int64_t widest = *std::max_element(request.head_dims.begin(), request.head_dims.end());
  std::string text = "Accuracy at D = " + std::to_string(widest) + " after " +
                     std::to_string(request.steps) + " steps: ";
  for (std::size_t i = 0; i < request.tasks.size(); ++i) {
    text += (i == 0 ? "" : "; ") + std::string(name(request.tasks[i])) + ' ';
    for (std::size_t j = 0; j < request.rules.size(); ++j) {
      const Curve* curve = find(curves, request.tasks[i], request.rules[j], widest);
      text += (j == 0 ? "" : ", ") + to_text(curve->points.back()[Metric::accuracy]) +
              " with scale " + std::string(name(request.rules[j]));
    }
  }
  return text;
}

template <class Range>
std::string names_of(const Range& items) {
  std::string text;
  for (const auto item : items) text += (text.empty() ? "" : ", ") + std::string(name(item));
  return text;
}

}  // namespace

Result training_result(const TrainingRequest& request, const std::vector<Curve>& curves,
                       std::uint64_t first_seed) {
  const TrainingRun defaults;
  Result result;
  result.experiment = "training";
  result.statement = statement(request, curves);
  const auto put = [&](const char* name, Cell cell) {
    result.parameters.emplace_back(name, std::move(cell));
  };
  put("tasks", names_of(request.tasks));
  put("scales", names_of(request.rules));
  put("head_dims", request.head_dims);
  put("seeds", std::int64_t{request.seeds});
  put("steps", std::int64_t{request.steps});
  put("learning_rate", request.learning_rate);
  put("width", std::int64_t{defaults.attention.width});
  put("heads", std::int64_t{defaults.attention.heads});
  put("value_dim", std::int64_t{defaults.attention.value_dim});
  put("batch", std::int64_t{defaults.batch.sequences});
  put("pairs", std::int64_t{defaults.batch.pairs});
  put("queries", std::int64_t{defaults.batch.queries});
  put("keys", std::int64_t{defaults.batch.keys});
  put("values", std::int64_t{defaults.batch.values});
  put("held_out_sequences", std::int64_t{kHeldOut});
  result.tables.push_back(
      state_table(curves, false, "start", "Before the first update",
                  {Metric::spread, Metric::entropy, Metric::top1, Metric::transmission,
                   Metric::middle_transmission, Metric::dead_rows, Metric::query_key_grad}));
  result.tables.push_back(
      state_table(curves, true, "end", "After the last step",
                  {Metric::accuracy, Metric::loss, Metric::spread, Metric::entropy,
                   Metric::transmission, Metric::middle_transmission, Metric::temperature}));
  result.tables.push_back(runs_table(curves, first_seed));
  result.tables.push_back(curves_table(curves));
  result.notes = {
      "+- is one standard error over the seeds. A guess is right once in " +
          std::to_string(defaults.batch.values) + ".",
      "At the start every element of q and k has mean 0 and variance 1 over the random weights, so "
      "that a dot product has variance D.",
      "A seed has the same data and the same first weights for every scale."};
  return result;
}

}  // namespace poise::lab::training
