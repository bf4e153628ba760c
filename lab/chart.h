// Pictures of experiments: panels one below the other, each with its axes, its measurements and the
// closed forms drawn over them.
//
// In: points with standard errors, words. Out: one SVG file that refers to nothing outside itself,
// follows the reader's preference for light or dark and stays readable on a screen 320 pixels wide.
// Labels stand beside the data; measurements are dots, closed forms dashed lines. Must not happen
// here: a number that the tables do not have.
#pragma once

#include <string>
#include <vector>

namespace poise::lab {

struct Point {
  double x = 0, y = 0;
  double error = 0;  // a bar of one standard error up and down where it shows
};

enum class Look {
  measured,     // dots joined by a line
  dots,         // dots alone
  closed_form,  // a dashed line
};

struct Series {
  std::string label;  // beside its last point; empty = none
  int tone = 0;       // 0: ink; 1 ... kTones: colours
  Look look = Look::measured;
  std::vector<Point> points;  // ascending by x; outside the axes the line is broken
};

struct Scale {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks;  // empty: round numbers, or powers of ten
};

struct Panel {
  std::string title;    // what is up the vertical axis
  std::string x_label;  // what is along the horizontal one
  Scale x, y;
  std::vector<Series> series;
};

struct Picture {
  std::string statement;    // what came out, with its number; the title
  std::string lead;         // how it was measured, a sentence or two
  std::string description;  // the numbers, for readers that do not see the picture
  std::vector<Panel> panels;
};

std::string draw(const Picture& picture);

inline constexpr int kTones = 5;

// The style sheet of these pictures, for one with a layout of its own: classes title, strong, soft,
// page, grid, axis, line, disc, bar; k0 ... k5 set the tone of a path or text.
const char* chart_style();

// A statement of a table as a picture writes it: √D for sqrt(D), q·k for q.k, ± for +-.
std::string typeset(std::string text);

// Powers of two from low to high with at most `most` of them, for an axis of sizes.
std::vector<double> powers_of_two(double low, double high, int most);

}  // namespace poise::lab
