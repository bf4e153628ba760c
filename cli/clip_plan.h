// What QK-clip changes in a checkpoint: heads of a report, rows of a map, factors of the library.
//
// In: the largest score of every head, a map, a checkpoint's header, τ. Out: the factor of every
// row of every tensor that changes, and a text of what is done head by head. Throws Failure with
// one sentence where they do not fit together. Must not happen here: a file written, an element
// read, a formula of γ or of how it is split (poise/advice.h).
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/clip_map.h"
#include "io/report_scores.h"

namespace poise::cli {

struct ClipInputs {
  const std::vector<io::HeadScore>& heads;
  const std::vector<io::MapLayer>& layers;
  const io::Checkpoint& checkpoint;
  std::string report_path, map_path;  // for messages
  double tau;
};

struct ClipPlan {
  std::vector<io::AxisScaling> scalings;
  std::string text;  // a paragraph per head that changes, then a line of counts
};
ClipPlan plan_clip(const ClipInputs& inputs);

}  // namespace poise::cli
