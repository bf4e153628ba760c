// Stats as JSON and back, bit by bit. In: Stats, or JSON from anywhere. Out: JSON, or Stats.
// Each struct names its fields once, in for_each_field(); the writer and the reader both walk that
// list, so they cannot differ. Reading trusts nothing: types and ranges are checked, and on an
// error nothing is changed. Schema: docs/report-json.md.
#include <poise/report.h>

#include "report/encoding.h"
#include "report/json_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace poise {
namespace {

using report::Json;
using report::json_number;

// Counts beyond this are refused: sums of a few thousand of them still fit into int64.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 50;
constexpr std::array kLevels = {StatsLevel::off, StatsLevel::max, StatsLevel::core,
                                StatsLevel::full};

template <class Fields, class T>
void for_each_field(Fields& f, T& x) requires std::same_as<std::remove_const_t<T>, StatsRequest> {
  f("level", x.level);
  f("every", x.every);
  f("histogram_low", x.histogram_low);
  f("histogram_width", x.histogram_width);
  f("stand_in_bias", x.stand_in_bias);
  f("near_tie_gap", x.near_tie_gap);
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

class Writer {
 public:
  template <class T>
  void operator()(const char* name, const T& field) {
    json_[name] = write(field);
  }
  // A member of which nothing was measured is left out.
  template <class T>
  void optional(const char* name, const T& field) {
    if (!(field == T{})) (*this)(name, field);
  }
  template <class T>
  static Json object(const T& value) {
    Writer writer;
    for_each_field(writer, value);
    return std::move(writer.json_);
  }

 private:
  static Json write(double value) { return json_number(value); }
  static Json write(std::int64_t value) { return value; }
  static Json write(int value) { return value; }
  static Json write(bool value) { return value; }
  static Json write(StatsLevel level) { return name(level); }
  static Json write(const Sketch& sketch) {
    return {{"zeros", sketch.zeros()}, {"first_bin", sketch.first_bin()}, {"bins", sketch.bins()}};
  }
  // An object whose members are decimal keys.
  static Json write(const PlaceCounts& counts) {
    Json out = Json::object();
    for (const auto& [key, rows] : counts) out[std::to_string(key)] = rows;
    return out;
  }
  template <class T, std::size_t kSize>
  static Json write(const std::array<T, kSize>& values) {
    return write_all(values);
  }
  template <class T>
  static Json write(const std::vector<T>& values) {
    return write_all(values);
  }
  template <class T>
  static Json write(const T& value) {
    return object(value);
  }
  template <class Values>
  static Json write_all(const Values& values) {
    Json out = Json::array();
    for (const auto& value : values) out.push_back(write(value));
    return out;
  }

  Json json_ = Json::object();
};

// Reads one object; the first problem found stops everything and is kept with its path.
class Reader {
 public:
  Reader(const Json& json, std::string path, std::string& problem)
      : json_(json), path_(std::move(path)), problem_(problem) {}

  template <class T>
  void operator()(const char* name, T& field) {
    if (!problem_.empty()) return;
    const std::string where = path_.empty() ? name : path_ + "." + name;
    const auto member = json_.find(name);
    if (member == json_.end()) {
      problem_ = where + " is missing";
      return;
    }
    read(*member, where, field);
  }

  // A member that may be missing; the field then keeps its default.
  template <class T>
  void optional(const char* name, T& field) {
    if (json_.find(name) != json_.end()) (*this)(name, field);
  }

 private:
  void refuse(const std::string& where, const char* expected) {
    if (problem_.empty()) problem_ = where + " is not " + expected;
  }

  void read(const Json& json, const std::string& where, double& value) {
    if (json.is_number()) {
      value = json.get<double>();
    } else if (json == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (json == "inf") {
      value = std::numeric_limits<double>::infinity();
    } else if (json == "-inf") {
      value = -std::numeric_limits<double>::infinity();
    } else {
      refuse(where, "a number, \"nan\", \"inf\" or \"-inf\"");
    }
  }

  void read(const Json& json, const std::string& where, std::int64_t& value) {
    const bool fits = json.is_number_unsigned()
                          ? json.get<std::uint64_t>() <= std::uint64_t{kMaxCount}
                          : json.is_number_integer() && json.get<std::int64_t>() >= -kMaxCount;
    if (!fits) return refuse(where, "an integer of at most 2^50");
    value = json.get<std::int64_t>();
  }

  void read(const Json& json, const std::string& where, int& value) {
    std::int64_t wide = 0;
    read(json, where, wide);
    if (!std::in_range<int>(wide)) return refuse(where, "a 32-bit integer");
    value = static_cast<int>(wide);
  }

  void read(const Json& json, const std::string& where, bool& value) {
    if (!json.is_boolean()) return refuse(where, "true or false");
    value = json.get<bool>();
  }

  void read(const Json& json, const std::string& where, StatsLevel& level) {
    for (const StatsLevel known : kLevels) {
      if (json == name(known)) {
        level = known;
        return;
      }
    }
    refuse(where, "\"off\", \"max\", \"core\" or \"full\"");
  }

  void read(const Json& json, const std::string& where, Sketch& sketch) {
    std::int64_t zeros = 0;
    int first_bin = 0;
    std::vector<std::int64_t> bins;
    if (!json.is_object()) return refuse(where, "an object");
    Reader inner(json, where, problem_);
    inner("zeros", zeros);
    inner("first_bin", first_bin);
    inner("bins", bins);
    if (!problem_.empty()) return;
    sketch = Sketch::from_bins(zeros, first_bin, bins);
    if (sketch.zeros() != zeros || sketch.first_bin() != first_bin || sketch.bins() != bins) {
      refuse(where, "a sketch: counts are negative, out of range or not trimmed");
    }
  }

  void read(const Json& json, const std::string& where, PlaceCounts& counts) {
    if (!json.is_object()) return refuse(where, "an object");
    std::vector<PlaceCounts::Entry> entries;  // in the order of their spelling
    for (const auto& [name, rows] : json.items()) {
      std::int64_t key = 0;  // any: the diagonal of an offset is the caller's, up to 2^63
      const auto end = std::from_chars(name.data(), name.data() + name.size(), key);
      // One spelling per key, so that no two members mean the same one.
      if (end.ec != std::errc() || std::to_string(key) != name) {
        return refuse(where, "an object of 64-bit integer keys");
      }
      read(rows, where + "." + name, entries.emplace_back(key, 0).second);
    }
    counts = PlaceCounts(std::move(entries));
  }

  template <class T, std::size_t kSize>
  void read(const Json& json, const std::string& where, std::array<T, kSize>& values) {
    if (!json.is_array() || json.size() != kSize) {
      return refuse(where, ("an array of " + std::to_string(kSize)).c_str());
    }
    for (std::size_t i = 0; i < kSize; ++i) read_item(json, where, i, values[i]);
  }

  template <class T>
  void read(const Json& json, const std::string& where, std::vector<T>& values) {
    if (!json.is_array()) return refuse(where, "an array");
    values.assign(json.size(), T{});
    for (std::size_t i = 0; i < values.size(); ++i) read_item(json, where, i, values[i]);
  }

  template <class T>
  void read(const Json& json, const std::string& where, T& value) {
    if (!json.is_object()) return refuse(where, "an object");
    Reader inner(json, where, problem_);
    for_each_field(inner, value);
  }

  template <class T>
  void read_item(const Json& array, const std::string& where, std::size_t i, T& item) {
    if (problem_.empty()) read(array[i], where + "[" + std::to_string(i) + "]", item);
  }

  const Json& json_;
  std::string path_;
  std::string& problem_;
};

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
    for (const std::int64_t rows :
         {head.rows, head.empty_rows, head.single_rows, head.nonfinite_rows, head.measured_rows,
          head.rows_above_99, head.near_tie_rows, head.dead_rows, head.gradient.measured_rows,
          head.gradient.silent_rows, head.gradient.nonfinite_rows, head.gradient.dead_rows}) {
      if (negative(rows)) return where + "rows: a count of rows is negative";
    }
  }
  return "";
}

Error refuse(const std::string& problem) {
  return {ErrorCode::bad_file, "[from_json] statistics: " + problem};
}

}  // namespace

std::string to_json(const Stats& stats) {
  Json json = {{"schema", "poise.stats"}, {"version", kStatsSchemaVersion}};
  json.update(Writer::object(stats));
  return report::dump(json, -1);
}

Error from_json(std::string_view text, Stats& stats) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("not well-formed JSON");
  if (!json.is_object() || json.value("schema", Json()) != "poise.stats") {
    return refuse("schema is not \"poise.stats\"");
  }
  if (const Json version = json.value("version", Json()); version != kStatsSchemaVersion) {
    return refuse("version is " + report::ascii(report::valid_utf8(report::dump(version, -1), 40)) +
                  ", expected " + std::to_string(kStatsSchemaVersion));
  }
  std::string problem;
  Stats read;
  Reader reader(json, "", problem);
  for_each_field(reader, read);
  if (problem.empty()) problem = out_of_range(read);
  if (!problem.empty()) return refuse(report::ascii(problem));
  stats = std::move(read);
  return {};
}

}  // namespace poise
