// Each worked figure as a call of attention(): rows whose dots are the example's numbers, and a
// histogram over sets of standard normal q and k.
// In: a request. Out: tables, a picture. Must not happen here: a softmax of its own.
#include "lab/example.h"

#include <poise/attention.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <optional>
#include <vector>

#include "lab/chart.h"
#include "lab/closed_forms.h"
#include "lab/mean.h"
#include "lab/random.h"
#include "lab/scores.h"

namespace poise::lab {
namespace {

constexpr std::int64_t kPerSet = 64;  // queries and keys of a set

// One row of float64 whose dots are given: a query of `head_dim` ones, keys of equal components.
struct Row {
  std::vector<double> weights;
  HeadStats stats;
  double lse = 0;
};

Error attend(const std::vector<double>& dots, std::int64_t head_dim, std::optional<double> scale,
             Row* row) {
  const auto n = static_cast<std::int64_t>(dots.size());
  const std::vector<double> query(static_cast<std::size_t>(head_dim), 1.0), value(dots.size());
  std::vector<double> key;
  for (const double dot : dots)
    key.insert(key.end(), query.size(), dot / static_cast<double>(head_dim));
  double out = 0;
  row->weights.resize(dots.size());
  Stats stats;
  stats.request.level = StatsLevel::full;
  const Tensor weights = view(row->weights.data(), {1, 1, 1, n});
  const Tensor lse = view(&row->lse, {1, 1, 1});
  Options options;
  options.scale = scale;
  options.executor = &serial_executor();
  Extras extras;
  extras.stats = &stats;
  extras.weights = &weights;
  extras.lse = &lse;
  if (Error error =
          attention(view(query.data(), {1, 1, 1, head_dim}), view(key.data(), {1, 1, n, head_dim}),
                    view(value.data(), {1, 1, n, 1}), view(&out, {1, 1, 1, 1}), options, extras))
    return error;
  row->stats = stats.heads[0];
  return {};
}

std::string three_decimals(const std::vector<double>& weights) {
  std::string text;
  for (const double weight : weights) {
    char number[32];
    std::snprintf(number, sizeof number, "%.3f", weight);
    text += (text.empty() ? "[" : ", ") + std::string(number);
  }
  return text + ']';
}

struct Rows {
  Row plain, eighth, wide, unscaled, fives;
};

Error attend_all(Rows* rows) {
  Error error = attend({1, 5, 10}, 1, 1.0, &rows->plain);
  if (!error) error = attend({1, 5, 10}, 1, 0.125, &rows->eighth);
  if (!error) error = attend({112, 96}, 64, std::nullopt, &rows->wide);
  if (!error) error = attend({112, 96}, 64, 1.0, &rows->unscaled);
  if (!error) error = attend({1, 1, 1, 5}, 1, 1.0, &rows->fives);
  return error;
}

Table worked_table(const Rows& rows) {
  Table table{"worked",
              "Worked rows, float64",
              {{"figure", "figure", "which row, and what of it"},
               {"value", "value", "as attention() and its statistics computed it"}},
              {}};
  const auto put = [&](const std::string& figure, Cell value) {
    table.rows.push_back({figure, std::move(value)});
  };
  const auto weights = [&](const std::string& of, const Row& row,
                           const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i)
      put(of + ", weight of " + names[i], row.weights[i]);
  };
  const Row& plain = rows.plain;
  put("softmax(1, 5, 10)", three_decimals(plain.weights));
  weights("softmax(1, 5, 10)", plain, {"1", "5", "10"});
  put("softmax(1, 5, 10), log-sum-exp", plain.lse);
  put("softmax(1, 5, 10), entropy in nats", plain.stats.sum_entropy);
  put("softmax(1, 5, 10), Jacobian trace", plain.stats.sum_trace);
  put("softmax(1, 5, 10), Jacobian Frobenius norm", plain.stats.sum_frobenius);
  weights("the same / 8", rows.eighth, {"1", "5", "10"});
  put("the same / 8, Jacobian trace", rows.eighth.stats.sum_trace);
  put("the same / 8, trace against unscaled", rows.eighth.stats.sum_trace / plain.stats.sum_trace);
  put("q.k = 112, D = 64: score", rows.wide.stats.scores.max);
  put("q.k = 96, D = 64: score", rows.wide.stats.scores.min);
  weights("softmax of these scores", rows.wide, {"112", "96"});
  put("softmax of these scores, Jacobian trace", rows.wide.stats.sum_trace);
  weights("softmax of the dots, unscaled", rows.unscaled, {"112", "96"});
  weights("softmax(1, 1, 1, 5)", rows.fives, {"1", "1", "1", "5"});
  return table;
}

Error measure_sets(const ExampleRequest& request, const RunSettings& settings,
                   std::vector<SetMoments>* sets) {
  sets->resize(static_cast<std::size_t>(request.sets));
  if (settings.watcher != nullptr) settings.watcher->begin(request.sets);
  return run_units(settings, request.sets, [&](std::int64_t unit) {
    Random random(settings.seed, {static_cast<std::uint64_t>(unit)});
    std::vector<float> q(static_cast<std::size_t>(kPerSet * request.head_dim)), k(q.size());
    random.fill_normal(q);
    random.fill_normal(k);
    return measure_set(q, k, request.head_dim, std::nullopt,
                       &(*sets)[static_cast<std::size_t>(unit)]);
  });
}

Table histogram_table(const ExampleRequest& request, const std::vector<SetMoments>& sets) {
  const std::string d = std::to_string(request.head_dim);
  Table table{"histogram",
              "Scaled scores q.k / sqrt(" + d + ") of standard normal q and k, float32",
              {{"figure", "figure", "which row, and what of it"},
               {"measured", "measured", "over all sets, +- standard error from their scatter"},
               {"exact", "exact", "what independent standard normal elements give"},
               {"normal", "normal", "what a standard normal score would give"}},
              {}};
  const auto row = [&](const std::string& figure, Estimate measured, double exact, double normal) {
    table.rows.push_back({figure, measured, exact, normal});
  };
  Mean mean, variance;
  std::array<Mean, 3> shares;
  for (const SetMoments& set : sets) {
    mean.add(set.mean);
    variance.add(set.variance);
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[i].add(share_within(set.histogram, static_cast<double>(i + 1)));
  }
  const double deviation = std::sqrt(variance.value());
  row("mean", mean.estimate(), 0, 0);
  row("standard deviation within rows", {deviation, variance.error() / (2 * deviation)}, 1, 1);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto bound = static_cast<double>(i + 1);
    row("share of |score| < " + std::to_string(i + 1), shares[i].estimate(),
        share_of_scaled_scores_within(bound, request.head_dim),
        std::erf(bound / std::numbers::sqrt2));
  }
  row("excess kurtosis", excess_kurtosis(sets), 6 / static_cast<double>(request.head_dim), 0);
  return table;
}

Panel histogram_panel(const std::vector<SetMoments>& sets, std::int64_t head_dim) {
  Panel panel{"scores per unit of score",
              "scaled score q·k / √" + std::to_string(head_dim),
              {-5, 5, false, {-4, -2, 0, 2, 4}},
              {1e-5, 1, true, {}},
              {{"measured", 1, Look::dots, {}}, {"normal", 0, Look::closed_form, {}}}};
  const Histogram& shape = sets.front().histogram;
  for (std::size_t bin = 0; bin < shape.counts.size(); ++bin) {
    Mean density;
    for (const SetMoments& set : sets)
      density.add(static_cast<double>(set.histogram.counts[bin]) / (kPerSet * kPerSet) /
                  shape.width);
    panel.series[0].points.push_back({shape.low + (static_cast<double>(bin) + 0.5) * shape.width,
                                      density.value(), density.error()});
  }
  for (double x = -5; x <= 5; x += 0.125)
    panel.series[1].points.push_back(
        {x, std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi), 0});
  return panel;
}

Panel weights_panel(const Rows& rows) {
  Panel panel{"weight of a key in softmax(1, 5, 10)",
              "key",
              {0.7, 3.3, false, {1, 2, 3}},
              {0, 1, false, {}},
              {{"unscaled", 2, Look::measured, {}}, {"divided by 8", 1, Look::measured, {}}}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto key = static_cast<double>(i + 1);
    panel.series[0].points.push_back({key, rows.plain.weights[i], 0});
    panel.series[1].points.push_back({key, rows.eighth.weights[i], 0});
  }
  return panel;
}

}  // namespace

Error run_example(const ExampleRequest& request, const RunSettings& settings, Outcome* outcome) {
  Rows rows;
  if (Error error = attend_all(&rows)) return error;
  std::vector<SetMoments> sets;
  if (Error error = measure_sets(request, settings, &sets)) return error;

  Result& result = outcome->result;
  result = Result();
  result.experiment = "example";
  const double times = rows.eighth.stats.sum_trace / rows.plain.stats.sum_trace;
  result.statement = "Divided by 8, softmax(1, 5, 10) has " + std::to_string(std::lround(times)) +
                     " times the Jacobian trace";
  result.parameters = {{"head_dim", request.head_dim}, {"sets", request.sets}};
  result.tables = {worked_table(rows), histogram_table(request, sets)};
  result.notes = {"A set is " + std::to_string(kPerSet) + " queries and as many keys; the " +
                  std::to_string(request.sets) + " sets are independent of one another."};
  const std::string description = "Weights unscaled " + three_decimals(rows.plain.weights) +
                                  ", divided by 8 " + three_decimals(rows.eighth.weights) +
                                  ". The histogram of scaled scores lies on the standard normal "
                                  "density, above it in the tails.";
  outcome->picture =
      draw({result.statement,
            "Weights of a worked row, and the histogram of scaled scores of standard normal q and "
            "k. Bars: one standard error.",
            description,
            {weights_panel(rows), histogram_panel(sets, request.head_dim)}});
  return {};
}

}  // namespace poise::lab
