// Columns of the table of heads. In: a head of the model. Out: its numbers as text, and which of
// them broke a rule. No layout here.
#include "report/columns.h"

#include "report/findings.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>

namespace poise::report {
namespace {

const Readout& read(const ReportHead& head) { return head.health.readout; }
const Expectation& variance(const ReportHead& head) { return head.health.expectation; }

std::string explained(const ReportHead& head, double factor) {
  return variance(head).moments_known ? fixed(factor, factor < 99.95 ? factor < 9.995 ? 2 : 1 : 0)
                                      : number(std::nan(""));
}

std::string place(const ReportHead& head) {
  const Readout& r = read(head);
  if (!(r.argmax_offset_share > 0)) return number(std::nan(""));
  if (r.argmax_offset_share >= r.argmax_column_share) {
    const auto offset = static_cast<double>(r.argmax_offset);
    return (offset > 0 ? "+" : "") + fixed(offset, 0) + " (" + percent_sign(r.argmax_offset_share) +
           ")";
  }
  return "key " + std::to_string(r.argmax_column) + " (" + percent_sign(r.argmax_column_share) +
         ")";
}

std::string factor(const ReportHead& head) { return number(scale_factor(head)); }

using enum VerdictKind;

}  // namespace

const std::vector<Column>& all_columns() {
  static const std::vector<Column> columns = {
      {"σ", "", true, [](const ReportHead& h) { return spread(read(h).sigma); }, {diffuse}},
      {"x", "", true, [](const ReportHead& h) { return fixed(read(h).x, 2); }, {}},
      {"Var(q·k)", "", true, [](const ReportHead& h) { return number(variance(h).measured); }, {}},
      {"norms",
       "×",
       true,
       [](const ReportHead& h) { return explained(h, variance(h).norm_factor); },
       {}},
      {"align",
       "×",
       true,
       [](const ReportHead& h) { return explained(h, variance(h).alignment_factor); },
       {}},
      {"max",
       "",
       true,
       [](const ReportHead& h) { return fixed(read(h).max_score, 1); },
       {hot, exploding, precision_16bit}},
      {"|q·k|",
       "",
       false,
       [](const ReportHead& h) { return number(read(h).max_abs_dot); },
       {overflow_f16}},
      {"H/ln n",
       "",
       true,
       [](const ReportHead& h) { return fraction(read(h).entropy_ratio); },
       {diffuse}},
      {"top-1", "", false, [](const ReportHead& h) { return fraction(read(h).top1); }, {}},
      {">.99",
       "%",
       true,
       [](const ReportHead& h) { return percent(read(h).above_99); },
       {saturated}},
      {"tr J", "", true, [](const ReportHead& h) { return number(read(h).trace); }, {saturated}},
      {"gain", "", true, [](const ReportHead& h) { return number(read(h).gain); }, {dead_gradient}},
      {"passes",
       "",
       true,
       [](const ReportHead& h) { return number(read(h).transmission); },
       {dead_gradient},
       true},
      {"expected",
       "",
       true,
       [](const ReportHead& h) {
         return number(h.gradient_rows > 0 ? read(h).expected_transmission : std::nan(""));
       },
       {},
       true},
      {"dead",
       "%",
       false,
       [](const ReportHead& h) { return percent(read(h).dead); },
       {dead_gradient}},
      {"ties",
       "%",
       false,
       [](const ReportHead& h) { return percent(read(h).near_tie); },
       {tie_bias_bf16}},
      {"key 0", "%", false, [](const ReportHead& h) { return percent(h.tracked_weight[0]); }, {}},
      {"watches", "", false, place, {}},
      {"factor", "×", true, factor, {saturated, dead_gradient, diffuse, hot}},
  };
  return columns;
}

std::vector<Column> page_columns(const Report& report) {
  std::vector<Column> shown;
  for (const Column& column : all_columns()) {
    if (!column.backward || report.has_gradient) shown.push_back(column);
  }
  return shown;
}

std::vector<Column> columns_of(const Report& report) {
  const std::string unknown = number(std::nan(""));
  std::vector<Column> shown;
  for (const Column& column : all_columns()) {
    const bool some = std::any_of(report.heads.begin(), report.heads.end(),
                                  [&](const ReportHead& h) { return column.text(h) != unknown; });
    if (some) shown.push_back(column);
  }
  return shown;
}

const Flag* broken_rule(const ReportHead& head, const Column& column) {
  for (const VerdictKind kind : column.rules) {
    const Flag* flag = find_flag(head, kind);
    if (flag && flag->severity >= Severity::warn) return flag;
  }
  return nullptr;
}

std::string flag_names(const ReportHead& head) {
  if (head.measured_rows == 0) return "not measured";
  std::vector<std::string> names;
  for (const Flag& flag : head.health.flags) names.emplace_back(name(flag.kind));
  if (names.empty()) return name(VerdictKind::healthy);
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i) text += ", " + names[i];
  return text;
}

}  // namespace poise::report
