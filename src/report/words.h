// Numbers and grammar: how the report writes a quantity, a share, a factor, a list of heads.
// Every face and every finding writes its numbers through these, so that one quantity looks the
// same everywhere. Independent of the locale. Results are UTF-8; NaN is an en dash.
//
// The sentences of flags (src/wording.h) are plain text for logs and comparisons: three significant
// digits, ordinary spaces and hyphens. Here numbers are typeset: columns need at most three
// decimals, lines must not break before a unit, and minus signs and groups of digits are real ones.
// The borders of "<1" and ">99" are the same in both.
#pragma once

#include <poise/health.h>

#include <cstdint>
#include <string>
#include <vector>

namespace poise::report {

std::string fixed(double value, int decimals);  // "15.2", "−3", thin spaces from 10 000 on
std::string number(double value);    // about three digits: 7197, 216, 15.2, 1.99, 0.105, 2e-9
std::string spread(double sigma);    // a spread or score: one decimal, two below 0.1: 15.2, 0.05
std::string fraction(double value);  // 0 ... 1 without the zero: .59, 1, <.01
std::string percent(double share);   // 59, <1, >99, without the sign
std::string times(double factor);    // "× 0.131", "× 47"
// "1 %" sign with its no-break space, as the sentences write it: "59 %".
std::string percent_sign(double share);

std::string plural(std::int64_t count, const std::string& noun);  // "1 head", "2 heads"
// The form that goes with the count: agree(1, "is", "are") = "is".
const char* agree(std::int64_t count, const char* one, const char* many);
std::string list(const std::vector<std::string>& items);  // "a", "a and b", "a, b and c"
// At most three by name: "L0 H3, L0 H4 and 5 others".
std::string name_list(const std::vector<std::string>& names);
std::string capitalised(std::string sentence);  // first ASCII letter raised

// The mark of a severity: ■ for bad and critical, ▲ warn, ○ information and watch, none if healthy.
const char* mark(Severity severity);

}  // namespace poise::report
