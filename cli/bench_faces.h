// What `poise bench` found, as a table for people, JSON for programs, an SVG chart for a page.
//
// In: the machine, its limits, cases with their figures. Out: text. Every figure stands with its
// unit. Must not happen here: a measurement, a file.
#pragma once

#include <poise/limits.h>

#include <cstddef>
#include <string>
#include <vector>

#include "bench_case.h"
#include "bench_run.h"
#include "machine.h"

namespace poise::cli {

struct BenchResult {
  Machine machine;
  std::string isa, date, command;
  BenchSettings settings;
  MachineLimits limits;
  std::vector<BenchCase> cases;
  std::vector<BenchFigures> figures;  // of the first figures.size() cases
};

// The lines above the rows: machine, limits, heads of columns.
std::string bench_head(const BenchResult& result);
// The row of case `index`, which has its figures.
std::string bench_row(const BenchResult& result, std::size_t index);
// What the columns mean.
std::string bench_foot(const BenchResult& result);

// docs/performance.md says what is in it.
std::string bench_json(const BenchResult& result);

// A picture that stands alone: a bar per case, in percent of its limit.
std::string bench_chart(const BenchResult& result);

// Pieces that more than one face needs: "98.70", "0.005120" (four digits), "98.7", "0.5" (as few as
// need be), "1 thread".
std::string digits(double value);
std::string fixed(double value, int decimals);
std::string plain(double value);
std::string threads_text(int threads);
std::string cpu_text(const BenchResult& result);  // processor, cores, instruction set

}  // namespace poise::cli
