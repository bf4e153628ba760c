// Shortening of layer names. The contract is in labels.h.
// Cuts are made at ASCII separators or between characters, so what was valid UTF-8 stays so.
#include "report/labels.h"

#include "report/encoding.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace poise::report {
namespace {

constexpr std::string_view kSeparators = "./:_- ";
constexpr const char* kEllipsis = "…";

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

bool all_fit(const std::vector<std::string>& labels, std::size_t max_characters) {
  return std::all_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return characters(label) <= max_characters; });
}

// How many bytes all names begin with, up to and including a separator, less the last part of
// them: "model.layers.0" and "model.layers.1" share "model.".
std::size_t shared_beginning(const std::vector<std::string>& names) {
  std::size_t shared = names.front().size();
  for (const std::string& name : names) {
    const auto differ =
        std::mismatch(name.begin(), name.end(), names.front().begin(), names.front().end());
    shared = std::min(shared, static_cast<std::size_t>(differ.first - name.begin()));
  }
  const std::string_view common = std::string_view(names.front()).substr(0, shared);
  const std::size_t last = common.find_last_of(kSeparators);
  if (last == std::string_view::npos || last == 0) return 0;
  const std::size_t before = common.find_last_of(kSeparators, last - 1);
  return before == std::string_view::npos ? 0 : before + 1;
}

// How many bytes all names end with, from a separator on; something of each name is left.
std::size_t shared_ending(const std::vector<std::string>& names, std::size_t beginning) {
  std::size_t shared = names.front().size() - beginning;
  for (const std::string& name : names) {
    const auto differ =
        std::mismatch(name.rbegin(), name.rend(), names.front().rbegin(), names.front().rend());
    shared = std::min({shared, static_cast<std::size_t>(differ.first - name.rbegin()),
                       name.size() - beginning - 1});
  }
  const std::string_view common =
      std::string_view(names.front()).substr(names.front().size() - shared);
  const std::size_t first = common.find_first_of(kSeparators);
  return first == std::string_view::npos ? 0 : shared - first;
}

// The end of a text, so many characters with the ellipsis and what stands before it.
std::string ending(std::string_view text, std::size_t max_characters, const std::string& lead) {
  const std::size_t room = max_characters - std::min(max_characters - 1, characters(lead) + 1);
  std::size_t left = characters(text), at = 0;
  while (left > room) {
    ++at;
    while (at < text.size() && !begins_character(text[at])) ++at;
    --left;
  }
  return lead + kEllipsis + std::string(text.substr(at));
}

}  // namespace

std::vector<std::string> short_labels(const std::vector<std::string>& names,
                                      std::size_t max_characters) {
  if (names.empty() || all_fit(names, max_characters)) return names;
  const std::size_t beginning = names.size() > 1 ? shared_beginning(names) : 0;
  const auto cut = [&](std::size_t end) {
    std::vector<std::string> labels;
    for (const std::string& name : names)
      labels.push_back((beginning > 0 ? kEllipsis : "") +
                       name.substr(beginning, name.size() - beginning - end) +
                       (end > 0 ? kEllipsis : ""));
    return labels;
  };
  std::vector<std::string> labels = cut(0);
  if (!all_fit(labels, max_characters) && names.size() > 1)
    labels = cut(shared_ending(names, beginning));
  std::set<std::string> taken;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (characters(labels[i]) > max_characters) labels[i] = ending(names[i], max_characters, "");
    // Two long names that differ at their beginning only are told apart by their position.
    if (!taken.insert(labels[i]).second && std::count(names.begin(), names.end(), names[i]) == 1)
      taken.insert(labels[i] = ending(names[i], max_characters, std::to_string(i)));
  }
  return labels;
}

}  // namespace poise::report
