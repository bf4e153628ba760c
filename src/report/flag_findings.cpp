// One finding per rule that fired: the rule's claim, the numbers of its heads, the remedy with its
// factor. In: a group of heads with the same flag. Out: a finding in sentences that are right for
// one head, two or many. Remedies come from the flags (src/verdicts_*.cpp); here they are joined
// over heads.
#include "report/findings.h"

#include "report/series.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace poise::report {
namespace {

constexpr double kFloat16Max = 65504;  // largest finite value (IEEE 754 binary16)

const ReportHead& at(const Report& report, int head) {
  return report.heads[static_cast<std::size_t>(head)];
}

std::int64_t count(const FlagGroup& group) { return static_cast<std::int64_t>(group.heads.size()); }

std::string names(const Report& report, const std::vector<int>& heads) {
  std::vector<std::string> all;
  for (const int i : heads) all.push_back(at(report, i).name);
  return name_list(all);
}

// The values of up to three heads, "15.2 and 14.8"; of more, their range "3.1 to 15.2".
template <class Value, class Text>
std::string values(const Report& report, const std::vector<int>& heads, Value value, Text text) {
  std::vector<double> all;
  for (const int i : heads) all.push_back(value(at(report, i)));
  std::vector<std::string> words;
  for (const double v : all) words.push_back(text(v));
  const bool same = std::all_of(words.begin(), words.end(),
                                [&](const std::string& word) { return word == words[0]; });
  if (same) return words[0];
  if (all.size() <= 3) return list(words);
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  return text(*low) + " to " + text(*high);
}

template <class Value>
int argmax(const Report& report, const std::vector<int>& heads, Value value) {
  return *std::max_element(heads.begin(), heads.end(), [&](int a, int b) {
    return value(at(report, a)) < value(at(report, b));
  });
}

std::string place_of_argmax(const Report& report, const ReportHead& head) {
  const Readout& r = head.health.readout;
  const double often = report.input.thresholds.peaked_place_share;
  if (r.argmax_offset_share >= often) {
    switch (r.argmax_offset) {
      case -1:
        return "the previous token";
      case 0:
        return "their own token";
      case 1:
        return "the next token";
      default:
        return "the token " + fixed(std::abs(static_cast<double>(r.argmax_offset)), 0) + " places" +
               (r.argmax_offset < 0 ? " before" : " after");
    }
  }
  if (r.argmax_column_share >= often) return key_name(report, r.argmax_column);
  return "";
}

// "They watch the previous and the next token." or empty when some head has no fixed place.
std::string places(const Report& report, const std::vector<int>& heads) {
  std::vector<std::string> all;
  for (const int i : heads) {
    const std::string place = place_of_argmax(report, at(report, i));
    if (place.empty()) return "";
    if (std::find(all.begin(), all.end(), place) == all.end()) all.push_back(place);
  }
  const std::string subject = heads.size() == 1 ? "It watches " : "They watch ";
  if (all.size() > 2) return subject + "one place each";
  if (all.size() == 2 && all[0] == "the previous token" && all[1] == "the next token") {
    return subject + "the previous and the next token";
  }
  return subject + list(all);
}

std::string scale_remedy(const Report& report, const FlagGroup& group) {
  const auto factor = [&](const ReportHead& head) {
    const Flag* flag = find_flag(head, group.kind);
    return flag ? flag->factor : std::numeric_limits<double>::quiet_NaN();
  };
  for (const int i : group.heads) {
    if (std::isnan(factor(at(report, i)))) return "";
  }
  std::string text = "scale " + values(report, group.heads, factor, times);
  if (count(group) > 3) text += " (each head’s factor is in the table)";
  if (report.input.context.layers_share_weights && report.layers > 1) {
    return text + "; " +
           (report.layers == 2 ? "both layers" : "all " + plural(report.layers, "layer")) +
           " share their weights, so change the scale, not Wq and Wk";
  }
  const auto all_are = [&](WeightRule rule) {
    return std::all_of(group.heads.begin(), group.heads.end(),
                       [&](int i) { return at(report, i).health.advice.facts.rule == rule; });
  };
  const auto query = [&](const ReportHead& head) {
    return split_factor(factor(head), head.health.advice.facts.rule).query;
  };
  if (all_are(WeightRule::gqa))
    return text + ", or Wq of the head " + values(report, group.heads, query, times);
  if (!all_are(WeightRule::mha)) return text;
  return text + ", or Wq and Wk of the head " + values(report, group.heads, query, times) + " each";
}

// The remedy of the most concerned head, for rules whose remedy differs only in its numbers.
std::string flag_remedy(const Report& report, const FlagGroup& group) {
  const ReportHead& head = at(report, group.heads[0]);
  std::string text = find_flag(head, group.kind)->remedy;
  while (!text.empty() && text.back() == '.') text.pop_back();
  if (count(group) > 1 && !text.empty()) text += " (" + head.name + ")";
  return text;
}

std::string keys_clause(const Report& report) {
  if (std::isnan(report.typical_keys)) return "";
  const std::string keys = fixed(report.typical_keys, 0);
  return " for " + keys + (keys == "1" ? " key" : " keys");
}

Finding saturated(const Report& report, const FlagGroup& group) {
  const auto share = [](const ReportHead& head) { return head.health.readout.above_99; };
  const bool one_hot = std::all_of(group.heads.begin(), group.heads.end(), [&](int i) {
    return share(at(report, i)) >= report.input.thresholds.saturated_share;
  });
  const bool mild = group.severity <= Severity::warn;
  Finding f;
  f.claim = names(report, group.heads) + agree(count(group), " is ", " are ") +
            (one_hot ? "one-hot" : "saturated") + (mild ? ", perhaps by design." : ".");
  // As judged: without the sink where there is one, so that σ times the factor is the target.
  const auto facts = [](const ReportHead& h) { return h.health.advice.facts; };
  f.numbers =
      "Spread σ " +
      values(
          report, group.heads, [&](const ReportHead& h) { return facts(h).sigma; }, spread) +
      ", target " + number(facts(at(report, group.heads[0])).target_sigma) + keys_clause(report) +
      "; " + values(report, group.heads, share, percent_sign) +
      " of rows put more than .99 on one key.";
  if (const std::string place = places(report, group.heads); !place.empty()) {
    f.numbers += " " + place + ": if that is " + agree(count(group), "its", "their") +
                 " job, leave " + agree(count(group), "it.", "them.");
  }
  const bool sinks = std::any_of(group.heads.begin(), group.heads.end(), [&](int i) {
    return find_flag(at(report, i), VerdictKind::sink_dominated) != nullptr;
  });
  if (sinks) f.numbers += " Heads with a sink are judged without it: σ is of the other keys.";
  if (scale_forgotten(at(report, group.heads[0]), report.head_dim)) {
    f.numbers +=
        " The scale is 1: the division by √" + std::to_string(report.head_dim) + " was forgotten.";
    f.remedy = "scale " + usual_scale(report.head_dim) + ", then measure again";
  } else {
    f.remedy = (mild ? "if not: " : "") + scale_remedy(report, group);
  }
  f.section = "scores";
  return f;
}

// What of the gradient arrived in those heads that backward measured; empty without any.
std::string transmission_clause(const Report& report, const std::vector<int>& group) {
  const auto measured = [](const ReportHead& h) { return h.health.readout.transmission; };
  const auto expected = [](const ReportHead& h) { return h.health.readout.expected_transmission; };
  std::vector<int> heads;
  for (const int i : group) {
    const bool both = !std::isnan(measured(at(report, i))) && !std::isnan(expected(at(report, i)));
    if (both) heads.push_back(i);
  }
  if (heads.empty()) return "";
  return "Of the gradients sent to the weights " + values(report, heads, measured, number) +
         " arrived at the scores, where " + values(report, heads, expected, number) +
         " is expected of independent ones.";
}

Finding dead_gradient(const Report& report, const FlagGroup& group) {
  Finding f;
  f.claim =
      names(report, group.heads) + agree(count(group), " passes", " pass") + " almost no gradient.";
  f.section = "gradient";
  const std::string transmission = transmission_clause(report, group.heads);
  const bool gain_to_blame = std::all_of(group.heads.begin(), group.heads.end(), [&](int i) {
    return at(report, i).health.readout.gain < report.input.thresholds.dead_gain;
  });
  if (!gain_to_blame) {
    f.numbers = transmission;
    f.remedy = flag_remedy(report, group);
    return f;
  }
  f.numbers = "Median gain " +
              values(
                  report, group.heads, [](const ReportHead& h) { return h.health.readout.gain; },
                  [](double gain) { return number(gain); }) +
              ", where a uniform row has 1 and below " + number(report.input.thresholds.dead_gain) +
              " is dead; " +
              values(
                  report, group.heads, [](const ReportHead& h) { return h.health.readout.dead; },
                  percent_sign) +
              " of rows are dead.";
  if (!transmission.empty()) f.numbers += " " + transmission;
  const bool also_saturated = std::all_of(group.heads.begin(), group.heads.end(), [&](int i) {
    return find_flag(at(report, i), VerdictKind::saturated) != nullptr;
  });
  if (scale_forgotten(at(report, group.heads[0]), report.head_dim)) {
    f.remedy = "scale " + usual_scale(report.head_dim) + ", then measure again";
  } else if (also_saturated) {
    f.remedy = "the same cure: a cooler softmax passes gradient again";
  } else {
    f.remedy = scale_remedy(report, group);
  }
  return f;
}

Finding diffuse(const Report& report, const FlagGroup& group) {
  Finding f;
  f.claim = names(report, group.heads) + agree(count(group), " is", " are") + " nearly uniform.";
  f.numbers =
      "Spread σ " +
      values(
          report, group.heads, [](const ReportHead& h) { return h.health.readout.sigma; }, spread) +
      "; " +
      values(
          report, group.heads, [](const ReportHead& h) { return h.health.readout.kl; }, number) +
      " nats from uniform, where less than " + number(report.input.thresholds.diffuse_kl) +
      " says nothing about the keys.";
  const std::string scale = scale_remedy(report, group);
  f.remedy = scale.empty() ? flag_remedy(report, group) : scale;
  f.section = "softmax";
  return f;
}

Finding hot(const Report& report, const FlagGroup& group) {
  const auto score = [](const ReportHead& head) { return head.health.readout.max_score; };
  Finding f;
  f.claim = names(report, group.heads) + (heats_up(report, group)
                                              ? agree(count(group), " heats up.", " heat up.")
                                              : agree(count(group), " runs hot.", " run hot."));
  f.numbers = "Largest score " + values(report, group.heads, score, number);
  f.numbers += heats_up(report, group) ? "."
                                       : "; above " + number(report.input.thresholds.hot_watch) +
                                             " is watched, above " +
                                             number(report.input.thresholds.hot_bad) + " is bad.";
  const ReportHead& first = at(report, group.heads[0]);
  if (first.health.readout.max_logit < first.health.readout.max_score)
    f.numbers += " That is before softcap and bias; the softmax sees at most " +
                 number(first.health.readout.max_logit) + " (" + first.name + ").";
  if (const std::string growth = growth_clause(report, group.heads); !growth.empty())
    f.numbers += " " + growth;
  f.remedy = flag_remedy(report, group);
  f.section = heats_up(report, group) ? "time" : "heads";
  return f;
}

Finding exploding(const Report& report, const FlagGroup& group) {
  const auto logit = [](const ReportHead& head) { return head.health.readout.max_abs_logit; };
  Finding f;
  f.claim = "The logits of " + names(report, group.heads) + " explode.";
  f.numbers = "Largest |logit| " + values(report, group.heads, logit, number) +
              ", where runs beyond " + number(report.input.thresholds.exploding_critical) +
              " diverged.";
  f.remedy = flag_remedy(report, group);
  f.section = "numbers";
  return f;
}

Finding precision(const Report& report, const FlagGroup& group) {
  const auto logit = [](const ReportHead& head) { return head.health.readout.max_abs_logit; };
  const bool half = report.input.context.scores_stored == JudgeContext::Storage::f16;
  Finding f;
  f.claim = names(report, group.heads) + agree(count(group), " loses", " lose") +
            " precision in 16-bit scores.";
  f.numbers = "Largest |logit| " + values(report, group.heads, logit, number) +
              (half ? ", stored in float16." : ", stored in bfloat16.");
  f.remedy = flag_remedy(report, group);
  f.section = "numbers";
  return f;
}

Finding overflow(const Report& report, const FlagGroup& group) {
  const auto dot = [](const ReportHead& head) { return head.health.readout.max_abs_dot; };
  const bool over = group.severity == Severity::critical;
  Finding f;
  f.claim = names(report, group.heads) +
            (over ? agree(count(group), " overflows float16.", " overflow float16.")
                  : agree(count(group), " comes close to overflowing float16.",
                          " come close to overflowing float16."));
  f.numbers = "Largest |q·k| " + values(report, group.heads, dot, number) + "; float16 ends at " +
              number(kFloat16Max) + ".";
  f.remedy = flag_remedy(report, group);
  f.section = "numbers";
  return f;
}

Finding ties(const Report& report, const FlagGroup& group) {
  Finding f;
  f.claim = "Ties bias " + names(report, group.heads) + " in bfloat16.";
  f.numbers = values(
                  report, group.heads,
                  [](const ReportHead& h) { return h.health.readout.near_tie; }, percent_sign) +
              " of rows have a second key within the tie gap of the largest.";
  f.remedy = flag_remedy(report, group);
  f.section = "numbers";
  return f;
}

Finding peaked(const Report& report, const FlagGroup& group) {
  Finding f;
  f.claim = names(report, group.heads) + agree(count(group), " is", " are") + " peaked by design.";
  const std::string place = places(report, group.heads);
  f.numbers = place.empty() ? "" : place + ". ";
  f.numbers +=
      "That looks like " + std::string(agree(count(group), "its", "their")) + " job, not a fault.";
  f.section = "heads";
  return f;
}

Finding sink(const Report& report, const FlagGroup& group) {
  std::map<std::int64_t, int> votes;
  for (const int i : group.heads) ++votes[at(report, i).health.readout.sink_key];
  const auto top = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::int64_t key = top->first;
  std::vector<int> heads;
  for (const int i : group.heads) {
    if (at(report, i).health.readout.sink_key == key) heads.push_back(i);
  }
  const auto weight = [](const ReportHead& head) { return head.health.readout.sink_weight; };
  const ReportHead& strongest = at(report, argmax(report, heads, weight));
  Finding f;
  f.claim = capitalised(key_name(report, key)) + " is a sink in " +
            plural(static_cast<std::int64_t>(heads.size()), "head") + ".";
  f.numbers = "It takes " + std::string(heads.size() > 1 ? "up to " : "") +
              percent_sign(weight(strongest)) + " of the weight (" + strongest.name +
              "). That is normal.";
  f.remedy = "keep key " + std::to_string(key) + " when evicting from a KV cache";
  f.section = "softmax";
  return f;
}

}  // namespace

bool scale_forgotten(const ReportHead& head, std::int64_t head_dim) {
  return head_dim > 1 && std::abs(head.scale - 1) < 1e-6;
}

std::string usual_scale(std::int64_t head_dim) {
  return "1/√" + std::to_string(head_dim) + " = " +
         number(1 / std::sqrt(static_cast<double>(head_dim)));
}

bool heats_up(const Report& report, const FlagGroup& group) {
  return group.kind == VerdictKind::hot &&
         std::all_of(group.heads.begin(), group.heads.end(), [&](int i) {
           return at(report, i).health.readout.max_score < report.input.thresholds.hot_watch;
         });
}

Finding describe(const Report& report, const FlagGroup& group) {
  switch (group.kind) {
    case VerdictKind::overflow_f16:
      return overflow(report, group);
    case VerdictKind::precision_16bit:
      return precision(report, group);
    case VerdictKind::tie_bias_bf16:
      return ties(report, group);
    case VerdictKind::exploding:
      return exploding(report, group);
    case VerdictKind::hot:
      return hot(report, group);
    case VerdictKind::saturated:
      return saturated(report, group);
    case VerdictKind::peaked_by_design:
      return peaked(report, group);
    case VerdictKind::sink_dominated:
      return sink(report, group);
    case VerdictKind::diffuse:
      return diffuse(report, group);
    case VerdictKind::dead_gradient:
      return dead_gradient(report, group);
    case VerdictKind::healthy:
      break;
  }
  return {};
}

}  // namespace poise::report
