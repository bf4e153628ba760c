// The words of the report: the verdict in one sentence and at most five numbered findings.
// In: judged heads. Out: sentences, not yet escaped; names from outside are in them as they came.
// Not here: rules (they fired in judge()), markup.
#pragma once

#include <poise/report.h>

#include <string>
#include <vector>

namespace poise::report {

inline constexpr std::size_t kMaxFindings = 5;

// Heads in which the same rule fired at the same severity, the widest first.
struct FlagGroup {
  VerdictKind kind;
  Severity severity;
  std::vector<int> heads;  // positions in Report::heads
};
// All groups: the most severe first, of these the largest, ties in the order of VerdictKind.
std::vector<FlagGroup> group_flags(const Report& report);

// The finding of one group; severity is left to the caller.
Finding describe(const Report& report, const FlagGroup& group);

// The scale of an undivided product, when the division by √D is what is missing; and that scale in
// words, "1/√64 = 0.125".
bool scale_forgotten(const ReportHead& head, std::int64_t head_dim);
std::string usual_scale(std::int64_t head_dim);

// True of hot heads whose scores are still small: their growth over a series fired the rule.
bool heats_up(const Report& report, const FlagGroup& group);

// Needs heads, counts, order and the summary numbers of the report; everything else is ignored.
std::vector<Finding> find_findings(const Report& report);
// Fills headline_alarm and headline_rest.
void write_headline(Report& report);

// The flag of this kind of a head; null when it did not fire.
const Flag* find_flag(const ReportHead& head, VerdictKind kind);

// What the scale of a head is to be multiplied by: what flags of shape ask for, else QK-clip's
// gamma where the head is hot; NaN where neither.
double scale_factor(const ReportHead& head);

std::int64_t nonfinite_rows(const Report& report);
double largest_dot(const Report& report);  // largest |q.k|; NaN when nothing was measured
// How a sentence calls a key: "token c" if it has one, spelled as given (c and C may be different
// tokens), else "key 3".
std::string key_name(const Report& report, std::int64_t key);

}  // namespace poise::report
