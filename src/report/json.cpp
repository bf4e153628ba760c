// The machine face of the report. In: a Report. Out: one JSON object, keys always in this order.
// Everything printed is a member of the model; nothing is rounded. Schema: docs/report-json.md.
#include <poise/report.h>

#include "report/grid.h"
#include "report/json_value.h"

#include <cmath>

namespace poise {
namespace {

using report::Json;
using report::json_number;

const char* name(JudgeContext::Storage storage) {
  switch (storage) {
    case JudgeContext::Storage::f32:
      return "f32";
    case JudgeContext::Storage::f16:
      return "f16";
    case JudgeContext::Storage::bf16:
      return "bf16";
  }
  return "";
}

Json measured(const Report& report) {
  const ReportInput& in = report.input;
  return {{"title", in.title},
          {"model", in.model},
          {"licence", in.licence},
          {"text", in.text},
          {"precision", in.precision},
          {"mask", in.mask},
          {"isa", in.isa},
          {"threads", in.threads},
          {"date", in.date},
          {"command", in.command},
          {"attention_ms", json_number(in.attention_ms)},
          {"measuring_percent", json_number(in.measuring_percent)},
          {"batch", in.batch},
          {"q_len", in.q_len},
          {"kv_len", in.kv_len},
          {"head_dim", report.head_dim},
          {"layers", report.layers},
          {"heads", report.heads.size()},
          {"rows", report.rows},
          {"level", name(report.level)}};
}

Json rules(const Report& report) {
  const JudgeContext& context = report.input.context;
  Json thresholds = Json::array();
  for (const ThresholdInfo& rule : list_thresholds(report.input.thresholds)) {
    thresholds.push_back({{"name", rule.name},
                          {"value", json_number(rule.value)},
                          {"meaning", rule.meaning},
                          {"source", rule.source}});
  }
  return {{"scores_stored", name(context.scores_stored)},
          {"pv_in_bf16", context.pv_in_bf16},
          {"at_initialisation", context.at_initialisation},
          {"layers_share_weights", context.layers_share_weights},
          {"thresholds", std::move(thresholds)}};
}

Json verdict(const Report& report) {
  Json counts = Json::object();
  for (int s = kSeverities - 1; s >= 0; --s) {
    counts[name(static_cast<Severity>(s))] = report.counts[static_cast<std::size_t>(s)];
  }
  return {{"worst", name(report.worst)},
          {"headline", report.headline_alarm + report.headline_rest},
          {"counts", std::move(counts)}};
}

Json findings(const Report& report) {
  Json all = Json::array();
  for (const Finding& finding : report.findings) {
    all.push_back({{"severity", name(finding.severity)},
                   {"claim", finding.claim},
                   {"numbers", finding.numbers},
                   {"remedy", finding.remedy}});
  }
  return all;
}

Json readout(const Readout& r) {
  return {{"sigma", json_number(r.sigma)},
          {"keys", json_number(r.keys)},
          {"x", json_number(r.x)},
          {"target_sigma", json_number(r.target_sigma)},
          {"factor", json_number(r.factor)},
          {"max_score", json_number(r.max_score)},
          {"logit_sigma", json_number(r.logit_sigma)},
          {"max_logit", json_number(r.max_logit)},
          {"max_abs_logit", json_number(r.max_abs_logit)},
          {"f16_step", json_number(r.f16_step)},
          {"bf16_step", json_number(r.bf16_step)},
          {"max_abs_dot", json_number(r.max_abs_dot)},
          {"f16_headroom_bits", json_number(r.f16_headroom_bits)},
          {"entropy_ratio", json_number(r.entropy_ratio)},
          {"kl", json_number(r.kl)},
          {"top1", json_number(r.top1)},
          {"above_99", json_number(r.above_99)},
          {"trace", json_number(r.trace)},
          {"gain", json_number(r.gain)},
          {"dead", json_number(r.dead)},
          {"effective_keys", json_number(r.effective_keys)},
          {"near_tie", json_number(r.near_tie)},
          {"entropy_slope", json_number(r.entropy_slope)},
          {"sink_key", r.sink_key},
          {"sink_weight", json_number(r.sink_weight)},
          {"argmax_column", r.argmax_column},
          {"argmax_column_share", json_number(r.argmax_column_share)},
          {"argmax_offset", r.argmax_offset},
          {"argmax_offset_share", json_number(r.argmax_offset_share)}};
}

// What backward measured beside what forward expects; only heads that have it get the member.
Json gradient(const ReportHead& h) {
  const Readout& r = h.health.readout;
  return {{"measured_rows", h.gradient_rows},
          {"silent_rows", h.silent_rows},
          {"nonfinite_rows", h.nonfinite_gradient_rows},
          {"transmission", json_number(r.transmission)},
          {"expected_transmission", json_number(r.expected_transmission)},
          {"gain", json_number(r.passed_gain)},
          {"dead", json_number(r.passed_dead)},
          {"dq_norm", json_number(h.dq_norm)},
          {"dk_norm", json_number(h.dk_norm)},
          {"dv_norm", json_number(h.dv_norm)}};
}

// The head at other temperatures, itself first; only heads that were run again get the member.
Json what_ifs(const ReportHead& h) {
  Json all = Json::array();
  for (const WhatIfReadout& w : h.what_ifs) {
    all.push_back({{"label", w.label},
                   {"scale", json_number(w.scale)},
                   {"softcap", json_number(w.softcap)},
                   {"sigma", json_number(w.sigma)},
                   {"entropy", json_number(w.entropy)},
                   {"entropy_ratio", json_number(w.entropy_ratio)},
                   {"above_99", json_number(w.above_99)},
                   {"trace", json_number(w.trace)},
                   {"gain", json_number(w.gain)},
                   {"expected_transmission", json_number(w.expected_transmission)},
                   {"first_order_entropy_change", json_number(w.first_order_entropy_change)}});
  }
  return all;
}

Json variance(const Expectation& e) {
  return {{"measured", json_number(e.measured)},
          {"iid", json_number(e.iid)},
          {"norms", json_number(e.norms)},
          {"full", json_number(e.full)},
          {"norm_factor", json_number(e.norm_factor)},
          {"alignment_factor", json_number(e.alignment_factor)},
          {"moments_known", e.moments_known},
          {"assumption_holds", e.assumption_holds},
          {"assumption", e.assumption}};
}

// Every role, so that a script needs no case of its own: 1 = leave it.
Json factors(const WeightFactors& f) {
  return {{"scale", json_number(f.scale)},
          {"query", json_number(f.query)},
          {"key", json_number(f.key)},
          {"query_rope", json_number(f.query_rope)},
          {"key_rope", json_number(f.key_rope)}};
}

Json advice(const HeadAdvice& a) {
  return {{"rule", name(a.facts.rule)},
          {"tau", json_number(a.facts.tau)},
          {"gamma", json_number(a.gamma)},
          {"clip", factors(a.clip)},
          {"clip_mla", factors(split_factor(a.gamma, WeightRule::mla))},
          {"sigma", json_number(a.facts.sigma)},
          {"target_sigma", json_number(a.facts.target_sigma)},
          {"spread_factor", json_number(a.spread_factor)},
          {"spread", factors(a.spread)},
          {"text", to_text(a)}};
}

// Only the bins in use: counts of bins first_bin, first_bin + 1, ...
Json histogram(const HeadHistogram& h) {
  if (h.counts.empty()) return nullptr;
  std::size_t first = 0, last = h.counts.size();
  while (first < last && h.counts[first] == 0) ++first;
  while (last > first && h.counts[last - 1] == 0) --last;
  const auto begin = h.counts.begin();
  return {{"low", json_number(h.low)},
          {"width", json_number(h.width)},
          {"below", h.below},
          {"above", h.above},
          {"first_bin", first},
          {"counts", std::vector<std::int64_t>(begin + static_cast<std::ptrdiff_t>(first),
                                               begin + static_cast<std::ptrdiff_t>(last))}};
}

Json head(const Report& report, const ReportHead& h) {
  Json flags = Json::array();
  for (const Flag& flag : h.health.flags) {
    flags.push_back({{"kind", name(flag.kind)},
                     {"severity", name(flag.severity)},
                     {"evidence", flag.evidence},
                     {"cause", flag.cause},
                     {"remedy", flag.remedy},
                     {"factor", json_number(flag.factor)}});
  }
  Json weights = Json::array();
  for (const double weight : h.tracked_weight) weights.push_back(json_number(weight));
  Json json = {{"name", h.name},
               {"layer", report.input.layers[static_cast<std::size_t>(h.layer)].label},
               {"head", h.head},
               {"verdict", name(h.health.verdict)},
               {"severity", name(h.health.severity)},
               {"flags", std::move(flags)},
               {"scale", json_number(h.scale)},
               {"rows", h.rows},
               {"measured_rows", h.measured_rows},
               {"empty_rows", h.empty_rows},
               {"nonfinite_rows", h.nonfinite_rows},
               {"near_tie_rows", h.near_tie_rows},
               {"lse_min", json_number(h.lse_min)},
               {"lse_max", json_number(h.lse_max)},
               {"readout", readout(h.health.readout)},
               {"advice", advice(h.health.advice)},
               {"variance", variance(h.health.expectation)},
               {"tracked_weight", std::move(weights)},
               {"histogram", histogram(h.histogram)}};
  if (h.gradient_rows + h.silent_rows + h.nonfinite_gradient_rows > 0)
    json["gradient"] = gradient(h);
  if (!h.what_ifs.empty()) json["what_ifs"] = what_ifs(h);
  return json;
}

Json growth(const Growth& g) {
  Json json = {{"points", g.points},
               {"rate", json_number(g.rate)},
               {"level", json_number(g.level)},
               {"trend", json_number(g.trend)},
               {"grows", g.grows}};
  json["crossed_step"] = g.crossed_step < 0 ? Json(nullptr) : Json(g.crossed_step);
  json["eta_step"] = json_number(g.eta_step);
  return json;
}

Json series_layer(const ReportSeriesLayer& l) {
  const auto all = [&](auto value) {
    Json values = Json::array();
    for (const SeriesPoint& point : l.layer.points) values.push_back(value(point));
    return values;
  };
  Json heads = Json::array();
  for (std::size_t h = 0; h < l.growth.size(); ++h) {
    heads.push_back({{"max_score", all([h](const SeriesPoint& p) {
                        return json_number(h < p.head_max_score.size() ? p.head_max_score[h]
                                                                       : std::nan(""));
                      })},
                     {"growth", growth(l.growth[h])}});
  }
  return {{"layer", l.layer.label},
          {"steps", all([](const SeriesPoint& p) { return Json(p.step); })},
          {"max_score", all([](const SeriesPoint& p) { return json_number(p.max_score); })},
          {"entropy_ratio", all([](const SeriesPoint& p) { return json_number(p.entropy_ratio); })},
          {"above_99", all([](const SeriesPoint& p) { return json_number(p.above_99); })},
          {"transmission", all([](const SeriesPoint& p) { return json_number(p.transmission); })},
          {"transmission_measured",
           all([](const SeriesPoint& p) { return Json(p.transmission_measured); })},
          {"heads", std::move(heads)}};
}

Json series(const Report& report) {
  const ReportSeries& s = report.series;
  Json layers = Json::array();
  for (const ReportSeriesLayer& layer : s.layers) layers.push_back(series_layer(layer));
  Json json = {{"steps", s.steps},
               {"first_step", s.first_step},
               {"last_step", s.last_step},
               {"tau", json_number(report.input.thresholds.hot_bad)}};
  json["first_to_cross"] = nullptr;
  if (s.hot_layer >= 0) {
    const ReportSeriesLayer& layer = s.layers[static_cast<std::size_t>(s.hot_layer)];
    Json first = growth(layer.growth[static_cast<std::size_t>(layer.hot_head)]);
    first["layer"] = layer.layer.label;
    first["head"] = layer.hot_head;
    json["first_to_cross"] = std::move(first);
  }
  json["first_sick"] = nullptr;
  if (s.sick_layer >= 0) {
    const SeriesLayer& layer = s.layers[static_cast<std::size_t>(s.sick_layer)].layer;
    const SeriesPoint& point = layer.points[static_cast<std::size_t>(s.sick_point)];
    json["first_sick"] = {{"step", point.step},
                          {"layer", layer.label},
                          {"head", point.sick_head},
                          {"verdict", name(point.sick_kind)},
                          {"severity", name(point.sick_severity)}};
  }
  json["layers"] = std::move(layers);
  return json;
}

}  // namespace

std::string to_json(const Report& report) {
  Json heads = Json::array();
  for (const ReportHead& h : report.heads) heads.push_back(head(report, h));
  Json json = {{"schema", "poise.report"}, {"version", kReportSchemaVersion}};
  json["measured"] = measured(report);
  json["verdict"] = verdict(report);
  json["findings"] = findings(report);
  json["rules"] = rules(report);
  if (!report.series.layers.empty()) json["series"] = series(report);
  json["heads"] = std::move(heads);
  return report::dump(json, 1);
}

}  // namespace poise
