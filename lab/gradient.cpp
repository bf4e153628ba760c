// Tables and picture of the gradient. In: cells of rows, closed forms. Out: a Result.
// Must not happen here: a number that run_rows() did not measure and no closed form gives.
#include "lab/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "lab/closed_forms.h"
#include "lab/table.h"

namespace poise::lab {
namespace {

using Form = double (UnscaledTrace::*)(double head_dim) const;

Table jacobian_table(const std::vector<GridPart>& parts) {
  Table table{
      "jacobian",
      "Jacobian J = diag(p) - p p^T of rows, from attention()'s statistics, float32",
      {{"trace", "mean tr J", "mean of 1 - sum of squared weights"},
       {"closed_mean", "c_n/sqrt(D)", "closed form of it without a scale, for wide heads"},
       {"median_trace", "median tr J", "median of rows, from bins of 1.6 to 3.1 %"},
       {"closed_median", "2exp(-g_n sqrt(D))", "closed form of it without a scale, for wide heads"},
       {"frobenius", "|J|_F", "mean Frobenius norm"},
       {"dead_share", "dead", "share of rows with a gain |J|_F n/sqrt(n-1) below .1"}},
      {}};
  std::map<std::int64_t, UnscaledTrace> forms;
  for (const GridPart& part : parts) forms.emplace(part.keys, part.keys);
  fill_grid(
      parts,
      [&](std::int64_t keys, const RowsCell& cell) {
        const auto closed = [&](Form form) {
          return cell.rule == ScaleRule::none
                     ? (forms.at(keys).*form)(static_cast<double>(cell.head_dim))
                     : std::numeric_limits<double>::quiet_NaN();
        };
        return std::vector<Cell>{cell.estimate(Signal::trace),
                                 closed(&UnscaledTrace::mean),
                                 cell.median_trace(),
                                 closed(&UnscaledTrace::median),
                                 cell.estimate(Signal::frobenius),
                                 cell.estimate(Signal::dead)};
      },
      &table);
  return table;
}

Table gradient_table(const std::vector<GridPart>& parts) {
  Table table{"gradient",
              "What gets through of independent standard normal gradients dP of the weights",
              {{"gradient_to_q", "|dq|",
                "mean over rows of the root mean square of |dq| over dP, from weights and scores"},
               {"rms_to_q", "rms |dq|", "root mean square over rows and dP, from the same"},
               {"rms_dq", "backward", "the same, of the dq that backward() computed"},
               {"transmission", "|dS|/|dP|",
                "root mean square of |dS| / |dP - mean dP|, as backward() measured it"},
               {"expected_transmission", "|J|_F/sqrt(n-1)",
                "root mean square of it, what |dS|/|dP| must be"}},
              {}};
  fill_grid(
      parts,
      [](std::int64_t, const RowsCell& cell) {
        return std::vector<Cell>{cell.estimate(Signal::to_q), cell.root(Signal::to_q_squared),
                                 cell.root(Signal::dq_squared),
                                 cell.root(Signal::transmission_squared),
                                 cell.root(Signal::expected_transmission)};
      },
      &table);
  return table;
}

// Unscaled rows of every number of keys, a closed form over them.
Panel unscaled_panel(const std::vector<GridPart>& parts, const std::string& title, double low,
                     const Reading& reading, Form form) {
  Panel panel = keys_panel(parts, title, {low, 1, true, {}}, reading);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    panel.series[i].look = Look::dots;
    const UnscaledTrace trace(parts[i].keys);
    Series dashes{"", panel.series[i].tone, Look::closed_form, {}};
    constexpr int kPoints = 100;
    for (int point = 0; point <= kPoints; ++point) {
      const double d = panel.x.low * std::pow(panel.x.high / panel.x.low, point / double{kPoints});
      dashes.points.push_back({d, (trace.*form)(d), 0});
    }
    panel.series.push_back(std::move(dashes));
  }
  return panel;
}

// The decades that hold a part's readings, down to 1e-6.
Scale decades(const GridPart& part, const Reading& reading) {
  double low = 1, high = 0;
  for (const RowsCell& cell : part.cells) {
    low = std::min(low, std::max(reading(cell).value, 1e-6));
    high = std::max(high, reading(cell).value);
  }
  return {std::pow(10, std::floor(std::log10(low))),
          std::pow(10, std::ceil(std::log10(high))),
          true,
          {}};
}

}  // namespace

Error run_gradient(const GridRequest& request, const RunSettings& settings, Outcome* outcome) {
  std::vector<GridPart> parts;
  if (Error error = run_grid(request, true, settings, &parts)) return error;
  // The fewest keys, where the median falls deepest.
  const RowsCell& widest = parts.front().widest(ScaleRule::none);
  Result& result = outcome->result;
  result = Result();
  result.experiment = "gradient";
  result.statement = "Without a scale, rows of " + std::to_string(parts.front().keys) +
                     " keys at D = " + std::to_string(widest.head_dim) +
                     " have a mean Jacobian trace of " +
                     two_digits(widest.estimate(Signal::trace).value) + " and a median of " +
                     two_digits(widest.median_trace().value);
  result.parameters = grid_parameters(request);
  result.tables = {jacobian_table(parts), gradient_table(parts)};
  result.notes = {grid_note(request)};

  const Reading mean = [](const RowsCell& cell) { return cell.estimate(Signal::trace); };
  const Reading median = [](const RowsCell& cell) { return cell.median_trace(); };
  const Reading to_q = [](const RowsCell& cell) { return cell.estimate(Signal::to_q); };
  const Reading through = [](const RowsCell& cell) {
    return cell.root(Signal::transmission_squared);
  };
  const double least = std::max(median(widest).value, 1e-15);
  const GridPart& shown = shown_part(parts);
  outcome->picture = draw(
      {typeset(result.statement),
       "Independent standard normal q and k, fresh keys for every row. Dots: measured, with a "
       "bar of one standard error. Dashes: closed forms for wide heads.",
       "Mean and median Jacobian trace without a scale by number of keys; gradient reaching q and "
       "transmission at " +
           std::to_string(shown.keys) + " keys by scale.",
       {unscaled_panel(parts, "mean Jacobian trace, no scale; dashes c/√D", 1e-2, mean,
                       &UnscaledTrace::mean),
        unscaled_panel(parts, "median Jacobian trace, no scale; dashes 2 exp(−g√D)",
                       std::pow(10, std::floor(std::log10(least))), median, &UnscaledTrace::median),
        scales_panel(shown, "gradient reaching q", decades(shown, to_q), to_q),
        scales_panel(shown, "transmission by backward()", decades(shown, through), through)}});
  return {};
}

}  // namespace poise::lab
