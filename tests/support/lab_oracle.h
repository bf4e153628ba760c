// The rows of poise lab beside the committed Monte-Carlo table (oracle.h).
//
// In: cells that run_rows() measured. Out: gtest failures where a mean differs by more than four
// standard errors of the difference and what float32 rounds, or a median trace by more than four
// times the root of two of its own error.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/rows.h"

namespace poise::test {

// Every signal that the table has; column gradq when the request had gradients.
void expect_oracle_rows(const lab::RowsRequest& request, const std::vector<lab::RowsCell>& cells);

}  // namespace poise::test
