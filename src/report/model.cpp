// build_report(): from statistics and a few facts about the run to everything the faces print.
// In: ReportInput. Out: Report. Judging is done by poise::judge; here heads are named, ordered,
// counted and chosen. No statistics are computed here, and nothing is formatted for a face.
#include <poise/report.h>

#include "report/encoding.h"
#include "report/findings.h"
#include "report/grid.h"
#include "report/labels.h"
#include "report/median.h"
#include "report/series.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace poise {
namespace {

// Longest strings from outside that a face prints, in characters.
constexpr std::size_t kMaxLabel = 32;
constexpr std::size_t kMaxLayerName = 200;  // in JSON: scripts know layers by their whole names
constexpr std::size_t kMaxFact = 200;
constexpr std::size_t kMaxText = 2000;
constexpr std::size_t kMaxTokens = 65536;  // names kept; later keys are called by number

// The input without its statistics, every string valid and of bounded length.
ReportInput facts_of(const ReportInput& input) {
  ReportInput facts;
  const auto fact = [](const std::string& text) { return report::valid_utf8(text, kMaxFact); };
  facts.title = fact(input.title);
  facts.model = fact(input.model);
  facts.licence = fact(input.licence);
  facts.text = report::valid_utf8(input.text, kMaxText);
  facts.precision = fact(input.precision);
  facts.mask = fact(input.mask);
  facts.isa = fact(input.isa);
  facts.threads = input.threads;
  facts.date = fact(input.date);
  facts.command = report::valid_utf8(input.command, kMaxText);
  facts.attention_ms = input.attention_ms;
  facts.measuring_percent = input.measuring_percent;
  facts.batch = input.batch;
  facts.q_len = input.q_len;
  facts.kv_len = input.kv_len;
  for (std::size_t i = 0; i < std::min(input.tokens.size(), kMaxTokens); ++i) {
    facts.tokens.push_back(report::valid_utf8(input.tokens[i], kMaxLabel));
  }
  for (std::size_t i = 0; i < input.layers.size(); ++i) {
    std::string label = report::valid_utf8(input.layers[i].label, kMaxLayerName);
    if (label.empty()) label = "L" + std::to_string(i);
    facts.layers.push_back({std::move(label), {}, std::nullopt, {}});
  }
  facts.context = input.context;
  facts.thresholds = input.thresholds;
  return facts;
}

std::int64_t outside(const Histogram& histogram) { return histogram.below + histogram.above; }

HeadHistogram histogram_of(const LayerInput& layer, std::size_t head) {
  HeadHistogram out;
  if (layer.stats.request.level < StatsLevel::full) return out;
  const Histogram* chosen = &layer.stats.heads[head].histogram;
  if (layer.wide && head < layer.wide->heads.size() && outside(*chosen) > 0) {
    const Histogram& wide = layer.wide->heads[head].histogram;
    if (outside(wide) < outside(*chosen)) chosen = &wide;
  }
  out.below = chosen->below;
  out.above = chosen->above;
  out.total = outside(*chosen);
  for (const std::int64_t n : chosen->counts) out.total += n;
  if (out.total == 0) return {};
  out.low = chosen->low;
  out.width = chosen->width;
  out.counts.assign(chosen->counts.begin(), chosen->counts.end());
  return out;
}

// Near 1 the largest weight is read off its complement, which has the digits.
std::array<double, kTop1Points> top1_logit_of(const HeadStats& stats) {
  constexpr double kSmallest = 1e-12;  // a rest that rounded to 0 still has a place on the axis
  std::array<double, kTop1Points> logit{};
  for (int i = 0; i < kTop1Points; ++i) {
    const double share = static_cast<double>(i) / (kTop1Points - 1);
    const double top = stats.top1.quantile(share), rest = stats.rest.quantile(1 - share);
    logit[static_cast<std::size_t>(i)] = std::log(top / std::max(rest, kSmallest));
  }
  return logit;
}

std::vector<std::string> labels_of(const ReportInput& facts) {
  std::vector<std::string> names;
  for (const LayerInput& layer : facts.layers) names.push_back(layer.label);
  return report::short_labels(names, kMaxLabel);
}

ReportHead head_of(const Report& report, const LayerInput& layer, int position, HeadHealth health) {
  const auto index = static_cast<std::size_t>(health.head);
  const HeadStats& stats = layer.stats.heads[index];
  ReportHead head;
  head.layer = position;
  head.head = health.head;
  head.name =
      report.layer_labels[static_cast<std::size_t>(position)] + " H" + std::to_string(health.head);
  head.scale = stats.scale;
  head.rows = stats.rows;
  head.measured_rows = stats.measured_rows;
  head.empty_rows = stats.empty_rows;
  head.nonfinite_rows = stats.nonfinite_rows;
  head.near_tie_rows = stats.near_tie_rows;
  head.lse_min = stats.lse_min;
  head.lse_max = stats.lse_max;
  head.gradient_rows = stats.gradient.measured_rows;
  head.silent_rows = stats.gradient.silent_rows;
  head.nonfinite_gradient_rows = stats.gradient.nonfinite_rows;
  head.dq_norm = stats.gradient.dq_norm();
  head.dk_norm = stats.gradient.dk_norm();
  head.dv_norm = stats.gradient.dv_norm();
  const bool tracked = layer.stats.request.level == StatsLevel::full && stats.measured_rows > 0;
  head.tracked_weight.fill(std::numeric_limits<double>::quiet_NaN());
  for (std::size_t slot = 0; tracked && slot < kTrackedKeys; ++slot) {
    const std::int64_t key = layer.stats.request.tracked[slot];
    if (key < kTrackedKeys)
      head.tracked_weight[static_cast<std::size_t>(key)] =
          stats.tracked[slot].sum_weight / static_cast<double>(stats.measured_rows);
  }
  for (const GridMetric metric : report::kAllMetrics) {
    head.trouble[static_cast<std::size_t>(metric)] =
        report::trouble(health.readout, metric, report.input.thresholds);
  }
  head.top1_logit = top1_logit_of(stats);
  head.health = std::move(health);
  head.histogram = histogram_of(layer, index);
  head.what_ifs = read_what_ifs(layer.stats, layer.what_ifs, index);
  for (WhatIfReadout& what_if : head.what_ifs)
    what_if.label = report::valid_utf8(what_if.label, kMaxLabel);
  return head;
}

// Widest first; heads without a spread last.
bool wider(const ReportHead& a, const ReportHead& b) {
  const double left = a.health.readout.sigma, right = b.health.readout.sigma;
  if (std::isnan(left) || std::isnan(right)) return !std::isnan(left) && std::isnan(right);
  return left > right;
}

void order_heads(Report& report) {
  for (std::size_t i = 0; i < report.heads.size(); ++i) report.order.push_back(static_cast<int>(i));
  std::stable_sort(report.order.begin(), report.order.end(), [&](int left, int right) {
    const ReportHead& a = report.heads[static_cast<std::size_t>(left)];
    const ReportHead& b = report.heads[static_cast<std::size_t>(right)];
    if (a.health.severity != b.health.severity) return a.health.severity > b.health.severity;
    return wider(a, b);
  });
  if (!report.order.empty()) report.worst_head = report.order.front();
  double nearest = std::numeric_limits<double>::infinity();
  for (const int i : report.order) {
    const ReportHead& head = report.heads[static_cast<std::size_t>(i)];
    const double distance = std::abs(std::log(head.health.readout.sigma));  // NaN never wins
    if (head.health.severity == Severity::healthy && distance < nearest) {
      nearest = distance;
      report.healthy_head = i;
    }
  }
}

template <class Value>
double median_over_heads(const std::vector<ReportHead>& heads, Value value) {
  std::vector<double> all;
  for (const ReportHead& head : heads) {
    if (const double v = value(head); head.measured_rows > 0 && !std::isnan(v)) all.push_back(v);
  }
  return report::median(std::move(all));
}

void summarise(Report& report) {
  for (const ReportHead& head : report.heads) {
    report.rows += head.rows;
    const bool judged = head.measured_rows > 0 || head.health.severity > Severity::healthy;
    if (judged) ++report.counts[static_cast<std::size_t>(head.health.severity)];
    report.worst = std::max(report.worst, head.health.severity);
    report.has_moments |= head.health.expectation.moments_known;
    report.has_histogram |= !head.histogram.counts.empty();
    report.has_gain |= !std::isnan(head.health.readout.gain);
    report.has_gradient |= head.gradient_rows > 0;
    report.has_what_ifs |= !head.what_ifs.empty();
  }
  report.target_sigma = median_over_heads(
      report.heads, [](const ReportHead& head) { return head.health.readout.target_sigma; });
  report.typical_keys = median_over_heads(
      report.heads, [](const ReportHead& head) { return head.health.readout.keys; });
}

}  // namespace

Report build_report(const ReportInput& input) {
  Report report;
  report.input = facts_of(input);
  report.layer_labels = labels_of(report.input);
  report.series = report::build_series(input, kMaxLayerName, kMaxLabel);
  report.layers = static_cast<int>(input.layers.size());
  for (int position = 0; position < report.layers; ++position) {
    const LayerInput& layer = input.layers[static_cast<std::size_t>(position)];
    const Stats& stats = layer.stats;
    report.head_dim = position == 0 || report.head_dim == stats.head_dim ? stats.head_dim : 0;
    report.level =
        position == 0 ? stats.request.level : std::min(report.level, stats.request.level);
    report.widest_layer = std::max(report.widest_layer, static_cast<int>(stats.heads.size()));
    Health health = judge(stats, input.thresholds, input.context);
    for (HeadHealth& head : health.heads) {
      report::judge_series(input, report.series, layer, &head);
      report.heads.push_back(head_of(report, layer, position, std::move(head)));
    }
  }
  order_heads(report);
  summarise(report);
  report.findings = report::find_findings(report);
  report::write_headline(report);
  return report;
}

}  // namespace poise
