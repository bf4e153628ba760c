// What the experiments on rows share: a grid of widths, numbers of keys and scales, and how its
// cells are called and drawn.
//
// In: sizes. Out: cells of rows, series of a picture, words. Must not happen here: a measurement
// other than run_rows().
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lab/chart.h"
#include "lab/result.h"
#include "lab/rows.h"
#include "lab/units.h"

namespace poise::lab {

struct GridRequest {
  std::vector<std::int64_t> head_dims{4, 16, 64, 256, 1024, 4096};  // ascending, 1 ... 65536
  std::vector<std::int64_t> keys{8, 64, 512};                       // ascending, 2 ... 65536
  // Rows for every number of keys, at least 100; a quarter of them from 1024 keys on, whose
  // statistics vary less.
  std::int64_t rows = 20'000;
  bool explicit_components = false;  // draw every component (rows.h)
};

struct GridPart {
  std::int64_t keys = 0;
  std::vector<RowsCell> cells;  // by head_dim, then scale rule

  const RowsCell& widest(ScaleRule rule) const;
};

// A part for each number of keys. gradients: RowsRequest::gradients.
Error run_grid(const GridRequest& request, bool gradients, const RunSettings& settings,
               std::vector<GridPart>* parts);

std::vector<std::pair<std::string, Cell>> grid_parameters(const GridRequest& request);
std::string grid_note(const GridRequest& request);  // how rows were drawn

// Puts n, scale and D before the table's columns and a row for every cell, by n, scale, D.
void fill_grid(const std::vector<GridPart>& parts,
               const std::function<std::vector<Cell>(std::int64_t keys, const RowsCell&)>& cells,
               Table* table);

// The part whose scales a picture compares: the second number of keys, 64 unless chosen.
const GridPart& shown_part(const std::vector<GridPart>& parts);

using Reading = std::function<Estimate(const RowsCell&)>;

Scale head_dim_scale(const GridPart& part);
// One scale's readings against head_dim.
Series series_of_rule(const GridPart& part, ScaleRule rule, const std::string& label, int tone,
                      const Reading& reading);
// A panel of one part with a series per scale: "no scale", "1/√D", "1/D".
Panel scales_panel(const GridPart& part, const std::string& title, const Scale& y,
                   const Reading& reading);
// A panel of unscaled rows with a series per number of keys.
Panel keys_panel(const std::vector<GridPart>& parts, const std::string& title, const Scale& y,
                 const Reading& reading);

}  // namespace poise::lab
