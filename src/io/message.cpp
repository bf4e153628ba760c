// Refusals in one form, and the escaping of names that come out of files.
//
// UTF-8 is checked here, in one place, for npz names and safetensors headers alike; the byte ranges
// are table 3-7 of the Unicode standard (well-formed UTF-8 byte sequences).
#include "io/message.h"

#include <cstddef>

namespace poise::io {
namespace {

constexpr std::size_t kLongestQuote = 80;

// Length of the well-formed UTF-8 sequence that starts `text`; 0 when there is none.
std::size_t utf8_sequence(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return at(i) >= 0x80 && at(i) <= 0xBF; };
  const unsigned lead = at(0), second = at(1);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
    return second >= low && second <= high && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

// Length of the printable character that starts `text`; 0 for a control character and for a byte
// that is not UTF-8.
std::size_t printable_sequence(std::string_view text) {
  const std::size_t n = utf8_sequence(text);
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (n == 1 && (at(0) < 0x20 || at(0) == 0x7F)) return 0;
  // U+0080 ... U+009F are control characters too (CSI among them); they start with 0xC2.
  return n == 2 && at(0) == 0xC2 && at(1) < 0xA0 ? 0 : n;
}

std::string hex_escape(char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

}  // namespace

Error refuse(const std::string& source, const std::string& sentence) {
  return {ErrorCode::bad_file, "[read] " + source + ": " + sentence};
}

std::string in_quotes(std::string_view name) {
  std::string text = "\"";
  while (!name.empty() && text.size() <= kLongestQuote) {
    const std::size_t n = printable_sequence(name);
    const char c = name.front();
    if (n == 0) {
      text += hex_escape(c);
      name.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += name.substr(0, n);
    name.remove_prefix(n);
  }
  return text + (name.empty() ? "\"" : "...\"");
}

std::string on_one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t n = printable_sequence(text);
    line += n == 0 ? hex_escape(text.front()) : std::string(text.substr(0, n));
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return line;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_sequence(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string name_fault(std::string_view name) {
  if (!is_utf8(name)) return "the name " + in_quotes(name) + " is not UTF-8";
  if (name.find('\0') != std::string_view::npos)
    return "the name " + in_quotes(name) + " contains a NUL byte";
  return {};
}

}  // namespace poise::io
