// Strict parsing with nlohmann's callback, and the reading of members.
//
// The callback sees every key before the value is kept, which is where duplicates show; what lies
// deeper than allowed is dropped while parsing, so hostile nesting costs neither stack nor memory.
#include "io/json_file.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "io/message.h"

namespace poise::io {
namespace {

using Json = nlohmann::json;
using Event = nlohmann::json::parse_event_t;

// What the text holds that a value cannot show.
struct Watch {
  explicit Watch(int max_depth) : keys(static_cast<std::size_t>(max_depth) + 1) {}

  bool operator()(int depth, Event event, Json& value) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == Event::object_start || event == Event::array_start) {
      if (level + 1 >= keys.size()) {
        too_deep = true;
        return false;
      }
      keys[level + 1].clear();
    } else if (event == Event::key && level < keys.size()) {
      const std::string key = value.get<std::string>();
      if (!keys[level].insert(key).second && twice.empty()) twice = in_quotes(key);
    }
    return true;
  }

  std::vector<std::set<std::string>> keys;  // of the object that is open at each depth
  std::string twice;
  bool too_deep = false;
};

}  // namespace

std::string quoted_json(const Json& json) {
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>());
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  return json.dump();
}

Error parse_json(std::string_view text, const std::string& source, int max_depth, Json* json) {
  if (!is_utf8(text)) return refuse(source, "is not UTF-8");
  // nlohmann takes a NUL for the end of the text, and would not see what hides behind it.
  if (text.find('\0') != std::string_view::npos) return refuse(source, "contains a NUL byte");
  Watch watch(max_depth);
  const auto callback = [&watch](int depth, Event event, Json& value) {
    return watch(depth, event, value);
  };
  Json parsed = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (watch.too_deep)
    return refuse(source, "nests deeper than " + std::to_string(max_depth) + " levels");
  if (!watch.twice.empty())
    return refuse(source, "has the key " + watch.twice + " twice in one object");
  if (parsed.is_discarded()) return refuse(source, "is not well-formed JSON");
  *json = std::move(parsed);
  return {};
}

Members::Members(const Json& json, std::string where, std::string* fault)
    : json_(json), where_(std::move(where)), fault_(fault) {
  if (!json_.is_object())
    refuse((where_.empty() ? "the text" : where_) + " is " + quoted_json(json_) +
           ", expected an object");
}

std::string Members::path(const std::string& key) const {
  return where_.empty() ? key : where_ + "." + key;
}

void Members::refuse(const std::string& sentence) {
  if (fault_->empty()) *fault_ = sentence;
}

const Json* Members::find(const std::string& key) {
  asked_.insert(key);
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

const Json* Members::object(const std::string& key) {
  const Json* member = find(key);
  if (member == nullptr) {
    refuse(path(key) + " is missing");
  } else if (!member->is_object()) {
    refuse(path(key) + " is " + quoted_json(*member) + ", expected an object");
    return nullptr;
  }
  return member;
}

const Json* Members::array(const std::string& key) {
  const Json* member = find(key);
  if (member == nullptr) {
    refuse(path(key) + " is missing");
  } else if (!member->is_array()) {
    refuse(path(key) + " is " + quoted_json(*member) + ", expected an array");
    return nullptr;
  }
  return member;
}

std::string Members::text(const std::string& key, bool required) {
  const Json* member = find(key);
  if (member == nullptr) {
    if (required) refuse(path(key) + " is missing");
    return {};
  }
  if (!member->is_string() || member->get_ref<const std::string&>().empty() ||
      !name_fault(member->get_ref<const std::string&>()).empty()) {
    refuse(path(key) + " is " + quoted_json(*member) + ", expected a string that is not empty");
    return {};
  }
  return member->get<std::string>();
}

std::int64_t Members::whole(const std::string& key, std::int64_t low, std::int64_t high) {
  const Json* member = find(key);
  if (member == nullptr) {
    refuse(path(key) + " is missing");
    return low;
  }
  const bool fits = member->is_number_integer() &&
                    (!member->is_number_unsigned() ||
                     member->get<std::uint64_t>() <= static_cast<std::uint64_t>(high));
  const std::int64_t value = fits ? member->get<std::int64_t>() : low - 1;
  if (value >= low && value <= high) return value;
  refuse(path(key) + " is " + quoted_json(*member) + ", expected a whole number from " +
         std::to_string(low) + " to " + std::to_string(high));
  return low;
}

std::int64_t Members::whole(const std::string& key, std::int64_t low, std::int64_t high,
                            std::int64_t fallback) {
  return has(key) ? whole(key, low, high) : fallback;
}

double Members::number(const std::string& key) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Json* member = find(key);
  if (member == nullptr) {
    refuse(path(key) + " is missing");
    return kNaN;
  }
  if (member->is_number()) return member->get<double>();
  if (*member == "nan") return kNaN;
  if (*member == "inf") return kInfinity;
  if (*member == "-inf") return -kInfinity;
  refuse(path(key) + " is " + quoted_json(*member) + ", expected a number");
  return kNaN;
}

void Members::refuse_unknown() {
  if (!json_.is_object()) return;
  for (const auto& item : json_.items())
    if (!asked_.contains(item.key()))
      return refuse((where_.empty() ? "the text" : where_) + " has the unknown key " +
                    in_quotes(item.key()));
}

}  // namespace poise::io
