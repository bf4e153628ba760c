// How much gradient softmax rows let through: Jacobian trace and norm, the gradient that reaches q,
// the transmission backward() measures, against head_dim and number of keys.
//
// In: a grid. Out: tables and a picture, with the closed forms of unscaled rows beside the
// measurements: the mean trace c_n / sqrt(D), the median 2 exp(-g_n sqrt(D)) (closed_forms.h; both
// derived). Must not happen here: a Jacobian or a gradient that the library did not compute.
#pragma once

#include <poise/error.h>

#include "lab/grid.h"
#include "lab/result.h"
#include "lab/units.h"

namespace poise::lab {

Error run_gradient(const GridRequest& request, const RunSettings& settings, Outcome* outcome);

}  // namespace poise::lab
