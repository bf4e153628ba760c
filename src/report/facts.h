// What was measured and how, in the short phrases that head every report, and the small facts about
// counts and ranges. In: the model. Out: phrases, not yet escaped.
// Not here: verdicts (findings.h), markup.
#pragma once

#include <poise/report.h>

#include <string>
#include <vector>

namespace poise::report {

std::vector<std::string> what_was_measured(const Report& report);    // title, shape
std::vector<std::string> how_it_was_measured(const Report& report);  // rows, machine, ...

// One entry per severity in use, the worst first, healthy last; none when no head was judged.
struct SeverityCount {
  Severity severity;
  int heads;
  bool measured = true;  // false: heads that were not judged, the last entry where there are any
};
// "bad", "healthy", "not measured".
std::string words(const SeverityCount& count);
std::vector<SeverityCount> severity_counts(const Report& report);

// "Numbers": rows that were left out, near ties, range of lse. Label and value.
struct Fact {
  std::string label, value;
};
std::vector<Fact> numeric_facts(const Report& report);

}  // namespace poise::report
