// The check of a law over drawn problems.
//
// In: a law, that is a function of one Draw that says what broke; limits, how many draws, a seed.
// Out: a GoogleTest failure with the smallest Draw that breaks it. The law itself decides what
// runs.
#pragma once

#include <string>

#include "support/drawn_problem.h"

namespace poise::test {

// Checks `broken` on `cases` draws of one dtype; an empty answer means that the law holds. `label`
// tells the runs of one test apart. Seeds: `seed` fixes them; 0 = another one each time, printed. A
// failure shrinks and prints the smallest Draw; RC_PARAMS="seed=N max_success=M" runs it again.
void check_draws(std::string (*broken)(const Draw&), DType dtype, const DrawLimits& limits,
                 int cases, std::uint64_t seed, const std::string& label = {});

}  // namespace poise::test
