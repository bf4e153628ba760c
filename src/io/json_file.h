// JSON from outside, parsed once and strictly, and its members read by name.
//
// In: text, its source for messages, how deep it may nest. Out: an nlohmann value, or a refusal in
// one sentence: text that is not UTF-8 or not JSON, with NUL bytes, too deep, or an object with the
// same key twice. Members names the member in every sentence and refuses keys that nobody asked
// for. Must not happen here: what a member means.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace poise::io {

// Errors: bad_file, "[read] <source>: ...".
Error parse_json(std::string_view text, const std::string& source, int max_depth,
                 nlohmann::json* json);

// Reads the members of one object. The first fault stays in *fault (empty = none so far), after
// which every read returns its default.
class Members {
 public:
  // where: what the object is called in sentences, "layers[3].query"; empty for the whole text.
  Members(const nlohmann::json& json, std::string where, std::string* fault);

  // nullptr when there is no such member.
  const nlohmann::json* find(const std::string& key);
  bool has(const std::string& key) { return find(key) != nullptr; }
  // The member, an object; nullptr and a fault when it is missing.
  const nlohmann::json* object(const std::string& key);
  const nlohmann::json* array(const std::string& key);
  // A string without NUL; required ones may not be missing or empty.
  std::string text(const std::string& key, bool required);
  // An integer in [low, high]; must be there unless a fallback is given.
  std::int64_t whole(const std::string& key, std::int64_t low, std::int64_t high);
  std::int64_t whole(const std::string& key, std::int64_t low, std::int64_t high,
                     std::int64_t fallback);
  // Any number, or "nan", "inf", "-inf" as the JSON of poise spells them.
  double number(const std::string& key);

  std::string path(const std::string& key) const;
  void refuse(const std::string& sentence);  // keeps the first
  // Refuses a member that was never asked for.
  void refuse_unknown();

 private:
  const nlohmann::json& json_;
  std::string where_;
  std::string* fault_;
  std::set<std::string> asked_;
};

// A JSON value as a sentence may quote it: escaped and shortened.
std::string quoted_json(const nlohmann::json& json);

}  // namespace poise::io
