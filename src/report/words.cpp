// Formatting of numbers, shares, factors and lists. std::to_chars is used throughout: it rounds
// correctly and never asks the locale.
#include "report/words.h"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace poise::report {
namespace {

constexpr const char* kUnknown = "–";
constexpr const char* kMinus = "−";
constexpr const char* kThinSpace = "\u2009";

std::string scientific(double magnitude) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude,
                                 std::chars_format::scientific, 0);
  std::string text(buffer.data(), end.ptr);
  // "2e-09" -> "2e-9", "2e+09" -> "2e9"
  const std::size_t exponent = text.find('e');
  const bool negative = text[exponent + 1] == '-';
  std::size_t digits = exponent + 2;
  while (digits + 1 < text.size() && text[digits] == '0') ++digits;
  return text.substr(0, exponent) + (negative ? "e-" : "e") + text.substr(digits);
}

// The shortest text that reads back as `value`, when it is at most four digits without exponent:
// limits and dimensions print as they were given, 32 and 0.1.
std::string as_given(double value) {
  if (value >= 1e4 || value < 1e-3) return "";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  const std::string text(buffer.data(), end.ptr);
  return end.ec == std::errc() && text.size() <= 5 ? text : "";
}

std::string grouped(std::string digits) {
  const std::size_t point = std::min(digits.find('.'), digits.size());
  if (point < 5) return digits;  // four digits are read at a glance
  for (std::size_t at = point - 3; at > 0 && at<point; at -= at> 3 ? 3 : at) {
    digits.insert(at, kThinSpace);
  }
  return digits;
}

}  // namespace

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return kUnknown;
  if (std::isinf(value)) return value < 0 ? std::string(kMinus) + "inf" : "inf";
  if (std::abs(value) >= 1e15) return (value < 0 ? kMinus : "") + scientific(std::abs(value));
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value),
                                 std::chars_format::fixed, decimals);
  const std::string digits(buffer.data(), end.ptr);
  const bool zero = digits.find_first_not_of("0.") == std::string::npos;
  return (value < 0 && !zero ? kMinus : "") + grouped(digits);
}

std::string number(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size == 0) return fixed(value, 0);
  if (size < 0.0005) return (value < 0 ? kMinus : "") + scientific(size);
  if (const std::string given = as_given(size); !given.empty()) {
    return (value < 0 ? kMinus : "") + given;
  }
  // The borders lie where rounding reaches the next power of ten, so 99.96 prints as 100.
  return fixed(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
}

std::string spread(double sigma) {
  const double size = std::abs(sigma);
  return fixed(sigma, size >= 99.95 ? 0 : size >= 0.095 || size == 0 ? 1 : 2);
}

std::string fraction(double value) {
  if (std::isnan(value)) return kUnknown;
  if (value > 0 && value < 0.005) return "<.01";
  const std::string text = fixed(value, 2);
  if (text == "0.00") return "0";
  if (text == "1.00") return "1";
  return text.starts_with("0.") ? text.substr(1) : text;
}

std::string percent(double share) {
  if (share > 0 && share < 0.01) return "<1";
  if (share < 1 && share > 0.99) return ">99";
  return fixed(100 * share, 0);
}

std::string percent_sign(double share) { return percent(share) + "\u00A0%"; }

std::string times(double factor) {
  return "×\u00A0" + (factor >= 9.95    ? fixed(factor, 0)
                      : factor >= 0.995 ? fixed(factor, 1)
                                        : number(factor));
}

std::string plural(std::int64_t count, const std::string& noun) {
  return fixed(static_cast<double>(count), 0) + " " + noun + (count == 1 ? "" : "s");
}

const char* agree(std::int64_t count, const char* one, const char* many) {
  return count == 1 ? one : many;
}

std::string list(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += i + 1 == items.size() ? " and " : ", ";
    out += items[i];
  }
  return out;
}

std::string name_list(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  if (names.size() <= kNamed) return list(names);
  std::vector<std::string> shown(names.begin(), names.begin() + kNamed - 1);
  const std::size_t others = names.size() - shown.size();
  shown.push_back(std::to_string(others) + " others");
  return list(shown);
}

std::string capitalised(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') {
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  }
  return sentence;
}

const char* mark(Severity severity) {
  switch (severity) {
    case Severity::critical:
    case Severity::bad:
      return "■";
    case Severity::warn:
      return "▲";
    case Severity::watch:
    case Severity::information:
      return "○";
    case Severity::healthy:
      break;
  }
  return "";
}

}  // namespace poise::report
