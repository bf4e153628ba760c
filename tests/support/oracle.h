// The committed Monte-Carlo table (tests/oracle/README.md) and poise run on inputs of the same law.
//
// In: head_dim, keys, an amount of work. Out: gtest failures where a mean differs by more than four
// standard errors of the difference and what float32 rounds.
#pragma once

#include <poise/stats.h>

#include <cstdint>
#include <map>
#include <string>

namespace poise::test {

// The table's cells of one width and number of keys: scale_name ("1", "1/sqrt(d)", "1/d") -> column
// -> number. Empty when the table lacks them.
using OracleCells = std::map<std::string, std::map<std::string, double>>;
OracleCells oracle_cells(std::int64_t head_dim, std::int64_t keys);

// Compares all three scales of one width and number of keys. Draws 20 000 rows (5 000 of
// thousands of keys), each with its own keys. `normals_per_row`: keys have as many components as
// this pays for, at least 1 and at most head_dim; with fewer, q keeps the length of a vector of
// head_dim components, which leaves the law of the scores as it is.
void expect_oracle(std::int64_t head_dim, std::int64_t keys, std::int64_t normals_per_row);

// The gradient that reaches q, column gradq: from |dq| as backward measures it. Draws `rows` rows,
// each a head of its own whose dout are all the unit vectors in turn, so that the sum of |dq|^2 is
// the mean over independent gradients and not one draw of it. Cost: 10 keys^3 flops a row.
void expect_oracle_gradient(std::int64_t head_dim, std::int64_t keys, std::int64_t rows);

// Heads of rows of that law, in float64: forward and backward measured, one head per row, and in
// each head `keys` queries that see the same scores and are sent the unit vectors. Level full.
Stats oracle_row_stats(std::int64_t head_dim, std::int64_t keys, double scale, std::int64_t rows,
                       std::uint64_t seed);

}  // namespace poise::test
