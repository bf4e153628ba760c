// Statistics inside another JSON document: the form in which a run log holds them.
// In: Stats, or JSON from anywhere. Out: JSON, or Stats. Nothing throws, and on a problem nothing
// is changed. Schema: docs/run-log.md; the form that stands alone is to_json(Stats).
#pragma once

#include <poise/stats.h>

#include "report/json_value.h"

#include <string>

namespace poise::report {

// The members of poise.stats without those that hold their default, bins by runs. Reading it back
// gives the same bits.
Json compact_stats(const Stats& stats);

// Empty, or what is wrong with the member it names; stats is then unchanged.
std::string read_compact_stats(const Json& json, Stats& stats);

// The member of an object; null when there is none, or no object. A reference: copying a hostile
// value recurses as deep as it is nested.
const Json* find_member(const Json& json, const char* name);

// How a message spells a value: shortened, in ASCII; arrays and objects by their kind.
std::string spelled(const Json* json);

}  // namespace poise::report
