// The table of heads: its columns once, for the terminal and the page.
// In: heads of the model. Out: headings, texts, and which number broke which rule.
// Not here: layout, markup, statistics.
#pragma once

#include <poise/report.h>

#include <string>
#include <vector>

namespace poise::report {

struct Column {
  const char* heading;
  const char* unit;  // printed small beside the heading: "%", "×", or ""
  bool brief;        // part of the short table on the terminal
  std::string (*text)(const ReportHead& head);
  std::vector<VerdictKind> rules;  // rules that read this number
  bool backward = false;           // measured by backward()
};

// Every column there is, in order; the factor is the last.
const std::vector<Column>& all_columns();
// Those of the page's table, which names them in its style sheet and therefore leaves out only the
// numbers of backward() where there are none.
std::vector<Column> page_columns(const Report& report);

// The columns that some head of this report has a value for, in order; the factor is the last.
std::vector<Column> columns_of(const Report& report);

// The flag that this number broke (warn or worse), or null.
const Flag* broken_rule(const ReportHead& head, const Column& column);

// All flags of a head in words, "saturated, dead gradient"; "healthy" without flags; "not measured"
// when no row could be judged.
std::string flag_names(const ReportHead& head);

}  // namespace poise::report
