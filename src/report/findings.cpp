// Findings: at most five, trouble first, then why scores are as wide as they are, then what is
// normal. In: judged heads of a Report. Out: findings, each a bold claim, the numbers that carry
// it, and a remedy. Sentences of single rules: flag_findings.cpp.
#include "report/findings.h"

#include "report/variance.h"
#include "report/words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace poise::report {
namespace {

const ReportHead& at(const Report& report, int head) {
  return report.heads[static_cast<std::size_t>(head)];
}

Finding nonfinite(const Report& report) {
  const std::int64_t rows = nonfinite_rows(report);
  const auto first = std::find_if(report.heads.begin(), report.heads.end(),
                                  [](const ReportHead& head) { return head.nonfinite_rows > 0; });
  Finding f;
  f.severity = Severity::bad;
  f.claim = plural(rows, "row") + agree(rows, " holds", " hold") + " NaN or infinity.";
  f.numbers = "The first head is " + first->name + "; such rows are left out of every statistic.";
  f.remedy = "look at the inputs of these rows before anything else";
  f.section = "numbers";
  return f;
}

// Why scores are as wide as they are, told of the head that is furthest above the textbook.
Finding variance(const Report& report) {
  const VarianceSummary summary = summarise_variance(report);
  Finding f;
  if (summary.heads == 0) return f;
  const ReportHead& head = at(report, summary.widest);
  const Expectation& e = head.health.expectation;
  const std::string textbook = number(e.iid);
  f.claim = variance_claim(report, summary);
  f.numbers = "Var(q·k) is " + number(e.measured) + " in " + head.name +
              " where the textbook has " + textbook;
  if (!is_wide(e)) {
    f.numbers += ".";
  } else if (!e.moments_known) {
    f.numbers += "; the moments of q and k, which tell why, were not measured.";
  } else {
    f.numbers += ": " + times(e.norm_factor) + " from norms, " + times(e.alignment_factor) +
                 " from aligned q and k.";
    f.remedy = e.norm_factor >= e.alignment_factor
                   ? "when training on: QK-norm, or a lower learning rate for Wq and Wk"
                   : "when training on: scale by 1/D instead of 1/√D, or learn a temperature";
    // Before the division is there, nothing is to be said about what else would help.
    if (scale_forgotten(head, report.head_dim))
      f.remedy = "first the scale " + usual_scale(report.head_dim) + ", then measure again";
  }
  // Wider than the textbook, yet below the spread at which rows freeze: nothing to cure.
  const Readout& r = head.health.readout;
  if (is_wide(e) && r.sigma < r.target_sigma) {
    f.claim = "Scores are wider than the textbook, and not too wide.";
    f.remedy.clear();
  }
  if (summary.heads > 1) {
    f.numbers += " " + fixed(static_cast<double>(summary.above_textbook), 0) + " of " +
                 plural(summary.heads, "head") +
                 agree(summary.above_textbook, " exceeds ", " exceed ") +
                 (report.head_dim > 0 ? textbook : "their D") + "; the median head has " +
                 number(summary.median) + ".";
  }
  f.section = "variance";
  return f;
}

Finding nothing_overflows(const Report& report) {
  const double largest = largest_dot(report);
  double headroom = std::numeric_limits<double>::infinity();
  std::int64_t tied_heads = 0, tied_rows = 0, rows = 0;
  for (const ReportHead& head : report.heads) {
    headroom = std::fmin(headroom, head.health.readout.f16_headroom_bits);
    tied_heads += head.near_tie_rows > 0 ? 1 : 0;
    tied_rows += head.near_tie_rows;
    rows += head.measured_rows;
  }
  Finding f;
  if (!(largest < report.input.thresholds.f16_warn)) return f;
  f.claim = "Nothing overflows.";
  f.numbers = largest == 0 ? "Every q·k is 0."
                           : "Largest |q·k| " + number(largest) + ", " + fixed(headroom, 1) +
                                 " bits under float16’s maximum.";
  if (tied_rows > 0) {
    f.numbers += " Near tie: " + fixed(static_cast<double>(tied_rows), 0) + " of " +
                 plural(rows, "row") + ", in " + plural(tied_heads, "head") + ".";
    f.remedy = "16-bit only: keep logits and P·V in float32";
  }
  f.section = "numbers";
  return f;
}

}  // namespace

const Flag* find_flag(const ReportHead& head, VerdictKind kind) {
  for (const Flag& flag : head.health.flags) {
    if (flag.kind == kind) return &flag;
  }
  return nullptr;
}

double scale_factor(const ReportHead& head) {
  const double of_shape = advised_factor(head.health);
  if (!std::isnan(of_shape)) return of_shape;
  const Flag* hot = find_flag(head, VerdictKind::hot);
  return hot && std::isfinite(hot->factor) ? head.health.advice.gamma : std::nan("");
}

std::int64_t nonfinite_rows(const Report& report) {
  std::int64_t rows = 0;
  for (const ReportHead& head : report.heads) rows += head.nonfinite_rows;
  return rows;
}

double largest_dot(const Report& report) {
  double largest = std::numeric_limits<double>::quiet_NaN();
  for (const ReportHead& head : report.heads) {
    largest = std::fmax(largest, head.health.readout.max_abs_dot);
  }
  return largest >= 0 ? largest : std::numeric_limits<double>::quiet_NaN();
}

std::string key_name(const Report& report, std::int64_t key) {
  const auto& tokens = report.input.tokens;
  const bool named = key >= 0 && key < static_cast<std::int64_t>(tokens.size()) &&
                     !tokens[static_cast<std::size_t>(key)].empty();
  return named ? "token " + tokens[static_cast<std::size_t>(key)] : "key " + std::to_string(key);
}

std::vector<FlagGroup> group_flags(const Report& report) {
  std::vector<FlagGroup> groups;
  for (const int i : report.order) {
    for (const Flag& flag : at(report, i).health.flags) {
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const FlagGroup& group) {
        return group.kind == flag.kind && group.severity == flag.severity;
      });
      if (same == groups.end()) {
        groups.push_back({flag.kind, flag.severity, {i}});
      } else if (same->heads.back() != i) {
        same->heads.push_back(i);
      }
    }
  }
  for (FlagGroup& group : groups) {
    std::stable_sort(group.heads.begin(), group.heads.end(), [&](int a, int b) {
      return at(report, a).health.readout.sigma > at(report, b).health.readout.sigma;
    });
  }
  std::stable_sort(groups.begin(), groups.end(), [](const FlagGroup& a, const FlagGroup& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.heads.size() != b.heads.size() ? a.heads.size() > b.heads.size() : a.kind < b.kind;
  });
  return groups;
}

std::vector<Finding> find_findings(const Report& report) {
  std::vector<Finding> all;
  const auto keep = [&](Finding finding) {
    if (!finding.claim.empty()) all.push_back(std::move(finding));
  };
  // So many troubles come before the reason why scores are wide; the others follow it.
  constexpr std::ptrdiff_t kFirstTroubles = 3;
  if (nonfinite_rows(report) > 0) keep(nonfinite(report));
  const std::vector<FlagGroup> groups = group_flags(report);
  const auto trouble_ends = std::find_if(groups.begin(), groups.end(), [](const FlagGroup& group) {
    return group.severity < Severity::watch;
  });
  const bool saturated_by_design =
      std::any_of(groups.begin(), groups.end(), [](const FlagGroup& group) {
        return group.kind == VerdictKind::saturated && group.severity == Severity::warn;
      });
  const auto tell = [&](auto first, auto last) {
    for (; first != last; ++first) {
      // Heads that are saturated by design have told their place already.
      if (first->kind == VerdictKind::peaked_by_design && saturated_by_design) continue;
      Finding finding = describe(report, *first);
      finding.severity = first->severity;
      keep(std::move(finding));
    }
  };
  const auto first_ends = groups.begin() + std::min(kFirstTroubles, trouble_ends - groups.begin());
  tell(groups.begin(), first_ends);
  keep(variance(report));
  tell(first_ends, groups.end());
  keep(nothing_overflows(report));
  if (all.size() > kMaxFindings) all.resize(kMaxFindings);
  return all;
}

}  // namespace poise::report
