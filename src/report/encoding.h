// Text that came from outside, made safe for a page, a terminal or JSON. The only room that knows
// about UTF-8, control characters and escaping; the faces call it for every string they print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace poise::report {

// Valid UTF-8 of at most max_characters code points: every invalid byte becomes U+FFFD, and what is
// cut off leaves an ellipsis as the last character.
std::string valid_utf8(std::string_view text, std::size_t max_characters);

// Whether a byte of valid UTF-8 is the first of a character.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

// One printable line: line breaks and tabs become spaces; C0 and C1 controls, DEL and characters
// that reorder or hide text (bidirectional controls, byte order mark) become U+FFFD.
std::string printable(std::string_view text);

// printable(), with & < > " ' as character references: safe in element content and in quoted
// attributes.
std::string html_escape(std::string_view text);

// printable(), in ASCII: the signs of the report have their own spelling (sigma, x, ->, ...),
// everything else becomes '?'.
std::string ascii(std::string_view text);

// Columns that valid UTF-8 takes on a terminal: wide East Asian characters and emoji count two,
// combining marks none.
int columns(std::string_view text);

// The largest prefix of valid UTF-8 that fits into `width` columns.
std::string_view fit(std::string_view text, int width);
// The largest suffix that does.
std::string_view fit_end(std::string_view text, int width);

}  // namespace poise::report
