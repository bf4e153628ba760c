// The committed Monte-Carlo table (tests/oracle/README.md) and poise run on inputs of the same law.
//
// In: head_dim, keys, an amount of work. Out: gtest failures where a mean differs by more than four
// standard errors of the difference and what float32 rounds.
#pragma once

#include <cstdint>

namespace poise::test {

// Compares all three scales of one width and number of keys. Draws 20 000 rows (5 000 of
// thousands of keys), each with its own keys. `normals_per_row`: keys have as many components as
// this pays for, at least 1 and at most head_dim; with fewer, q keeps the length of a vector of
// head_dim components, which leaves the law of the scores as it is.
void expect_oracle(std::int64_t head_dim, std::int64_t keys, std::int64_t normals_per_row);

}  // namespace poise::test
