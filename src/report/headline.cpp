// The verdict in one sentence. In: judged heads. Out: an alarming clause (may be empty) and the
// rest. What it says of "the other heads" it has checked on each of them.
#include "report/findings.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace poise::report {
namespace {

// "are saturated" / "is saturated": the group's trouble as the headline's verb.
std::string predicate(const Report& report, const FlagGroup& group) {
  const auto n = static_cast<std::int64_t>(group.heads.size());
  const bool mild = group.severity <= Severity::warn;
  const auto is = [&](const char* rest) { return agree(n, "is ", "are ") + std::string(rest); };
  switch (group.kind) {
    case VerdictKind::overflow_f16:
      return mild ? agree(n, "comes close to overflowing float16",
                          "come close to overflowing float16")
                  : agree(n, "overflows float16", "overflow float16");
    case VerdictKind::precision_16bit:
      return mild ? agree(n, "loses precision in 16-bit scores", "lose precision in 16-bit scores")
                  : is("too large for 16-bit scores");
    case VerdictKind::tie_bias_bf16:
      return is("biased by ties in bfloat16");
    case VerdictKind::exploding:
      return is("exploding");
    case VerdictKind::hot:
      return heats_up(report, group) ? agree(n, "heats up", "heat up")
                                     : agree(n, "runs hot", "run hot");
    case VerdictKind::saturated:
      return mild ? is("one-hot, perhaps by design") : is("saturated");
    case VerdictKind::dead_gradient:
      return std::string(agree(n, "passes", "pass")) + " almost no gradient" +
             (mild ? ", perhaps by design" : "");
    case VerdictKind::diffuse:
      return is("nearly uniform");
    case VerdictKind::peaked_by_design:
    case VerdictKind::sink_dominated:
    case VerdictKind::healthy:
      break;
  }
  return is("flagged");
}

std::string where(const Report& report, const std::vector<int>& heads) {
  std::set<int> layers;
  for (const int i : heads) layers.insert(report.heads[static_cast<std::size_t>(i)].layer);
  const ReportHead& first = report.heads[static_cast<std::size_t>(heads[0])];
  if (heads.size() == 1) return first.name;
  if (report.layers == 1) return "";
  if (layers.size() == 1) {
    return (heads.size() == 2 ? "both in " : "all in ") +
           report.layer_labels[static_cast<std::size_t>(first.layer)];
  }
  const auto count = static_cast<std::int64_t>(layers.size());
  return count == report.layers ? "in every layer"
                                : "in " + fixed(static_cast<double>(count), 0) + " of " +
                                      plural(report.layers, "layer");
}

bool overflow_is_far(const Report& report) {
  return nonfinite_rows(report) == 0 && largest_dot(report) < report.input.thresholds.f16_warn;
}

// True when every head outside the group has a measured gain and no dead-gradient flag.
bool others_pass_gradient(const Report& report, const std::vector<int>& group) {
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const ReportHead& head = report.heads[i];
    if (std::find(group.begin(), group.end(), static_cast<int>(i)) != group.end()) continue;
    const bool dead = find_flag(head, VerdictKind::dead_gradient) != nullptr;
    if (dead || std::isnan(head.health.readout.gain)) return false;
  }
  return true;
}

std::string rest_of(const Report& report, const FlagGroup& group) {
  const auto others = static_cast<std::int64_t>(report.heads.size() - group.heads.size());
  const bool harmless = overflow_is_far(report);
  if (others == 0) return harmless ? " Nothing overflows." : "";
  std::int64_t troubled = 0;
  bool sick = false;  // as bad as a verdict gets without being the headline
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const bool in_group =
        std::find(group.heads.begin(), group.heads.end(), static_cast<int>(i)) != group.heads.end();
    if (in_group) continue;
    troubled += report.heads[i].health.severity >= Severity::warn ? 1 : 0;
    sick |= report.heads[i].health.severity >= Severity::bad;
  }
  const std::string subject =
      others == 1 ? " The other one " : " The other " + fixed(static_cast<double>(others), 0) + " ";
  std::string text;
  if (!sick && others_pass_gradient(report, group.heads)) {
    text = subject + agree(others, "passes gradient", "pass gradient");
  } else if (troubled == 0) {
    text = subject + agree(others, "needs no change", "need no change");
  } else {
    text = " " + fixed(static_cast<double>(troubled), 0) + " of the other " +
           fixed(static_cast<double>(others), 0) + agree(troubled, " has", " have") +
           " other troubles";
  }
  return text + (harmless ? ", and nothing overflows." : ".");
}

std::string calm_headline(const Report& report) {
  const auto heads = static_cast<std::int64_t>(report.heads.size());
  const auto unmarked = report.counts[static_cast<std::size_t>(Severity::healthy)];
  std::string text;
  if (heads == 1) {
    text = unmarked == 1 ? "The one head is healthy" : "The one head is in no trouble";
  } else if (unmarked == heads) {
    text =
        (heads == 2 ? "Both heads" : "All " + plural(heads, "head")) + std::string(" are healthy");
  } else {
    text = "None of the " + plural(heads, "head") + " is in trouble";
  }
  const bool gradient = others_pass_gradient(report, {});
  const bool harmless = overflow_is_far(report);
  if (gradient && harmless) return text + ": gradient passes, and nothing overflows.";
  if (harmless) return text + ", and nothing overflows.";
  return text + ".";
}

}  // namespace

void write_headline(Report& report) {
  const auto heads = static_cast<std::int64_t>(report.heads.size());
  if (heads == 0) {
    report.headline_rest = "Nothing was measured: there are no heads to judge.";
    return;
  }
  const std::int64_t broken = nonfinite_rows(report);
  if (broken > 0) {
    report.headline_alarm = plural(broken, "row") + agree(broken, " holds", " hold") +
                            " NaN or infinity" + (report.worst >= Severity::warn ? "," : ".");
  }
  if (std::isnan(report.typical_keys)) {
    if (broken == 0) {
      report.headline_rest = "Nothing to judge: no row sees two keys or more.";
    }
    return;
  }
  if (report.worst < Severity::watch) {
    if (broken > 0) {
      report.headline_rest = " No other trouble was found.";
    } else {
      report.headline_rest = calm_headline(report);
    }
    return;
  }
  const FlagGroup group = group_flags(report).front();
  const auto count = static_cast<std::int64_t>(group.heads.size());
  std::string clause;
  if (count == heads) {
    clause = heads == 1   ? "The one head "
             : heads == 2 ? "Both heads "
                          : "All " + plural(heads, "head") + " ";
  } else {
    clause = fixed(static_cast<double>(count), 0) + " of " + plural(heads, "head") + " ";
  }
  clause += predicate(report, group);
  const std::string place = count == heads ? "" : where(report, group.heads);
  if (broken > 0) {
    report.headline_rest = " and " + clause + (place.empty() ? "." : ", " + place + ".");
    return;
  }
  report.headline_alarm = clause + (place.empty() ? "." : ",");
  report.headline_rest = (place.empty() ? "" : " " + place + ".") + rest_of(report, group);
}

}  // namespace poise::report
