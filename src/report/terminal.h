// A page of plain text being written: colours, alignment, wrapping, ASCII spelling. Every string
// goes through printable() or ascii(), so nothing from outside reaches the terminal as a command.
#pragma once

#include <poise/report.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace poise::report {

enum class Tone { plain, bold, dim, alarm, accent };
Tone tone_of(Severity severity);

struct Span {
  std::string text;
  Tone tone = Tone::plain;
};

class Terminal {
 public:
  explicit Terminal(const TextStyle& style);

  int width() const { return width_; }
  int used(std::string_view text) const;  // columns it takes in this style

  void put(std::string_view text, Tone tone = Tone::plain);
  // Padded with spaces to `width` columns; longer text is cut. Right-aligned cells end at the
  // width.
  void left(std::string_view text, int width, Tone tone = Tone::plain);
  void right(std::string_view text, int width, Tone tone = Tone::plain);
  // The text, or its end behind an ellipsis where it takes more columns: names of layers and heads
  // differ at their ends.
  std::string ending(std::string_view text, int width) const;
  void end_line();

  // `lead` in the first `indent` columns, then the spans wrapped at spaces to the page's width;
  // further lines are indented. Spans follow each other as their own spaces say.
  void paragraph(const Span& lead, int indent, const std::vector<Span>& spans);

  std::string take() { return std::move(out_); }

 private:
  std::string spell(std::string_view text) const;
  void put_spelled(const std::string& text, Tone tone);

  bool unicode_, colour_;
  int width_;
  std::string out_, line_;  // what is finished, and the line being written
};

}  // namespace poise::report
