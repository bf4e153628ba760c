// Sets of q and k of one kind and width, each measured by two calls of attention(): at scale 1 and
// at its default. In: a request. Out: a Result. Must not happen here: numbers that sets share.
#include "lab/variance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "lab/chart.h"
#include "lab/mean.h"
#include "lab/random.h"
#include "lab/scores.h"
#include "lab/table.h"

namespace poise::lab {
namespace {

constexpr std::int64_t kPerSet = 64;  // queries and keys

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// One kind of elements at one width.
struct Spot {
  Elements elements = Elements::gaussian;
  VectorShape shape;
  std::vector<SetMoments> unscaled;
  std::vector<double> scaled_variance;
  Estimate variance, scaled, kurtosis;
};

Error measure(const RunSettings& settings, std::int64_t set, Spot* spot) {
  const VectorShape& shape = spot->shape;
  Random random(settings.seed,
                {static_cast<std::uint64_t>(spot->elements),
                 static_cast<std::uint64_t>(shape.head_dim), static_cast<std::uint64_t>(set)});
  std::vector<float> q, k;
  if (Error error = draw_vectors(spot->elements, shape, kPerSet, random, &q)) return error;
  if (Error error = draw_vectors(spot->elements, shape, kPerSet, random, &k)) return error;
  if (Error error = measure_set(q, k, shape.head_dim, 1.0, &spot->unscaled[index(set)]))
    return error;
  SetMoments scaled;
  if (Error error = measure_set(q, k, shape.head_dim, std::nullopt, &scaled)) return error;
  spot->scaled_variance[index(set)] = scaled.variance;
  return {};
}

Error measure_all(const VarianceRequest& request, const RunSettings& settings,
                  std::vector<Spot>* spots) {
  std::vector<std::pair<std::size_t, std::int64_t>> units;  // spot, set
  for (const Elements elements : kElements)
    for (const std::int64_t head_dim : request.head_dims) {
      Spot& spot = spots->emplace_back();
      spot.elements = elements;
      spot.shape = {head_dim, request.model_dim, request.correlation};
      const std::int64_t sets = request.sets * std::max<std::int64_t>(1, 64 / head_dim);
      spot.unscaled.resize(index(sets));
      spot.scaled_variance.resize(index(sets));
      for (std::int64_t set = 0; set < sets; ++set) units.emplace_back(spots->size() - 1, set);
    }
  const auto count = static_cast<std::int64_t>(units.size());
  if (settings.watcher != nullptr) settings.watcher->begin(count);
  const Error error = run_units(settings, count, [&](std::int64_t unit) {
    const auto& [spot, set] = units[index(unit)];
    return measure(settings, set, &(*spots)[spot]);
  });
  if (error) return error;
  for (Spot& spot : *spots) {
    Mean variance, scaled;
    for (const SetMoments& set : spot.unscaled) variance.add(set.variance);
    for (const double set : spot.scaled_variance) scaled.add(set);
    spot.variance = variance.estimate();
    spot.scaled = scaled.estimate();
    spot.kurtosis = excess_kurtosis(spot.unscaled);
  }
  return {};
}

Table spread_table(const std::vector<Spot>& spots) {
  Table table{"variance",
              "Dot products and scaled scores, float32",
              {{"elements", "elements", "what q and k are made of, mean 0 and variance 1"},
               {"head_dim", "D", "components of q and k"},
               {"variance", "Var(q.k)", "within rows, without bias, at scale 1"},
               {"expected_variance", "theory", "what theory says of the number before it"},
               {"scaled_variance", "scaled", "the same at attention()'s default scale, 1/sqrt(D)"},
               {"excess_kurtosis", "exc. kurtosis", "of q.k, without bias to first order"},
               {"expected_kurtosis", "theory", "what theory says of the number before it"}},
              {}};
  for (const Spot& spot : spots)
    table.rows.push_back({std::string(name(spot.elements)), spot.shape.head_dim, spot.variance,
                          expected_variance(spot.elements, spot.shape), spot.scaled, spot.kurtosis,
                          expected_kurtosis(spot.elements, spot.shape)});
  return table;
}

// Of one kind over several widths, against ln D: measured and by theory.
std::pair<Estimate, double> slope_of(const std::vector<Spot>& spots, Elements elements) {
  std::vector<double> widths;
  std::vector<Estimate> measured, expected;
  for (const Spot& spot : spots) {
    if (spot.elements != elements) continue;
    widths.push_back(static_cast<double>(spot.shape.head_dim));
    measured.push_back(spot.variance);
    expected.push_back({expected_variance(elements, spot.shape), 0});
  }
  return {log_log_slope(widths, measured), log_log_slope(widths, expected).value};
}

Table slope_table(const std::vector<Spot>& spots) {
  Table table{"slopes",
              "How Var(q.k) grows",
              {{"elements", "elements", "what q and k are made of, mean 0 and variance 1"},
               {"slope", "slope", "of ln Var(q.k) against ln D, least squares over all D"},
               {"expected_slope", "theory", "what theory says of the number before it"}},
              {}};
  for (const Elements elements : kElements) {
    const auto [slope, expected] = slope_of(spots, elements);
    table.rows.push_back({std::string(name(elements)), slope, expected});
  }
  return table;
}

struct Shown {
  Elements elements;
  const char* label;
  int tone;
};
constexpr Shown kGaussian{Elements::gaussian, "Gaussian", 1};
constexpr Shown kUniform{Elements::uniform, "uniform", 3};
constexpr Shown kSigns{Elements::signs, "±1", 4};
constexpr Shown kLayerNorm{Elements::layer_norm, "LayerNorm", 2};
constexpr Shown kCorrelated{Elements::correlated, "correlated", 5};

// Measured dots and the theory's dashes of some kinds.
Panel panel_of(const std::vector<Spot>& spots, const std::string& title, const Scale& y,
               const std::vector<Shown>& kinds, Estimate Spot::*measured,
               double (*theory)(Elements, const VectorShape&)) {
  Panel panel{title, "D", {}, y, {}};
  const auto low = static_cast<double>(spots.front().shape.head_dim);
  const double high = std::max(2 * low, static_cast<double>(spots.back().shape.head_dim));
  panel.x = {low, high, true, powers_of_two(low, high, 6)};
  for (const Shown& kind : kinds) {
    Series dots{kind.label, kind.tone, Look::dots, {}};
    Series form{"", kind.tone, Look::closed_form, {}};
    for (const Spot& spot : spots) {
      if (spot.elements != kind.elements) continue;
      const auto d = static_cast<double>(spot.shape.head_dim);
      const Estimate& estimate = spot.*measured;
      dots.points.push_back({d, estimate.value, estimate.error});
      form.points.push_back({d, theory(spot.elements, spot.shape), 0});
    }
    panel.series.push_back(std::move(form));
    panel.series.push_back(std::move(dots));
  }
  return panel;
}

// All of the dots with their bars, and a little room.
Scale fitted(const Panel& panel) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Series& series : panel.series)
    for (const Point& point : series.points) {
      low = std::min(low, point.y - point.error);
      high = std::max(high, point.y + point.error);
    }
  const double room = 0.05 * (high - low);
  return {low - room, high + room, false, {}};
}

double over_width(Elements elements, const VectorShape& shape) {
  return expected_variance(elements, shape) / static_cast<double>(shape.head_dim);
}

}  // namespace

Error run_variance(const VarianceRequest& request, const RunSettings& settings, Outcome* outcome) {
  std::vector<Spot> spots;
  if (Error error = measure_all(request, settings, &spots)) return error;
  const auto at_widest = [&](Elements elements) -> const Spot& {
    return *std::find_if(spots.rbegin(), spots.rend(),
                         [&](const Spot& spot) { return spot.elements == elements; });
  };
  Result& result = outcome->result;
  result = Result();
  result.experiment = "variance";
  const Spot& widest = at_widest(Elements::gaussian);
  const bool several = request.head_dims.size() > 1;  // a slope takes two widths
  result.statement =
      (several ? "Var(q.k) grows like D^" + to_text(slope_of(spots, Elements::gaussian).first)
               : "Var(q.k) at D = " + std::to_string(widest.shape.head_dim) + " is " +
                     to_text(widest.variance)) +
      "; divided by sqrt(D), scores at D = " + std::to_string(widest.shape.head_dim) +
      " have variance " + to_text(widest.scaled);
  result.parameters = {{"head_dims", request.head_dims},
                       {"sets", request.sets},
                       {"model_dim", request.model_dim},
                       {"correlation", request.correlation}};
  if (several) result.tables.push_back(slope_table(spots));
  result.tables.push_back(spread_table(spots));
  result.notes = {
      "A set is " + std::to_string(kPerSet) +
          " queries and as many keys, drawn afresh; errors are from the scatter of sets.",
      "LayerNorm: normal vectors of " + std::to_string(request.model_dim) +
          " components, normalised, times Xavier-uniform weights, fresh for every set.",
      "correlated: any two components of a vector have a correlation of " +
          two_digits(request.correlation) + "; 1/sqrt(D) does not hold their variance."};

  const auto most = static_cast<double>(request.head_dims.back());
  const double widest_variance =
      std::max(2.0, std::max(most, at_widest(Elements::correlated).variance.value));
  const double scaled_most = std::max(2.0, at_widest(Elements::correlated).scaled.value);
  Panel independent_panel =
      panel_of(spots, "the same, independent elements", {},
               {kGaussian, kUniform, kSigns, kLayerNorm}, &Spot::scaled, over_width);
  independent_panel.y = fitted(independent_panel);
  Panel kurtosis_panel =
      panel_of(spots, "excess kurtosis of q·k: (κκ − 3)/D", {}, {kGaussian, kUniform, kSigns},
               &Spot::kurtosis, expected_kurtosis);
  kurtosis_panel.y = fitted(kurtosis_panel);
  outcome->picture =
      draw({typeset(result.statement),
            "Within-row variance of q·k, from the scores of attention(). Dots: measured, with a "
            "bar of one standard error. Dashes: theory.",
            "Variance of dot products and scaled scores and their excess kurtosis against D, for " +
                std::to_string(kElements.size()) + " kinds of elements.",
            {panel_of(spots, "Var(q·k), no scale",
                      {1, std::pow(10, std::ceil(std::log10(widest_variance))), true, {}},
                      {kCorrelated, kGaussian}, &Spot::variance, expected_variance),
             panel_of(spots, "Var(q·k) divided by D: scale 1/√D",
                      {0.5, std::exp2(std::ceil(std::log2(1.2 * scaled_most))), true,
                       powers_of_two(0.5, 2 * scaled_most, 6)},
                      {kCorrelated, kGaussian}, &Spot::scaled, over_width),
             independent_panel, kurtosis_panel}});
  return {};
}

}  // namespace poise::lab
