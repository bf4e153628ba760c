// Run logs: records to lines, lines to records, merging. In: Stats, or text from anywhere. Out:
// lines, or Stats merged in an order that depends on the records alone. Reading trusts nothing.
// Not here: files and locks (cli/log_file.cpp), the form of the statistics (fields_json.h), what a
// series tells (series.cpp).
#include <poise/run_log.h>

#include "report/encoding.h"
#include "report/stats_json.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <optional>
#include <set>

namespace poise {
namespace {

using report::Json;

constexpr std::size_t kMaxLabelBytes = 200;
// Records of one step and layer: sums of counts of at most 2^50 stay within int64.
constexpr std::size_t kMaxRecords = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Labels with numbers compared by value, so that L10 comes after L2; equal only when the same.
std::strong_ordering compare_labels(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  const auto number_at = [](std::string_view text, std::size_t& at) {
    const std::size_t begin = std::min(text.find_first_not_of('0', at), text.size());
    at = begin;
    while (at < text.size() && is_digit(text[at])) ++at;
    return text.substr(begin, at - begin);
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i), y = number_at(b, j);
      if (x.size() != y.size()) return x.size() <=> y.size();
      if (x != y) return x <=> y;
    } else if (a[i] != b[j]) {
      return a[i] <=> b[j];
    } else {
      ++i;
      ++j;
    }
  }
  if (i < a.size() || j < b.size()) return a.size() - i <=> b.size() - j;
  return a <=> b;  // L1 and L01
}

Json record(std::int64_t step, std::string_view layer, std::string_view process,
            const Stats& stats) {
  Json json = {{"schema", "poise.log"},
               {"version", kLogSchemaVersion},
               {"step", std::clamp<std::int64_t>(step, 0, kMaxLogStep)},
               {"layer", std::string(layer)}};
  if (!process.empty()) json["process"] = std::string(process);
  json["stats"] = report::compact_stats(stats);
  return json;
}

struct Record {
  std::int64_t step = 0;
  std::string layer, process;
  Stats stats;
};

// A member that is text of bounded length; the problem otherwise.
std::string read_label(const Json& json, const char* member, std::string& label) {
  const Json* found = report::find_member(json, member);
  const std::string* text = found ? found->get_ptr<const std::string*>() : nullptr;
  if (text == nullptr || text->empty() || text->size() > kMaxLabelBytes) {
    return std::string(member) + " is " + report::spelled(found) + ", expected text of 1 to " +
           std::to_string(kMaxLabelBytes) + " bytes";
  }
  label = *text;
  return "";
}

// Empty, or what is wrong with a line that is well-formed JSON.
std::string read_record(const Json& json, Record& record) {
  if (!json.is_object()) return "not an object";
  const Json* schema = report::find_member(json, "schema");
  if (schema == nullptr || *schema != "poise.log") return "schema is not \"poise.log\"";
  const Json* version = report::find_member(json, "version");
  if (version == nullptr || *version != kLogSchemaVersion) {
    return "version is " + report::spelled(version) + ", expected " +
           std::to_string(kLogSchemaVersion);
  }
  const Json* step = report::find_member(json, "step");
  if (step == nullptr || !step->is_number_unsigned() ||
      step->get<std::uint64_t>() > std::uint64_t{kMaxLogStep}) {
    return "step is " + report::spelled(step) + ", expected an integer from 0 to 2^50";
  }
  record.step = step->get<std::int64_t>();
  std::string problem = read_label(json, "layer", record.layer);
  if (!problem.empty()) return problem;
  if (report::find_member(json, "process") != nullptr) {
    problem = read_label(json, "process", record.process);
    if (!problem.empty()) return problem;
  }
  const Json* stats = report::find_member(json, "stats");
  if (stats == nullptr) return "stats is missing";
  problem = report::read_compact_stats(*stats, record.stats);
  return problem.empty() ? "" : "stats: " + problem;
}

// JSON of one line; `ends_early` when the line is well-formed as far as it goes.
std::optional<Json> parse_line(std::string_view line, bool& ends_early) {
  // The parser tells where it stopped only to a handler or an exception.
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    ends_early = line.front() == '{' && error.byte > line.size();
  } catch (const Json::exception&) {
    ends_early = false;  // a number out of range
  }
  return std::nullopt;
}

std::string line_of(std::string_view name, std::size_t number) {
  return report::printable(name) + ": line " + std::to_string(number);
}

// A name of at most kMaxLabelBytes: its end, since modules' names may differ there only.
std::string kept(std::string_view name) {
  const std::string whole = report::valid_utf8(name, name.size());
  std::size_t at = whole.size() - std::min(whole.size(), kMaxLabelBytes);
  while (at < whole.size() && !report::begins_character(whole[at])) ++at;
  return whole.substr(at);
}

}  // namespace

std::string log_line(std::int64_t step, std::string_view layer, const Stats& stats,
                     std::string_view process) {
  return report::dump(record(step, kept(layer.empty() ? "layer" : layer), kept(process), stats),
                      -1) +
         "\n";
}

bool RunLog::Key::operator<(const Key& other) const {
  return step != other.step ? step < other.step : compare_labels(layer, other.layer) < 0;
}

Error RunLog::add(std::string_view text, std::string_view name) {
  std::vector<std::pair<Key, std::string>> added;
  std::vector<std::string> cut_off;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    const auto refuse = [&](const std::string& problem) {
      return Error(ErrorCode::bad_file,
                   "[run_log] " + line_of(name, number) + ": " + report::ascii(problem));
    };
    bool ends_early = false;
    const std::optional<Json> json = parse_line(line, ends_early);
    if (!json) {
      if (!ends_early) return refuse("not well-formed JSON");
      cut_off.push_back(line_of(name, number) + " is cut off and was left out");
      continue;
    }
    Record read;
    if (const std::string problem = read_record(*json, read); !problem.empty())
      return refuse(problem);
    std::string canonical =
        report::dump(record(read.step, read.layer, read.process, read.stats), -1) + "\n";
    added.emplace_back(Key{read.step, std::move(read.layer)}, std::move(canonical));
  }
  for (auto& [key, line] : added) {
    std::vector<std::string>& lines = records_[std::move(key)];
    lines.insert(std::upper_bound(lines.begin(), lines.end(), line), std::move(line));
  }
  cut_off_.insert(cut_off_.end(), cut_off.begin(), cut_off.end());
  return {};
}

std::int64_t RunLog::first_step() const {
  return records_.empty() ? 0 : records_.begin()->first.step;
}

std::int64_t RunLog::last_step() const {
  return records_.empty() ? 0 : records_.rbegin()->first.step;
}

std::size_t RunLog::lines() const {
  std::size_t count = 0;
  for (const auto& [key, lines] : records_) count += lines.size();
  return count;
}

std::size_t RunLog::steps() const {
  std::set<std::int64_t> steps;
  for (const auto& [key, lines] : records_) steps.insert(key.step);
  return steps.size();
}

std::size_t RunLog::layers() const {
  std::set<std::string> labels;
  for (const auto& [key, lines] : records_) labels.insert(key.layer);
  return labels.size();
}

std::string RunLog::text() const {
  std::string out;
  for (const auto& [key, lines] : records_) {
    for (const std::string& line : lines) out += line;
  }
  return out;
}

Error RunLog::for_each(const Visit& visit) const {
  for (const auto& [key, lines] : records_) {
    const auto refuse = [&key = key](const std::string& problem) {
      return Error(ErrorCode::bad_file, "[run_log] step " + std::to_string(key.step) + ", layer " +
                                            report::printable(key.layer) + ": " + problem);
    };
    if (lines.size() > kMaxRecords) {
      return refuse(std::to_string(lines.size()) + " records, at most " +
                    std::to_string(kMaxRecords) + " merge");
    }
    Stats merged;
    for (const std::string& line : lines) {
      // Written by log_line() above, so there is no problem to expect.
      Stats stats;
      (void)report::read_compact_stats(Json::parse(line).at("stats"), stats);
      if (const Error error = merged.merge(stats)) return refuse(error.message());
    }
    if (lines.size() > 1) {
      // What one record may not hold, many may not either.
      Stats checked;
      const std::string problem =
          report::read_compact_stats(report::compact_stats(merged), checked);
      if (!problem.empty()) return refuse("all records together: " + problem);
    }
    if (const Error error = visit(key.step, key.layer, merged)) return error;
  }
  return {};
}

Error read_run(const RunLog& log, ReportInput& input) {
  if (log.empty()) return {ErrorCode::bad_value, "[read_run] log: it holds no record"};
  const auto label_less = [](const std::string& a, const std::string& b) {
    return compare_labels(a, b) < 0;
  };
  struct Layer {
    std::vector<SeriesPoint> points;
    Stats latest;
  };
  std::map<std::string, Layer, decltype(label_less)> layers(label_less);
  const auto visit = [&](std::int64_t step, const std::string& label, const Stats& stats) {
    Layer& layer = layers[label];
    layer.points.push_back(series_point(step, stats, input.thresholds, input.context));
    layer.latest = stats;
    return Error();
  };
  if (Error error = log.for_each(visit)) return error;
  input.layers.clear();
  input.series.clear();
  for (auto& [label, layer] : layers) {
    input.layers.push_back({label, std::move(layer.latest), std::nullopt});
    input.series.push_back({label, std::move(layer.points)});
  }
  return {};
}

}  // namespace poise
