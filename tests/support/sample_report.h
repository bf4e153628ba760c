// Stored statistics of two layers of rxnmapper (tests/golden/rxnmapper_stats.json) as the input of
// a report, so that report tests depend on no kernel and no instruction set; and synthetic
// statistics for what the recording does not show.
#pragma once

#include <poise/report.h>

#include <cstdint>
#include <string>
#include <vector>

namespace poise::test {

// Layers "L0" and "L11", 8 heads each, with tokens and facts that never change.
ReportInput sample_input();

// One head that measured `rows` rows of `keys` keys, all with the same within-row spread. Level
// full.
HeadStats head_of_spread(double sigma, std::int64_t rows = 64, std::int64_t keys = 64);

// A layer of these heads. Level full.
LayerInput layer_of(std::vector<HeadStats> heads, std::int64_t head_dim = 64);

// 32 heads of different spreads with moments, full histograms, sinks and what-ifs (no scale, 1/D
// and six factors): as large as a layer of a page gets. head_dim 64.
LayerInput large_layer(int seed);

std::string read_file(const std::string& path);

// Compares with tests/golden/<name>. With POISE_UPDATE_GOLDEN=1 in the environment the file is
// written instead. Empty when equal, else one line naming the first difference.
std::string compare_with_golden(const std::string& name, const std::string& text);

}  // namespace poise::test
