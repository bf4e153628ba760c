// The table of what-ifs. The contract is in what_if.h.
// In: ReportHead::what_ifs of the worst head. Out: one line for each, columns from the left as far
// as the page is wide. What must not happen here: judging which temperature is best.
#include "report/what_if.h"

#include "report/words.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace poise::report {
namespace {

constexpr int kMostLabel = 20;

struct Cell {
  const char* heading;
  std::string (*text)(const WhatIfReadout& now, const WhatIfReadout& then);
};

std::string change(double value) {
  return (value > 0 ? "+" : "") + (value == 0 ? std::string("0") : number(value));
}

// In order of importance: what does not fit is dropped from the end.
const std::vector<Cell>& cells() {
  static const std::vector<Cell> all = {
      {"scale", [](const auto&, const auto& w) { return number(w.scale); }},
      {"σ", [](const auto&, const auto& w) { return spread(w.sigma); }},
      {"entropy", [](const auto&, const auto& w) { return number(w.entropy); }},
      {"change", [](const auto& now, const auto& w) { return change(w.entropy - now.entropy); }},
      {"1st order",
       [](const auto&, const auto& w) { return change(w.first_order_entropy_change); }},
      {"rows>.99 %", [](const auto&, const auto& w) { return percent(w.above_99); }},
      {"tr J", [](const auto&, const auto& w) { return fraction(w.trace); }},
      {"gain", [](const auto&, const auto& w) { return number(w.gain); }},
      {"transmission", [](const auto&, const auto& w) { return number(w.expected_transmission); }},
  };
  return all;
}

}  // namespace

void what_if_table(Terminal& page, const Report& report) {
  if (report.worst_head < 0) return;
  const ReportHead& head = report.heads[static_cast<std::size_t>(report.worst_head)];
  if (head.what_ifs.size() < 2 || head.measured_rows == 0) return;
  const WhatIfReadout& now = head.what_ifs.front();
  int label = 0;
  for (const WhatIfReadout& w : head.what_ifs) label = std::max(label, page.used(w.label));
  label = std::min(label, kMostLabel);
  page.end_line();
  page.paragraph({}, 0,
                 {{"what if " + head.name, Tone::bold},
                  {" ran at another temperature: recomputed by the kernels; entropy in nats, "
                   "change of it recomputed and to first order in ln scale"}});
  int room = page.width() - label;
  std::vector<std::pair<const Cell*, int>> columns;
  for (const Cell& cell : cells()) {
    int width = page.used(cell.heading);
    for (const WhatIfReadout& w : head.what_ifs)
      width = std::max(width, page.used(cell.text(now, w)));
    width += 2;
    if (width > room) break;
    room -= width;
    columns.emplace_back(&cell, width);
  }
  page.left("", label);
  for (const auto& [cell, width] : columns) page.right(cell->heading, width);
  page.end_line();
  for (const WhatIfReadout& w : head.what_ifs) {
    page.left(w.label, label);
    for (const auto& [cell, width] : columns) page.right(cell->text(now, w), width);
    page.end_line();
  }
}

}  // namespace poise::report
