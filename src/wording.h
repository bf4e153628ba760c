// Numbers as the sentences of flags and theory print them: short, without locale.
//
// In: a value. Out: UTF-8 text. Which sentence it goes into is decided where the rule is.
#pragma once

#include <string>

namespace poise {

std::string number(double value);    // three digits, whole from 1000 on: 7197, 15.2, 0.131, 2e-09
std::string share(double fraction);  // "59 %", "<1 %", ">99 %"
std::string times(double factor);    // "× 0.131"

}  // namespace poise
