// --what-if: the temperatures at which the report runs a recording again.
//
// In: the list as typed, measured layers. Out: what-ifs of every layer. Must not happen here: a
// statistic or a factor; they are the library's.
#pragma once

#include <poise/health.h>
#include <poise/report.h>
#include <poise/whatif.h>

#include <functional>
#include <string>
#include <vector>

#include "measure.h"

namespace poise::cli {

struct WhatIfList {
  std::vector<WhatIf> changes;
  bool undivided = false;  // also scale 1 in every head,
  bool over_dim = false;   // 1/D,
  bool advised = false;    // and the factor that each head's verdict advises

  bool empty() const { return changes.empty() && !undivided && !over_dim && !advised; }
};

inline constexpr const char* kDefaultWhatIfs =
    "0.25,0.5,2,4,undivided,1/D,advised,qk-norm,softcap=50";

// Items separated by commas: a number (times the scale), undivided (scale 1), 1/D, advised,
// qk-norm, softcap=NUMBER, log-n=NUMBER; or none alone. Throws Failure naming the item that is none
// of these.
WhatIfList parse_what_ifs(const std::string& text);

// Runs every layer again for each item and adds the statistics to its input; heads of which nothing
// is advised keep their scale. progress is called after each layer. Throws Failure, naming the
// layer, when the library refuses one.
void add_what_ifs(const std::vector<RunnableLayer>& layers, const WhatIfList& list,
                  const JudgeContext& context, std::vector<LayerInput>* measured,
                  const std::function<void()>& progress);

}  // namespace poise::cli
