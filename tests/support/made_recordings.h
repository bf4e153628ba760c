// Recordings made on purpose, one for each state a person meets: healthy, unscaled, overflowing,
// diffuse, dominated by sinks, and a model of 24 layers that has something of everything.
//
// In: a name. Out: q, k, v run through attention() on this machine, as a report's input; or the
// same statistics as they were stored, which no instruction set can change. What a head is like is
// said in scores, not in weights: its spread within rows, what every key or the first key has on
// top.
#pragma once

#include <poise/report.h>

#include <string>
#include <vector>

namespace poise::test {

// "healthy", "unscaled", "overflowing", "diffuse", "sinks", "mixed".
const std::vector<std::string>& made_recordings();

// Runs the recording through the kernels. Throws std::runtime_error with the library's sentence.
ReportInput make_recording(const std::string& name);

// The same input with the statistics of tests/golden/<name>_stats.json. With POISE_UPDATE_GOLDEN=1
// in the environment that file is written first, from make_recording().
ReportInput stored_recording(const std::string& name);

}  // namespace poise::test
