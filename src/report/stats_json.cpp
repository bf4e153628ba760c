// Stats as JSON and back, bit by bit. In: Stats, or JSON from anywhere. Out: JSON, or Stats.
// Each struct names its fields once, in for_each_field(); the writer and the reader both walk that
// list (fields_json.h), so they cannot differ. Reading trusts nothing: types and ranges are
// checked, and on an error nothing is changed. Schema: docs/report-json.md.
#include <poise/report.h>

#include "report/encoding.h"
#include "report/fields_json.h"
#include "report/stats_json.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

namespace poise {

// The fields. Not in the unnamed namespace: Writer and Reader find them by their argument's
// namespace.
template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, StatsRequest> {
  f("level", x.level);
  f("every", x.every);
  f("histogram_low", x.histogram_low);
  f("histogram_width", x.histogram_width);
  f("stand_in_bias", x.stand_in_bias);
  f("near_tie_gap", x.near_tie_gap);
  f.later("tracked", x.tracked);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, Histogram> {
  f("low", x.low);
  f("width", x.width);
  f("counts", x.counts);
  f("below", x.below);
  f("above", x.above);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, SpreadStats> {
  f("max", x.max);
  f("min", x.min);
  f("sum_mean", x.sum_mean);
  f("sum_variance", x.sum_variance);
  f("sum_mean_squared", x.sum_mean_squared);
  f("sigma", x.sigma);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, TrackedKey> {
  f("sum_weight", x.sum_weight);
  f("rows_without", x.rows_without);
  f("above_99_without", x.above_99_without);
  f("sum_entropy_without", x.sum_entropy_without);
  f("trace_without", x.trace_without);
  f("sigma_without", x.sigma_without);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, SinkColumn> {
  f("key", x.key);
  f("tracked", x.tracked);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, InputMoments> {
  f("q_rows", x.q_rows);
  f("k_rows", x.k_rows);
  f("batches", x.batches);
  f("q_mean", x.q_mean);
  f("q_variance", x.q_variance);
  f("q_skewness", x.q_skewness);
  f("q_excess_kurtosis", x.q_excess_kurtosis);
  f("k_mean", x.k_mean);
  f("k_variance", x.k_variance);
  f("k_skewness", x.k_skewness);
  f("k_excess_kurtosis", x.k_excess_kurtosis);
  f("q_second_moment", x.q_second_moment);
  f("k_variance_centred", x.k_variance_centred);
  f("alignment", x.alignment);
  f("qk_mean", x.qk_mean);
  f("q_max_abs_mean", x.q_max_abs_mean);
  f("k_max_abs_mean", x.k_max_abs_mean);
  f("mean_adjacent_correlation", x.mean_adjacent_correlation);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, GradientStats> {
  f("measured_rows", x.measured_rows);
  f("silent_rows", x.silent_rows);
  f("nonfinite_rows", x.nonfinite_rows);
  f("sent_squares", x.sent_squares);
  f("arrived_squares", x.arrived_squares);
  f("sum_transmission_squared", x.sum_transmission_squared);
  f("row_transmission", x.row_transmission);
  f("row_gain", x.row_gain);
  f("dead_rows", x.dead_rows);
  f("dq_squares", x.dq_squares);
  f("dk_squares", x.dk_squares);
  f("dv_squares", x.dv_squares);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, HeadStats> {
  f("scale", x.scale);
  f("rows", x.rows);
  f("empty_rows", x.empty_rows);
  f("single_rows", x.single_rows);
  f("nonfinite_rows", x.nonfinite_rows);
  f("first_nonfinite_row", x.first_nonfinite_row);
  f("stand_ins", x.stand_ins);
  f("measured_rows", x.measured_rows);
  f("visible_keys", x.visible_keys);
  f("sum_log_keys", x.sum_log_keys);
  f("scores", x.scores);
  f("logits", x.logits);
  f("max_dot", x.max_dot);
  f("min_dot", x.min_dot);
  f("lse_min", x.lse_min);
  f("lse_max", x.lse_max);
  f("sum_lse", x.sum_lse);
  f("sum_sink_weight", x.sum_sink_weight);
  f("sum_entropy", x.sum_entropy);
  f("sum_entropy_ratio", x.sum_entropy_ratio);
  f("sum_kl", x.sum_kl);
  f("sum_top1", x.sum_top1);
  f("sum_squares", x.sum_squares);
  f("sum_effective_keys", x.sum_effective_keys);
  f("sum_trace", x.sum_trace);
  f("sum_frobenius", x.sum_frobenius);
  f("sum_frobenius_squared", x.sum_frobenius_squared);
  f("sum_expected_transmission", x.sum_expected_transmission);
  f.optional("sum_expected_transmission_squared", x.sum_expected_transmission_squared);
  f("sum_temperature_variance", x.sum_temperature_variance);
  f.optional("sum_scale_covariance", x.sum_scale_covariance);
  f("rows_above_99", x.rows_above_99);
  f("near_tie_rows", x.near_tie_rows);
  f("dead_rows", x.dead_rows);
  f("entropy_ratio", x.entropy_ratio);
  f("kl", x.kl);
  f("top1", x.top1);
  f("rest", x.rest);
  f("trace", x.trace);
  f("gain", x.gain);
  f("effective_keys", x.effective_keys);
  f("histogram", x.histogram);
  f("tracked", x.tracked);
  f.optional("column", x.column);
  f("argmax_column", x.argmax_column);
  f("argmax_offset", x.argmax_offset);
  f("inputs", x.inputs);
  f.optional("gradient", x.gradient);
}

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, Stats> {
  f("request", x.request);
  f("head_dim", x.head_dim);
  f("kv_heads", x.kv_heads);
  f("has_softcap", x.has_softcap);
  f("has_bias", x.has_bias);
  f("has_alibi", x.has_alibi);
  f("has_mask", x.has_mask);
  f("softcap", x.softcap);
  f("heads", x.heads);
}

namespace {

using report::Form;
using report::Json;

bool usable(double low, double width) {
  return std::isfinite(low) && std::isfinite(width) && width > 0;
}

// What the types alone do not say; empty when all is well.
std::string out_of_range(const Stats& stats) {
  const StatsRequest& request = stats.request;
  if (request.every < 1) return "request.every is below 1";
  if (!usable(request.histogram_low, request.histogram_width)) {
    return "request.histogram_width is not positive";
  }
  if (stats.head_dim < 0) return "head_dim is negative";
  for (const std::int64_t key : request.tracked)
    if (key < 0) return "request.tracked has a negative key";
  for (std::size_t h = 0; h < stats.heads.size(); ++h) {
    const HeadStats& head = stats.heads[h];
    const std::string where = "heads[" + std::to_string(h) + "].";
    const Histogram& histogram = head.histogram;
    if (!usable(histogram.low, histogram.width)) return where + "histogram.width is not positive";
    const auto negative = [](std::int64_t count) { return count < 0; };
    if (std::any_of(histogram.counts.begin(), histogram.counts.end(), negative) ||
        negative(histogram.below) || negative(histogram.above)) {
      return where + "histogram has a negative count";
    }
    if (std::accumulate(histogram.counts.begin(), histogram.counts.end(),
                        histogram.below + histogram.above) > report::kMaxCount) {
      return where + "histogram holds more than 2^50 scores";
    }
    for (const std::int64_t rows :
         {head.rows, head.empty_rows, head.single_rows, head.nonfinite_rows, head.measured_rows,
          head.rows_above_99, head.near_tie_rows, head.dead_rows, head.gradient.measured_rows,
          head.gradient.silent_rows, head.gradient.nonfinite_rows, head.gradient.dead_rows}) {
      if (negative(rows)) return where + "rows: a count of rows is negative";
    }
  }
  return "";
}

// What is wrong; empty when `stats` now holds what `json` says, otherwise it is unchanged.
template <Form kForm>
std::string read_stats(const Json& json, Stats& stats) {
  std::string problem;
  Stats read;
  report::Reader<kForm> reader(json, "", problem);
  for_each_field(reader, read);
  if (problem.empty()) problem = out_of_range(read);
  if (problem.empty()) stats = std::move(read);
  return problem;
}

Error refuse(const std::string& problem) {
  return {ErrorCode::bad_file, "[from_json] statistics: " + problem};
}

}  // namespace

std::string to_json(const Stats& stats) {
  Json json = {{"schema", "poise.stats"}, {"version", kStatsSchemaVersion}};
  json.update(report::Writer<Form::full>::object(stats));
  return report::dump(json, -1);
}

Error from_json(std::string_view text, Stats& stats) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("not well-formed JSON");
  const Json* schema = report::find_member(json, "schema");
  if (schema == nullptr || *schema != "poise.stats") {
    return refuse("schema is not \"poise.stats\"");
  }
  const Json* version = report::find_member(json, "version");
  if (version == nullptr || *version != kStatsSchemaVersion) {
    return refuse("version is " + report::spelled(version) + ", expected " +
                  std::to_string(kStatsSchemaVersion));
  }
  const std::string problem = read_stats<Form::full>(json, stats);
  if (!problem.empty()) return refuse(report::ascii(problem));
  return {};
}

namespace report {

Json compact_stats(const Stats& stats) { return Writer<Form::compact>::object(stats); }

std::string read_compact_stats(const Json& json, Stats& stats) {
  if (!json.is_object()) return "stats is not an object";
  return read_stats<Form::compact>(json, stats);
}

const Json* find_member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto member = json.find(name);
  return member == json.end() ? nullptr : &*member;
}

std::string spelled(const Json* json) {
  if (json == nullptr) return "missing";
  if (json->is_array()) return "an array";
  if (json->is_object()) return "an object";
  return ascii(valid_utf8(dump(*json, -1), 40));
}

}  // namespace report
}  // namespace poise
