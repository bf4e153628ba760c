// Structs of numbers as JSON and back, walked field by field. In: a struct for which
// for_each_field(visitor, value) names every field once, in namespace poise; or JSON from anywhere.
// Out: JSON, or the struct. Two forms: the full one spells every field out; the compact one, of run
// logs, leaves out what holds its default and writes runs of empty bins as one number.
// Reading trusts nothing: types and ranges are checked, and the first problem is kept as a sentence
// that names the member. Must not happen here: a list of fields (stats_json.cpp has it).
#pragma once

#include <poise/stats.h>

#include "report/json_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace poise::report {

enum class Form { full, compact };

// Counts beyond this are refused: sums of a few thousand of them still fit into int64.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 50;
// More bins than any sketch or histogram has.
inline constexpr std::size_t kMaxBins = 4096;
inline constexpr std::array kLevels = {StatsLevel::off, StatsLevel::max, StatsLevel::core,
                                       StatsLevel::full};

template <Form kForm>
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
  // A member that files of earlier writers do not have.
  template <class T>
  void later(const char* name, const T& field) {
    (*this)(name, field);
  }
  template <class T>
  static Json object(const T& value) {
    Json all = every_member(value);
    if constexpr (kForm == Form::full) {
      return all;
    } else {
      static const Json defaults = every_member(T{});
      Json kept = Json::object();
      for (const auto& [name, member] : all.items()) {
        const auto usual = defaults.find(name);
        if (usual == defaults.end() || !same(member, *usual)) kept[name] = member;
      }
      return kept;
    }
  }

 private:
  template <class T>
  static Json every_member(const T& value) {
    Writer writer;
    for_each_field(writer, value);
    return std::move(writer.json_);
  }
  // -0 equals 0 and is not the same.
  static bool same(const Json& a, const Json& b) {
    if (a.is_number_float() && b.is_number_float() &&
        std::signbit(a.get<double>()) != std::signbit(b.get<double>())) {
      return false;
    }
    return a == b;
  }

  static Json write(double value) { return json_number(value); }
  static Json write(std::int64_t value) { return value; }
  static Json write(int value) { return value; }
  static Json write(bool value) { return value; }
  static Json write(StatsLevel level) { return name(level); }
  static Json write(const Sketch& sketch) {
    if constexpr (kForm == Form::compact) {
      Json out = {sketch.zeros(), sketch.first_bin()};
      append_runs(sketch.bins(), out);
      return out;
    } else {
      return {
          {"zeros", sketch.zeros()}, {"first_bin", sketch.first_bin()}, {"bins", sketch.bins()}};
    }
  }
  // An object whose members are decimal keys.
  static Json write(const PlaceCounts& counts) {
    Json out = Json::object();
    for (const auto& [key, rows] : counts) out[std::to_string(key)] = rows;
    return out;
  }
  template <std::size_t kSize>
  static Json write(const std::array<std::int64_t, kSize>& counts) {
    if constexpr (kForm == Form::full) return write_all(counts);
    Json out = Json::array();
    append_runs(counts, out);
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
  // Counts one by one; n empty ones in a row are -n.
  static void append_runs(std::span<const std::int64_t> counts, Json& out) {
    std::int64_t empty = 0;
    for (const std::int64_t count : counts) {
      if (count == 0) {
        ++empty;
        continue;
      }
      if (empty > 0) out.push_back(-std::exchange(empty, 0));
      out.push_back(count);
    }
    if (empty > 0) out.push_back(-empty);
  }

  Json json_ = Json::object();
};

// Reads one object; the first problem found stops everything and is kept with its path. In the
// compact form a member that is missing keeps the value it had: the default.
template <Form kForm>
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
      if constexpr (kForm == Form::full) problem_ = where + " is missing";
      return;
    }
    read(*member, where, field);
  }

  // A member that may be missing; the field then keeps its default.
  template <class T>
  void optional(const char* name, T& field) {
    if (json_.find(name) != json_.end()) (*this)(name, field);
  }
  template <class T>
  void later(const char* name, T& field) {
    optional(name, field);
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
    // Beyond int64 only as an unsigned number, which is what every positive one is parsed as.
    const bool huge =
        json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{kMaxCount};
    const bool fits = json.is_number_integer() && !huge && json.get<std::int64_t>() >= -kMaxCount &&
                      json.get<std::int64_t>() <= kMaxCount;
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
    if constexpr (kForm == Form::compact) {
      if (!json.is_array() || json.size() < 2) {
        return refuse(where, "an array of zeros, first bin and counts");
      }
      read_item(json, where, 0, zeros);
      read_item(json, where, 1, first_bin);
      read_runs(json, where, 2, bins);
    } else {
      if (!json.is_object()) return refuse(where, "an object");
      Reader inner(json, where, problem_);
      inner("zeros", zeros);
      inner("first_bin", first_bin);
      inner("bins", bins);
    }
    if (!problem_.empty()) return;
    // So far from any bin of a sketch, first_bin could overflow where bins are trimmed.
    if (std::cmp_greater(std::abs(std::int64_t{first_bin}), kMaxBins)) {
      return refuse(where + (kForm == Form::full ? ".first_bin" : "[1]"), "a bin of a sketch");
    }
    sketch = Sketch::from_bins(zeros, first_bin, bins);
    if (sketch.zeros() != zeros || sketch.first_bin() != first_bin || sketch.bins() != bins) {
      refuse(where, "a sketch: counts are negative, out of range or not trimmed");
    } else if (sketch.count() > kMaxCount) {
      refuse(where, "a sketch of at most 2^50 rows");
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

  template <std::size_t kSize>
  void read(const Json& json, const std::string& where, std::array<std::int64_t, kSize>& counts) {
    if constexpr (kForm == Form::full) return read_all(json, where, counts);
    std::vector<std::int64_t> all;
    if (json.is_array()) read_runs(json, where, 0, all);
    if (all.size() != kSize) {
      return refuse(where, ("an array of " + std::to_string(kSize) + " counts").c_str());
    }
    std::copy(all.begin(), all.end(), counts.begin());
  }
  template <class T, std::size_t kSize>
  void read(const Json& json, const std::string& where, std::array<T, kSize>& values) {
    read_all(json, where, values);
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

  template <class T, std::size_t kSize>
  void read_all(const Json& json, const std::string& where, std::array<T, kSize>& values) {
    if (!json.is_array() || json.size() != kSize) {
      return refuse(where, ("an array of " + std::to_string(kSize)).c_str());
    }
    for (std::size_t i = 0; i < kSize; ++i) read_item(json, where, i, values[i]);
  }

  // The counts from element `from` on, as append_runs() writes them.
  void read_runs(const Json& array, const std::string& where, std::size_t from,
                 std::vector<std::int64_t>& counts) {
    for (std::size_t i = from; i < array.size() && problem_.empty(); ++i) {
      std::int64_t count = 0;
      read_item(array, where, i, count);
      const auto times = count < 0 ? static_cast<std::uint64_t>(-count) : std::uint64_t{1};
      if (times > kMaxBins - counts.size()) return refuse(where, "an array of as few bins");
      counts.insert(counts.end(), times, std::max<std::int64_t>(count, 0));
    }
  }

  template <class T>
  void read_item(const Json& array, const std::string& where, std::size_t i, T& item) {
    if (problem_.empty()) read(array[i], where + "[" + std::to_string(i) + "]", item);
  }

  const Json& json_;
  std::string path_;
  std::string& problem_;
};

}  // namespace poise::report
