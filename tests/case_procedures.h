// Cases that are not one run and one comparison: each is carried out as its file describes.
//
// In: a case file of class error, empty, merge, sweep, isolation, property, virtual_stride, api,
// process or memory. Out: a Judgement whose worst is 0 when everything held and infinity otherwise,
// or the ratio where the case names a tolerance. Runs on the instruction set that is active.
#pragma once

#include "support/case_file.h"

namespace poise::test {

// True when the case can also be put to the plain definition, which takes no threads and checks no
// input.
bool reference_can_run(const CaseFile& file);

// Carries out the procedure, by attention() or, when `reference`, by reference_attention<double>().
// Throws std::runtime_error for a case it does not know.
Judgement run_procedure(const CaseFile& file, bool reference);

// One call by either engine, without gradients; throws when attention() refuses it.
CaseResult solve(const Problem& problem, bool reference);

// A value case by either engine: outputs, and gradients where the case has a `do`.
CaseResult solve_case(const CaseFile& file, bool reference);

}  // namespace poise::test
