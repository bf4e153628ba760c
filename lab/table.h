// A Result as text: statement, aligned tables, what the columns mean, notes.
//
// In: a Result. Out: ASCII without colour, so that it reads the same in a terminal, a file and a
// mail; a measured number is written to the second digit of its error. Must not happen here: a
// number that the Result does not hold.
#pragma once

#include <string>

#include "lab/result.h"

namespace poise::lab {

// "0.9987 +- 0.0042", "512", "0.0001226": the value of a cell as the table writes it.
std::string to_text(const Cell& cell);

// For statements: "0.022", "1.2e-12" and "74 %", "0.31 %", "0 %".
std::string two_digits(double value);
std::string percent(double share);

// Ends with a newline.
std::string to_text(const Result& result);

}  // namespace poise::lab
