// The grid's loop, its table rows and its series. In: a request, cells. Out: cells, words.
// Must not happen here: a number of its own.
#include "lab/grid.h"

#include <algorithm>

namespace poise::lab {
namespace {

constexpr std::int64_t kManyKeys = 1024, kFewerRows = 4;

RowsRequest rows_request(const GridRequest& request, bool gradients, std::int64_t keys) {
  RowsRequest rows;
  rows.head_dims = request.head_dims;
  rows.keys = keys;
  rows.rows = keys < kManyKeys ? request.rows : request.rows / kFewerRows;
  rows.gradients = gradients;
  rows.explicit_components = request.explicit_components;
  return rows;
}

}  // namespace

const RowsCell& GridPart::widest(ScaleRule rule) const {
  return cells[cells.size() - kScaleRules.size() + static_cast<std::size_t>(rule)];
}

Error run_grid(const GridRequest& request, bool gradients, const RunSettings& settings,
               std::vector<GridPart>* parts) {
  std::int64_t units = 0;
  for (const std::int64_t keys : request.keys)
    units += row_units(rows_request(request, gradients, keys));
  if (settings.watcher != nullptr) settings.watcher->begin(units);
  for (const std::int64_t keys : request.keys) {
    GridPart& part = parts->emplace_back(GridPart{keys, {}});
    if (Error error = run_rows(rows_request(request, gradients, keys), settings, &part.cells))
      return error;
  }
  return {};
}

std::vector<std::pair<std::string, Cell>> grid_parameters(const GridRequest& request) {
  return {{"head_dims", request.head_dims},
          {"keys", request.keys},
          {"rows", request.rows},
          {"components", std::string(request.explicit_components ? "explicit" : "in law")}};
}

std::string grid_note(const GridRequest& request) {
  const std::string fresh =
      "Every row has keys of its own; standard errors are from the scatter of units of rows.\n";
  if (request.explicit_components) return fresh + "Every component of q and k was drawn.";
  return fresh +
         "Rows are drawn in law, |q| and the keys along q, and the keys serve every D of one n:\n"
         "neighbouring D move together (--explicit draws every component).";
}

void fill_grid(const std::vector<GridPart>& parts,
               const std::function<std::vector<Cell>(std::int64_t keys, const RowsCell&)>& cells,
               Table* table) {
  const Column place[] = {{"keys", "n", "keys in a row"},
                          {"scale", "scale", "what q.k is multiplied by"},
                          {"head_dim", "D", "components of q and k"}};
  table->columns.insert(table->columns.begin(), std::begin(place), std::end(place));
  for (const GridPart& part : parts)
    for (const ScaleRule rule : kScaleRules)
      for (const RowsCell& cell : part.cells) {
        if (cell.rule != rule) continue;
        std::vector<Cell> row{part.keys, std::string(name(rule)), cell.head_dim};
        for (const Cell& read : cells(part.keys, cell)) row.push_back(read);
        table->rows.push_back(std::move(row));
      }
}

const GridPart& shown_part(const std::vector<GridPart>& parts) {
  return parts[std::min<std::size_t>(1, parts.size() - 1)];
}

Scale head_dim_scale(const GridPart& part) {
  const auto low = static_cast<double>(part.cells.front().head_dim);
  // At least an octave.
  const double high = std::max(2 * low, static_cast<double>(part.cells.back().head_dim));
  return {low, high, true, powers_of_two(low, high, 6)};
}

Series series_of_rule(const GridPart& part, ScaleRule rule, const std::string& label, int tone,
                      const Reading& reading) {
  Series series{label, tone, Look::measured, {}};
  for (const RowsCell& cell : part.cells) {
    if (cell.rule != rule) continue;
    const Estimate estimate = reading(cell);
    series.points.push_back({static_cast<double>(cell.head_dim), estimate.value, estimate.error});
  }
  return series;
}

Panel scales_panel(const GridPart& part, const std::string& title, const Scale& y,
                   const Reading& reading) {
  return {title + ", " + std::to_string(part.keys) + " keys",
          "D",
          head_dim_scale(part),
          y,
          {series_of_rule(part, ScaleRule::none, "no scale", 2, reading),
           series_of_rule(part, ScaleRule::inverse_root, "1/√D", 1, reading),
           series_of_rule(part, ScaleRule::inverse, "1/D", 3, reading)}};
}

Panel keys_panel(const std::vector<GridPart>& parts, const std::string& title, const Scale& y,
                 const Reading& reading) {
  Panel panel{title, "D", head_dim_scale(parts.front()), y, {}};
  int tone = 0;
  for (const GridPart& part : parts) {
    tone = tone % kTones + 1;
    panel.series.push_back(
        series_of_rule(part, ScaleRule::none, std::to_string(part.keys) + " keys", tone, reading));
  }
  return panel;
}

}  // namespace poise::lab
