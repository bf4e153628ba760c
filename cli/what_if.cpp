// The temperatures of --what-if, read and run. The contract is in what_if.h.
//
// In: text, layers. Out: WhatIfs, and their statistics beside those of the layers. Must not happen
// here: judging anything but what is advised.
#include "what_if.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "failure.h"
#include "inputs.h"

namespace poise::cli {
namespace {

// The number behind "name=", nullopt when the item is another one.
std::optional<double> number_after(const std::string& item, const std::string& name) {
  if (item.rfind(name + "=", 0) != 0) return std::nullopt;
  if (const auto value = parse_number(item.substr(name.size() + 1))) return value;
  throw usage_failure("--what-if: '" + item + "' has no number behind " + name + "=");
}

void add_item(const std::string& item, WhatIfList* list) {
  WhatIf change;
  for (const auto& [name, wanted] : {std::pair{"undivided", &list->undivided},
                                     {"1/D", &list->over_dim},
                                     {"advised", &list->advised}}) {
    if (item != name) continue;
    *wanted = true;
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
    throw usage_failure("--what-if: '" + item +
                        "' is neither a number, undivided, 1/D, advised, qk-norm, softcap=NUMBER, "
                        "log-n=NUMBER nor none");
  }
  list->changes.push_back(change);
}

// What each head's scale is to be multiplied by to become `scale`; 1 where no factor does that.
std::vector<double> factors_to(double scale, const Stats& stats) {
  std::vector<double> factors;
  for (const HeadStats& head : stats.heads)
    factors.push_back(head.scale == 0 ? 1 : scale / head.scale);
  return factors;
}

// Adds the change unless it leaves every head as it is.
void add_factors(const std::string& label, std::vector<double> factors,
                 std::vector<WhatIf>* changes) {
  const auto changes_a_scale = [](double factor) { return factor != 1; };
  if (std::none_of(factors.begin(), factors.end(), changes_a_scale)) return;
  WhatIf change;
  change.label = label;
  change.factor_per_head = std::move(factors);
  changes->push_back(std::move(change));
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
    const double dim = static_cast<double>(layer.query.extent(3));
    if (list.undivided) add_factors("scale 1", factors_to(1, input.stats), &changes);
    if (list.over_dim) add_factors("scale 1/D", factors_to(1 / dim, input.stats), &changes);
    if (list.advised)
      add_factors("advised scale", advised_factors(judge(input.stats, {}, context)), &changes);
    if (const Error error =
            what_if(layer.query, layer.key, layer.options, changes, &input.what_ifs))
      throw Failure(layer.label + ": " + error.message());
    progress();
  }
}

}  // namespace poise::cli
