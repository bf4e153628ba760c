// UTF-8 decoding, cleaning and escaping. In: arbitrary bytes. Out: strings no reader of which can
// be tricked. Nothing here knows what the text means.
// UTF-8 well-formedness: Unicode 15, table 3-7. Widths follow UAX #11 in blocks, which is enough to
// keep columns straight for names of models and tokens.
#include "report/encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace poise::report {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Decoded {
  char32_t code;
  std::size_t bytes;
};

// The code point at the front of `text` (not empty); an ill-formed byte alone is U+FFFD.
Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {kReplacement, 1};
  char32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kReplacement, 1};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || code > 0x10FFFF || surrogate) return {kReplacement, 1};
  return {code, length};
}

void encode(char32_t code, std::string& out) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

template <class Visit>
void for_each_code(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Decoded next = decode(text);
    text.remove_prefix(next.bytes);
    visit(next.code);
  }
}

bool between(char32_t code, char32_t low, char32_t high) { return code >= low && code <= high; }

char32_t printable(char32_t code) {
  if (between(code, 0x09, 0x0D) || code == 0x85 || code == 0x2028 || code == 0x2029) return ' ';
  const bool control = code < 0x20 || between(code, 0x7F, 0x9F);
  const bool reorders = between(code, 0x202A, 0x202E) || between(code, 0x2066, 0x2069) ||
                        code == 0x061C || between(code, 0x200E, 0x200F);
  const bool hides = code == 0xFEFF || between(code, 0x200B, 0x200D) || code == 0x2060 ||
                     between(code, 0xE0000, 0xE007F);
  const bool noncharacter = (code & 0xFFFE) == 0xFFFE || between(code, 0xFDD0, 0xFDEF);
  return control || reorders || hides || noncharacter ? kReplacement : code;
}

int columns(char32_t code) {
  if (between(code, 0x0300, 0x036F) || between(code, 0x20D0, 0x20FF) ||
      between(code, 0xFE00, 0xFE0F)) {
    return 0;
  }
  const bool wide = between(code, 0x1100, 0x115F) || between(code, 0x2E80, 0xA4CF) ||
                    between(code, 0xAC00, 0xD7A3) || between(code, 0xF900, 0xFAFF) ||
                    between(code, 0xFE30, 0xFE6F) || between(code, 0xFF00, 0xFF60) ||
                    between(code, 0xFFE0, 0xFFE6) || between(code, 0x1F300, 0x1FAFF) ||
                    between(code, 0x20000, 0x3FFFD);
  return wide ? 2 : 1;
}

const char* ascii_spelling(char32_t code) {
  switch (code) {
    case U'σ':
      return "sigma";
    case U'γ':
      return "gamma";
    case U'τ':
      return "tau";
    case U'Σ':
      return "sum ";
    case U'×':
      return "x";
    case U'·':
      return ".";
    case U'→':
      return "->";
    case U'≥':
      return ">=";
    case U'≤':
      return "<=";
    case U'≈':
      return "~";
    case U'√':
      return "sqrt ";
    case U'‖':
      return "|";
    case U'²':
      return "^2";
    case U'⁺':
      return "+";
    case U'−':
    case U'–':
      return "-";
    case U'…':
      return "...";
    case U'’':
      return "'";
    case U'µ':
      return "mu";
    case U'\u2009':
    case U'\u00A0':
      return " ";
    case U'■':
      return "!";
    case U'▲':
      return "^";
    case U'○':
      return "o";
    case U'▁':
      return " ";
    case U'▂':
      return "-";
    case U'▃':
      return "=";
    case U'▄':
      return "+";
    case U'▅':
      return "*";
    case U'▆':
      return "#";
    case U'▇':
      return "%";
    case U'█':
      return "@";
    default:
      return "?";
  }
}

}  // namespace

std::string valid_utf8(std::string_view text, std::size_t max_characters) {
  std::string out;
  std::size_t characters = 0, last = 0;
  while (!text.empty()) {
    if (characters == max_characters) {
      out.resize(last);
      encode(U'…', out);
      break;
    }
    const Decoded next = decode(text);
    text.remove_prefix(next.bytes);
    last = out.size();
    encode(next.code, out);
    ++characters;
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  for_each_code(text, [&](char32_t code) { encode(printable(code), out); });
  return out;
}

std::string html_escape(std::string_view text) {
  std::string out;
  for_each_code(text, [&](char32_t code) {
    switch (code) {
      case U'&':
        out += "&amp;";
        break;
      case U'<':
        out += "&lt;";
        break;
      case U'>':
        out += "&gt;";
        break;
      case U'"':
        out += "&quot;";
        break;
      case U'\'':
        out += "&#39;";
        break;
      default:
        encode(printable(code), out);
    }
  });
  return out;
}

std::string ascii(std::string_view text) {
  std::string out;
  for_each_code(text, [&](char32_t code) {
    const char32_t shown = printable(code);
    if (shown < 0x80) {
      out.push_back(static_cast<char>(shown));
    } else {
      out += ascii_spelling(shown);
    }
  });
  return out;
}

int columns(std::string_view text) {
  int sum = 0;
  for_each_code(text, [&](char32_t code) { sum += columns(code); });
  return sum;
}

std::string_view fit(std::string_view text, int width) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Decoded next = decode(text.substr(bytes));
    width -= columns(next.code);
    if (width < 0) break;
    bytes += next.bytes;
  }
  return text.substr(0, bytes);
}

std::string_view fit_end(std::string_view text, int width) {
  int over = columns(text) - std::max(0, width);
  std::size_t bytes = 0;
  while (bytes < text.size() && over > 0) {
    const Decoded next = decode(text.substr(bytes));
    over -= columns(next.code);
    bytes += next.bytes;
  }
  return text.substr(bytes);
}

}  // namespace poise::report
