// Terminal: padding, wrapping and colours. Colours are ANSI SGR codes of the 16-colour set, so the
// reader's own theme decides what they look like; each coloured run is closed where it ends.
#include "report/terminal.h"

#include "report/encoding.h"

#include <algorithm>

namespace poise::report {
namespace {

const char* code(Tone tone) {
  switch (tone) {
    case Tone::plain:
      return "";
    case Tone::bold:
      return "\x1b[1m";
    case Tone::dim:
      return "\x1b[2m";
    case Tone::alarm:
      return "\x1b[1;31m";
    case Tone::accent:
      return "\x1b[36m";
  }
  return "";
}
constexpr const char* kReset = "\x1b[0m";

std::string with_plain_spaces(std::string text) {
  constexpr std::string_view kNoBreakSpace = "\u00A0";
  for (std::size_t at = text.find(kNoBreakSpace); at != std::string::npos;
       at = text.find(kNoBreakSpace, at)) {
    text.replace(at, kNoBreakSpace.size(), " ");
  }
  return text;
}

}  // namespace

Tone tone_of(Severity severity) {
  if (severity >= Severity::warn) return Tone::alarm;
  return severity > Severity::healthy ? Tone::accent : Tone::plain;
}

Terminal::Terminal(const TextStyle& style)
    : unicode_(style.unicode), colour_(style.colour), width_(std::clamp(style.width, 40, 400)) {}

// Words are split before spelling, so a no-break space may become a plain one here.
std::string Terminal::spell(std::string_view text) const {
  return unicode_ ? with_plain_spaces(printable(text)) : ascii(text);
}

int Terminal::used(std::string_view text) const { return columns(spell(text)); }

void Terminal::put_spelled(const std::string& text, Tone tone) {
  if (colour_ && tone != Tone::plain && !text.empty()) {
    line_ += code(tone) + text + kReset;
  } else {
    line_ += text;
  }
}

void Terminal::put(std::string_view text, Tone tone) { put_spelled(spell(text), tone); }

void Terminal::left(std::string_view text, int width, Tone tone) {
  const std::string spelled = spell(text);
  const std::string shown(fit(spelled, width));
  put_spelled(shown, tone);
  line_.append(static_cast<std::size_t>(std::max(0, width - columns(shown))), ' ');
}

void Terminal::right(std::string_view text, int width, Tone tone) {
  const std::string spelled = spell(text);
  const std::string shown(fit(spelled, width));
  line_.append(static_cast<std::size_t>(std::max(0, width - columns(shown))), ' ');
  put_spelled(shown, tone);
}

std::string Terminal::ending(std::string_view text, int width) const {
  const std::string spelled = spell(text);
  if (columns(spelled) <= width) return spelled;
  return std::string(fit(spell("…"), width)) + std::string(fit_end(spelled, width - used("…")));
}

void Terminal::end_line() {
  line_.erase(line_.find_last_not_of(' ') + 1);
  out_ += line_ + '\n';
  line_.clear();
}

void Terminal::paragraph(const Span& lead, int indent, const std::vector<Span>& spans) {
  left(lead.text, indent, lead.tone);
  int at = indent;      // columns used in this line
  bool spaced = false;  // a space is due before the next word
  std::string run;      // words of one tone, not yet coloured
  const auto break_line = [&](Tone tone) {
    put_spelled(run, tone);
    run.clear();
    end_line();
    line_.assign(static_cast<std::size_t>(indent), ' ');
    at = indent;
    spaced = false;
  };
  for (const Span& span : spans) {
    std::string_view rest = span.text;
    while (!rest.empty()) {
      const std::size_t space = std::min(rest.find(' '), rest.size());
      std::string word = spell(rest.substr(0, space));
      if (!word.empty()) {
        if (at > indent && at + (spaced ? 1 : 0) + columns(word) > width_) break_line(span.tone);
        // A word longer than a line is broken: nothing may be wider than the page.
        while (at + columns(word) > width_) {
          const std::string piece(fit(word, width_ - at));
          run += piece;
          word.erase(0, piece.size());
          break_line(span.tone);
        }
        run += (spaced ? " " : "") + word;
        at += columns(word) + (spaced ? 1 : 0);
        spaced = false;
      }
      if (space < rest.size()) spaced = at > indent;
      rest.remove_prefix(std::min(space + 1, rest.size()));
    }
    put_spelled(run, span.tone);
    run.clear();
  }
  end_line();
}

}  // namespace poise::report
