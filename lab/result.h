// What an experiment hands back: a statement, tables of numbers with standard errors, a picture.
//
// In: numbers that an experiment measured or a closed form gave. Out: one shape for all
// experiments, which table.h prints for people and the command writes as JSON. Words are ASCII, so
// that a table reads the same everywhere. Must not happen here: a measurement, a file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace poise::lab {

// A measured number and its standard error, estimated from the scatter of independent units.
// Error NaN: the units do not tell (fewer than two).
struct Estimate {
  double value = 0;
  double error = 0;
};

// A word, a whole number, an exact number (of a closed form or a worked example; NaN = none there),
// a measured one, a list of sizes.
using Cell = std::variant<std::string, std::int64_t, double, Estimate, std::vector<std::int64_t>>;

struct Column {
  std::string name;     // member in JSON: lower_snake
  std::string label;    // head in the table, a few characters
  std::string meaning;  // formula and unit, for the reader of either
};

struct Table {
  std::string name;   // member in JSON: lower_snake
  std::string title;  // one line
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // as many cells as columns
  bool in_text = true;                  // false: too long for people, for JSON alone
};

struct Result {
  std::string experiment;  // "variance"
  std::string statement;   // what came out, one sentence with its number, no full stop
  std::vector<std::pair<std::string, Cell>> parameters;  // what repeats it, beside the seed
  std::vector<Table> tables;
  std::vector<std::string> notes;  // how to read it; full sentences
};

struct Outcome {
  Result result;
  std::string picture;  // an SVG file
};

}  // namespace poise::lab
