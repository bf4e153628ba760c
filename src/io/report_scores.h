// Of a report's JSON only what clipping needs: the largest score of every head.
//
// In: the text that `poise report --json` writes (schema poise.report, docs/report-json.md). Out: a
// list of heads. Keys it does not know are ignored, as that page asks of readers.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace poise::io {

struct HeadScore {
  std::string layer;  // its label: "L0"
  std::int64_t head = 0;
  double max_score = 0;             // S⁺, signed; NaN when no row was measured
  std::int64_t nonfinite_rows = 0;  // rows of which no score counts in max_score
};

// Errors: bad_file, "[read] <source>: ...": not JSON, another schema or version, a member missing
// or of the wrong type, a head given twice. *heads changes on success only.
Error read_report_scores(std::string_view text, const std::string& source,
                         std::vector<HeadScore>* heads);

}  // namespace poise::io
