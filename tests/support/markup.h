// A strict little reader of the report's HTML, for tests: the page is written so that it is
// well-formed XML as well, which is easier to check than HTML's rules of omission.
#pragma once

#include <string>
#include <string_view>

namespace poise::test {

// Empty when every element is closed in order, every attribute quoted and given once, every
// character reference known, every id unique and every href="#..." points at one; else the first
// problem.
std::string markup_problem(std::string_view html);

}  // namespace poise::test
