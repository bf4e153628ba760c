// SVG text. In: coordinates, classes, words. Out: markup, escaped and closed.
// Coordinates that are no finite number become 0, so that hostile statistics cannot break a path.
// Not here: colours (style.cpp), what is drawn (the charts).
#include "report/svg.h"

#include "report/encoding.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace poise::report {
namespace {

// One decimal at most, "12" and "12.5"; independent of the locale.
std::string coordinate(double value) {
  std::array<char, 48> buffer{};
  const double safe = std::isfinite(value) ? std::clamp(value, -1e6, 1e6) : 0.0;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), safe,
                                 std::chars_format::fixed, 1);
  std::string text(buffer.data(), end.ptr);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

}  // namespace

double Axis::at(double value) const {
  const double clamped = std::clamp(value, low, high);
  const double share =
      logarithmic ? std::log(clamped / low) / std::log(high / low) : (clamped - low) / (high - low);
  return from + share * (to - from);
}

Path& Path::put(char command, double a) {
  data_ += command;
  data_ += coordinate(a);
  return *this;
}
Path& Path::put(char command, double a, double b) {
  put(command, a);
  data_ += ' ';
  data_ += coordinate(b);
  return *this;
}
Path& Path::move(double x, double y) { return put('M', x, y); }
Path& Path::line(double x, double y) { return put('L', x, y); }
Path& Path::horizontal(double x) { return put('H', x); }
Path& Path::vertical(double y) { return put('V', y); }
Path& Path::close() {
  data_ += 'Z';
  return *this;
}
Path& Path::dot(double x, double y) { return dash(x, y, 0); }
Path& Path::dash(double x, double y, double length) { return put('M', x, y).put('h', length); }

Svg::Svg(std::string_view id, double height, std::string_view title, std::string_view description) {
  out_ = "<svg viewBox=\"0 0 " + coordinate(kChartWidth) + " " + coordinate(height) + "\"";
  describe(id, title, description);
}

Svg::Svg(double width, double height, std::string_view title, std::string_view description,
         std::string_view style_sheet) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + coordinate(width) + "\" height=\"" +
         coordinate(height) + "\" viewBox=\"0 0 " + coordinate(width) + " " + coordinate(height) +
         "\"";
  describe("chart", title, description);
  out_ += "<style>" + std::string(style_sheet) + "</style>";
}

void Svg::describe(std::string_view id, std::string_view title, std::string_view description) {
  const std::string name(id);
  out_ += " role=\"img\" aria-labelledby=\"" + name + "-t " + name + "-d\"><title id=\"" + name +
          "-t\">" + html_escape(title) + "</title><desc id=\"" + name + "-d\">" +
          html_escape(description) + "</desc>";
}

void Svg::path(std::string_view style_class, const Path& path) {
  if (path.empty()) return;
  out_ += "<path class=\"" + std::string(style_class) + "\" d=\"" + path.data() + "\"/>";
}

void Svg::line(std::string_view style_class, double x1, double y1, double x2, double y2) {
  path(style_class, Path().move(x1, y1).line(x2, y2));
}

void Svg::text(std::string_view style_class, double x, double y, Anchor anchor,
               std::string_view text) {
  out_ += "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\"";
  if (!style_class.empty()) out_ += " class=\"" + std::string(style_class) + "\"";
  if (anchor == Anchor::middle) out_ += " text-anchor=\"middle\"";
  if (anchor == Anchor::end) out_ += " text-anchor=\"end\"";
  out_ += ">" + html_escape(text) + "</text>";
}

std::string Svg::finish() { return out_ + "</svg>"; }

double round_step(double range, int parts) {
  const double rough = range / parts;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough * (1 - 1e-9)) return step * power;
  }
  return 10 * power;
}

}  // namespace poise::report
