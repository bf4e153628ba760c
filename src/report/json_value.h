// Shared by the JSON writers: how a number that JSON cannot hold is spelled, and how text leaves.
// In: doubles, JSON values. Out: JSON. Nothing here throws: invalid UTF-8 is replaced.
// Schema: docs/report-json.md.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace poise::report {

using Json = nlohmann::ordered_json;  // members keep the order in which they were written

// Finite numbers in the shortest form that reads back exactly; "nan", "inf", "-inf" otherwise.
inline Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// ASCII only: every other character becomes a \u escape, so that the text is safe to print
// anywhere.
inline std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace poise::report
