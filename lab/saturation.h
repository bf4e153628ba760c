// How far softmax rows saturate: largest weight, entropy, effective keys and the share of one-hot
// rows against head_dim and number of keys, for the scales 1, 1/sqrt(D) and 1/D.
//
// In: a grid. Out: tables and a picture; every number from attention()'s own statistics (rows.h).
// Sources: Vaswani et al. 2017 (1706.03762), 3.2.1; the threshold sqrt(2 ln n): Giorlandino & Goldt
// 2505.24333. Must not happen here: a softmax.
#pragma once

#include <poise/error.h>

#include "lab/grid.h"
#include "lab/result.h"
#include "lab/units.h"

namespace poise::lab {

Error run_saturation(const GridRequest& request, const RunSettings& settings, Outcome* outcome);

}  // namespace poise::lab
