// Numbers as people read them in a sentence, the same in every locale that prints a decimal point.
// The contract is in wording.h.
#include "wording.h"

#include <cmath>
#include <cstdio>

namespace poise {

std::string number(double value) {
  char text[32];
  // 999.5 is where three digits round to 1e+03.
  const bool whole = std::fabs(value) >= 999.5 && std::fabs(value) < 1e9;
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%.3g", value);
  return text;
}

std::string share(double fraction) {
  if (fraction > 0 && fraction < 0.01) return "<1 %";
  if (fraction > 0.99 && fraction < 1) return ">99 %";
  return number(std::round(100 * fraction)) + " %";
}

std::string times(double factor) { return "× " + number(factor); }

}  // namespace poise
