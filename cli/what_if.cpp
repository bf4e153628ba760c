// The temperatures of --what-if, read and run. The contract is in what_if.h.
//
// In: text, layers. Out: WhatIfs, and their statistics beside those of the layers. Must not happen
// here: judging anything but what is advised.
#include "what_if.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "failure.h"
#include "inputs.h"

namespace poise::cli {
namespace {

// The number behind "name=", nullopt when the item is another one.
std::optional<double> number_after(const std::string& item, const std::string& name) {
  if (item.rfind(name + "=", 0) != 0) return std::nullopt;
  if (const auto value = parse_number(item.substr(name.size() + 1))) return value;
  throw Failure("--what-if: " + item + ": expected a number behind " + name + "=");
}

void add_item(const std::string& item, WhatIfList* list) {
  WhatIf change;
  if (item == "advised") {
    list->advised = true;
    return;
  }
  if (item == "qk-norm") {
    change.qk_norm = true;
  } else if (const auto softcap = number_after(item, "softcap")) {
    change.softcap = *softcap;
  } else if (const auto keys = number_after(item, "log-n")) {
    change.trained_keys = *keys;
  } else if (const auto factor = parse_number(item)) {
    change.scale_factor = *factor;
  } else {
    throw Failure("--what-if: " + item +
                  " is neither a number, advised, qk-norm, softcap=NUMBER, log-n=NUMBER nor none");
  }
  list->changes.push_back(change);
}

}  // namespace

WhatIfList parse_what_ifs(const std::string& text) {
  WhatIfList list;
  if (text == "none") return list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    add_item(text.substr(begin, end - begin), &list);
    begin = end + 1;
  }
  return list;
}

void add_what_ifs(const std::vector<RunnableLayer>& layers, const WhatIfList& list,
                  const JudgeContext& context, std::vector<LayerInput>* measured,
                  const std::function<void()>& progress) {
  if (list.empty()) return;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const RunnableLayer& layer = layers[i];
    LayerInput& input = (*measured)[i];
    std::vector<WhatIf> changes = list.changes;
    if (list.advised) {
      WhatIf advised;
      advised.label = "advised scale";
      advised.factor_per_head = advised_factors(judge(input.stats, {}, context));
      const auto changes_a_scale = [](double factor) { return factor != 1; };
      if (std::any_of(advised.factor_per_head.begin(), advised.factor_per_head.end(),
                      changes_a_scale))
        changes.push_back(advised);
    }
    if (const Error error =
            what_if(layer.query, layer.key, layer.options, changes, &input.what_ifs))
      throw Failure(layer.label + ": " + error.message());
    progress();
  }
}

}  // namespace poise::cli
