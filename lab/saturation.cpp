// Tables and picture of saturation. In: cells of rows. Out: a Result.
// Must not happen here: a number that run_rows() did not measure.
#include "lab/saturation.h"

#include <poise/theory.h>

#include <vector>

#include "lab/table.h"

namespace poise::lab {
namespace {

Table table_of(const std::vector<GridPart>& parts) {
  Table table{"saturation",
              "Rows of independent standard normal q and k, float32",
              {{"max_weight", "max weight", "mean of the largest weight of a row"},
               {"entropy_ratio", "H/ln n", "mean entropy of a row, 1 = uniform"},
               {"effective_keys", "eff. keys", "mean of 1 / (sum of squared weights)"},
               {"share_above_99", "> .99", "share of rows whose largest weight exceeds .99"},
               {"spread", "sigma", "root mean square over rows of the scores' standard deviation"},
               {"spread_to_freezing", "of freezing",
                "sigma / sqrt(2 ln n), the spread at which long rows freeze onto their maximum"}},
              {}};
  fill_grid(
      parts,
      [](std::int64_t keys, const RowsCell& cell) {
        const Estimate spread = cell.root(Signal::variance);
        const double freezing = saturation_threshold(static_cast<double>(keys));
        return std::vector<Cell>{cell.estimate(Signal::top1),
                                 cell.estimate(Signal::entropy_ratio),
                                 cell.estimate(Signal::effective_keys),
                                 cell.estimate(Signal::one_hot),
                                 spread,
                                 Estimate{spread.value / freezing, spread.error / freezing}};
      },
      &table);
  return table;
}

Reading reading(Signal signal) {
  return [signal](const RowsCell& cell) { return cell.estimate(signal); };
}

}  // namespace

Error run_saturation(const GridRequest& request, const RunSettings& settings, Outcome* outcome) {
  std::vector<GridPart> parts;
  if (Error error = run_grid(request, false, settings, &parts)) return error;
  const GridPart& shown = shown_part(parts);
  const RowsCell& unscaled = shown.widest(ScaleRule::none);
  const RowsCell& scaled = shown.widest(ScaleRule::inverse_root);
  Result& result = outcome->result;
  result = Result();
  result.experiment = "saturation";
  result.statement = "At D = " + std::to_string(unscaled.head_dim) + ", " +
                     percent(unscaled.estimate(Signal::one_hot).value) +
                     " of unscaled rows put all but 1 % on one of " + std::to_string(shown.keys) +
                     " keys; with 1/sqrt(D), " + percent(scaled.estimate(Signal::one_hot).value) +
                     " do";
  result.parameters = grid_parameters(request);
  result.tables = {table_of(parts)};
  result.notes = {grid_note(request)};
  const Scale shares{0, 1, false, {}};
  const auto most = static_cast<double>(shown.keys);
  outcome->picture = draw(
      {typeset(result.statement),
       "Independent standard normal q and k, fresh keys for every row. Bars: one standard error.",
       "Largest weight, entropy and effective keys at " + std::to_string(shown.keys) +
           " keys by scale; share of one-hot rows without a scale by number of keys.",
       {scales_panel(shown, "mean largest weight", shares, reading(Signal::top1)),
        scales_panel(shown, "mean entropy / ln n", shares, reading(Signal::entropy_ratio)),
        scales_panel(shown, "effective keys", {1, most, true, powers_of_two(1, most, 5)},
                     reading(Signal::effective_keys)),
        keys_panel(parts, "share of rows with a weight above .99, no scale", shares,
                   reading(Signal::one_hot))}});
  return {};
}

}  // namespace poise::lab
