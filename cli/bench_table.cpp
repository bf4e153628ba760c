// The table of `poise bench`: ASCII, aligned, without colour, so that it reads the same in a
// terminal, a file and a mail.
//
// In: a BenchResult. Out: lines. Rows are made one at a time: a run of a minute shows what it has.
// Must not happen here: a measurement.
#include "bench_faces.h"

#include <algorithm>
#include <cstdio>

#include "io/message.h"

namespace poise::cli {
namespace {

constexpr double kGiga = 1e9, kMebi = 1024.0 * 1024.0;

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}
std::string left(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

std::size_t name_width(const BenchResult& result) {
  std::size_t width = std::string("B,Hq,Hkv,Lq,Lk,D").size();
  for (const BenchCase& bench : result.cases) width = std::max(width, bench.name().size());
  return width;
}

std::string gflops(double rate) { return digits(rate / kGiga) + " GFLOP/s"; }
std::string gbytes(double rate) { return digits(rate / kGiga) + " GB/s"; }
std::string mebibytes(double bytes) { return fixed(bytes / kMebi, 1) + " MiB"; }

std::string peak_line(const PeakRate& peak, int threads) {
  return left("  multiply-add, " + peak.isa + ", " + threads_text(threads), 40) +
         right(gflops(peak.f32) + " f32", 20) + right(gflops(peak.f64) + " f64", 20) + '\n';
}

std::string stream_line(const BenchResult& result, double rate, int threads) {
  return left("  reading " + mebibytes(static_cast<double>(result.limits.stream_bytes)) + ", " +
                  threads_text(threads),
              40) +
         right(gbytes(rate), 16) + '\n';
}

// Linux counts resident pages in batches per CPU, so that less than this may be nothing or twice
// it.
std::string memory_text(const BenchFigures& figures) {
  if (!figures.memory_bytes) return "?";
  return *figures.memory_bytes < kMebi ? "< 1" : fixed(*figures.memory_bytes / kMebi, 1);
}

std::string signed_percent(double percent) { return (percent < 0 ? "" : "+") + fixed(percent, 1); }

}  // namespace

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string plain(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string digits(double value) {
  int decimals = 1;
  for (double step = 100; step > 1e-4 && value < step; step /= 10) ++decimals;
  return fixed(value, value < 1000 ? decimals : 0);
}

std::string threads_text(int threads) {
  return threads == 1 ? "1 thread" : std::to_string(threads) + " threads";
}

std::string cpu_text(const BenchResult& result) {
  const Machine& machine = result.machine;
  return (machine.cpu.empty() ? "unknown processor" : io::on_one_line(machine.cpu)) + ", " +
         std::to_string(machine.cores) + (machine.cores == 1 ? " core, " : " cores, ") + result.isa;
}

std::string bench_head(const BenchResult& result) {
  std::string text = cpu_text(result) + "; poise " POISE_VERSION ", " + compiler_text() + "; " +
                     result.date + "\n\nLimits\n";
  for (const PeakRate& peak : result.limits.peaks) text += peak_line(peak, 1);
  if (result.limits.threads > 1)
    text += peak_line(result.limits.peak_together, result.limits.threads);
  text += stream_line(result, result.limits.stream, 1);
  if (result.limits.threads > 1)
    text += stream_line(result, result.limits.stream_together, result.limits.threads);
  text += "\nAttention, " + threads_text(result.settings.threads) + ", " +
          plain(result.settings.seconds) + " s per shape\n";
  const std::size_t width = name_width(result);
  std::string first = left("", width) + right("ms of one call", 20) + right("", 29) +
                      right("% of limit", 15) + right("MiB", 8);
  std::string second = left("B,Hq,Hkv,Lq,Lk,D", width) + right("best", 10) + right("median", 10) +
                       right("rate", 10) + right("limit", 10) + left("", 9) + right("best", 7) +
                       right("median", 8) + right("added", 8);
  if (result.settings.stats) {
    first += right("statistics, % more", 24);
    second += right("max", 8) + right("core", 8) + right("full", 8);
  }
  return text + first + '\n' + second + '\n';
}

std::string bench_row(const BenchResult& result, std::size_t index) {
  const BenchCase& bench = result.cases[index];
  const BenchFigures& figures = result.figures[index];
  const LimitShare& limit = figures.nearer();
  const bool memory = figures.memory_bound();
  const double work = memory ? static_cast<double>(bench.kv_bytes()) : bench.flops();
  std::string row =
      left(bench.name(), name_width(result)) + right(digits(1e3 * figures.best_s), 10) +
      right(digits(1e3 * figures.median_s), 10) + right(digits(work / figures.best_s / kGiga), 10) +
      right(digits(limit.rate / kGiga), 10) + left(memory ? " GB/s" : " GFLOP/s", 9) +
      right(fixed(limit.percent_best, 1), 7) + right(fixed(limit.percent_median, 1), 8) +
      right(memory_text(figures), 8);
  for (const StatsCost& cost : figures.stats) row += right(signed_percent(cost.percent_median), 8);
  return row + '\n';
}

std::string bench_foot(const BenchResult& result) {
  std::string text =
      "\nThe limit of a shape is what bounds it: multiply-adds on registers (GFLOP/s), or reading "
      "its\nkeys and values (GB/s). It ran in turn with the shape; best: fastest run against "
      "fastest run,\nmedian: of the ratios of neighbouring runs. With one query, layers that "
      "exceed "
      "the caches take\nturns. Memory: what a first call adds. Times: ";
  return text + (result.settings.threads == 1 ? "CPU time of the thread.\n" : "wall clock.\n");
}

}  // namespace poise::cli
