// The report's head lines and small facts. In: the model. Out: phrases, unescaped. What is unknown
// is left out, never guessed.
#include "report/facts.h"

#include "report/findings.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace poise::report {
namespace {

std::string whole(std::int64_t value) { return fixed(static_cast<double>(value), 0); }

std::string shape(const Report& report) {
  const ReportInput& in = report.input;
  const auto heads = static_cast<std::int64_t>(report.heads.size());
  const bool alike = heads == std::int64_t{report.layers} * report.widest_layer;
  std::string text =
      alike ? plural(report.layers, "layer") + " × " + plural(report.widest_layer, "head")
            : plural(heads, "head") + " in " + plural(report.layers, "layer");
  if (report.head_dim > 0) text += ", D " + whole(report.head_dim);
  if (in.q_len > 0 && in.kv_len > 0) text += ", " + whole(in.q_len) + " × " + whole(in.kv_len);
  if (in.batch > 1) text += ", batch " + whole(in.batch);
  if (!in.mask.empty()) text += ", " + in.mask;
  if (!in.precision.empty()) text += ", " + in.precision;
  return text;
}

}  // namespace

std::vector<std::string> what_was_measured(const Report& report) {
  std::vector<std::string> facts;
  const std::string& name = report.input.title.empty() ? report.input.model : report.input.title;
  if (!name.empty()) facts.push_back(name);
  if (!report.heads.empty()) facts.push_back(shape(report));
  return facts;
}

std::vector<std::string> how_it_was_measured(const Report& report) {
  const ReportInput& in = report.input;
  std::vector<std::string> facts = {plural(report.rows, "row")};
  std::string machine = in.isa;
  if (in.threads > 0) {
    machine += (machine.empty() ? "" : ", ") + plural(in.threads, "thread");
  }
  if (!machine.empty()) facts.push_back(machine);
  if (!in.date.empty()) facts.push_back(in.date);
  std::string cost;
  if (!std::isnan(in.attention_ms)) cost = "attention " + number(in.attention_ms) + " ms";
  if (!std::isnan(in.measuring_percent)) {
    // Rows of a few dozen keys cost more to sum up than to compute: a percentage would say nothing.
    const double extra = in.measuring_percent;
    const bool as_time = extra >= 100 && !std::isnan(in.attention_ms);
    cost += (cost.empty() ? "" : ", ") + std::string("measuring ") + (extra < 0 ? "" : "+ ") +
            (as_time ? number(in.attention_ms * extra / 100) + " ms" : fixed(extra, 0) + " %");
  }
  if (!cost.empty()) facts.push_back(cost);
  return facts;
}

std::vector<SeverityCount> severity_counts(const Report& report) {
  std::vector<SeverityCount> counts;
  if (std::isnan(report.typical_keys)) return counts;  // nobody was judged
  for (int s = kSeverities - 1; s >= 0; --s) {
    const int heads = report.counts[static_cast<std::size_t>(s)];
    const auto severity = static_cast<Severity>(s);
    if (heads > 0 || severity == Severity::healthy) {
      counts.push_back({severity, heads});
    }
  }
  const int judged = std::accumulate(report.counts.begin(), report.counts.end(), 0);
  const int others = static_cast<int>(report.heads.size()) - judged;
  if (others > 0) counts.push_back({Severity::healthy, others, false});
  return counts;
}

std::string words(const SeverityCount& count) {
  return count.measured ? name(count.severity) : "not measured";
}

std::vector<Fact> numeric_facts(const Report& report) {
  std::int64_t empty = 0, ties = 0, measured = 0;
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
  for (const ReportHead& head : report.heads) {
    empty += head.empty_rows;
    ties += head.near_tie_rows;
    measured += head.measured_rows;
    lowest = std::min(lowest, head.lse_min);
    highest = std::max(highest, head.lse_max);
  }
  const auto of = [](std::int64_t part, std::int64_t all) {
    return whole(part) + " of " + whole(all);
  };
  std::vector<Fact> facts = {
      {"rows with NaN or infinity", of(nonfinite_rows(report), report.rows)},
      {"fully masked rows", of(empty, report.rows)},
      {"rows with a near tie", of(ties, measured)},
  };
  const double dot = largest_dot(report);
  if (!std::isnan(dot)) facts.push_back({"largest |q·k|", number(dot)});
  if (lowest <= highest) {
    facts.push_back(
        {"log-sum-exp, lowest to highest", fixed(lowest, 1) + " to " + fixed(highest, 1)});
  }
  return facts;
}

}  // namespace poise::report
