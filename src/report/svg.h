// Small SVG charts: a drawing 340 units wide in a page, or one that is a file; axes, and paths.
// Knows nothing of heads or verdicts. Every chart has a title and a description for readers that do
// not see it; colours come from a style sheet, the page's or the file's, by class.
#pragma once

#include <string>
#include <string_view>

namespace poise::report {

inline constexpr double kChartWidth = 340;  // 12-unit text stays readable on a 320 px screen

// A linear or logarithmic map from data to the drawing.
struct Axis {
  double low = 0, high = 1;  // data; > 0 when logarithmic
  double from = 0, to = 1;   // drawing
  bool logarithmic = false;

  double at(double value) const;  // clamped to the ends
};

// Path data, with coordinates of one decimal.
class Path {
 public:
  Path& move(double x, double y);
  Path& line(double x, double y);
  Path& horizontal(double x);
  Path& vertical(double y);
  Path& close();
  Path& dot(double x, double y);  // a segment of no length: round caps make it a disc
  Path& dash(double x, double y, double length);
  bool empty() const { return data_.empty(); }
  const std::string& data() const { return data_; }

 private:
  Path& put(char command, double a);
  Path& put(char command, double a, double b);
  std::string data_;
};

enum class Anchor { start, middle, end };

class Svg {
 public:
  // id: letters and digits, unique in the page. title and description are escaped here.
  Svg(std::string_view id, double height, std::string_view title, std::string_view description);
  // A drawing that is a file of its own, with its own style sheet (trusted text).
  Svg(double width, double height, std::string_view title, std::string_view description,
      std::string_view style_sheet);

  void path(std::string_view style_class, const Path& path);  // nothing when the path is empty
  void line(std::string_view style_class, double x1, double y1, double x2, double y2);
  // Text is escaped here. y is the base line.
  void text(std::string_view style_class, double x, double y, Anchor anchor, std::string_view text);
  std::string finish();

 private:
  void describe(std::string_view id, std::string_view title, std::string_view description);

  std::string out_;
};

// The next "round" step (1, 2 or 5 times a power of ten) that divides `range` into at most `parts`.
double round_step(double range, int parts);

}  // namespace poise::report
