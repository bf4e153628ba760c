// One head at several temperatures, as the terminal prints it.
// In: the model. Out: a table in the page. Not here: a statistic; what was run again is in the
// model.
#pragma once

#include <poise/report.h>

#include "report/terminal.h"

namespace poise::report {

// The head to look at first, as it is and at every other temperature: recomputed entropy beside its
// first-order preview, so that the preview's error shows. Nothing where no what-if was run.
void what_if_table(Terminal& page, const Report& report);

}  // namespace poise::report
