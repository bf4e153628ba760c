// The run log: statistics of a training run, one line of JSON per layer and step, only ever
// appended to. Several processes may write one log or one each; what they measured of the same step
// and layer merges, whichever line comes first and whichever file it stands in, to the same bits.
//
// A line is made by log_line() and appended by the caller in a single write. A log is read by
// RunLog, which refuses what is no log and tolerates one thing: a line that a crash cut off.
// Format: docs/run-log.md. Nothing here opens a file. Functions live in poise::report.
#pragma once

#include <poise/error.h>
#include <poise/report.h>
#include <poise/stats.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace poise {

inline constexpr int kLogSchemaVersion = 1;
inline constexpr std::int64_t kMaxLogStep = std::int64_t{1} << 50;

// One record with its line end, in ASCII. step: 0 ... 2^50, brought into that range. layer: what
// the layer is called at every step, "L3"; an empty one is written as "layer". process: who
// measured it, "rank 2"; empty = not said. Names are kept whole up to 200 bytes, beyond that their
// end. Every bit of stats survives. Size: 1 to 2 kB per head at level core, about 4
// kB at full.
std::string log_line(std::int64_t step, std::string_view layer, const Stats& stats,
                     std::string_view process = {});

class RunLog {
 public:
  // Adds every record of one log. `name` calls it in messages: its path. Blank lines are skipped; a
  // line that ends within its record is left out and told by cut_off().
  // Errors: bad_file, naming the line and the member, when a line is no record; nothing is added
  // then. Cost: linear; keeps about as many bytes as it was given.
  Error add(std::string_view text, std::string_view name);

  bool empty() const { return records_.empty(); }
  std::int64_t first_step() const;  // 0 when empty
  std::int64_t last_step() const;
  std::size_t lines() const;   // records added
  std::size_t steps() const;   // different steps
  std::size_t layers() const;  // different layers
  // One sentence per line that was left out: "run.jsonl: line 17 is cut off and was left out".
  const std::vector<std::string>& cut_off() const { return cut_off_; }

  // Every record added, one a line, in an order that depends on them alone: by step, layer (numbers
  // in labels by value: L2 before L10), then by their text. Records of a step and layer stay apart,
  // since sums of doubles depend on their order: a merged log merges on as its parts would.
  std::string text() const;

  // The statistics of each step and layer, records merged, in the order of text(); stops at the
  // first error. Errors: bad_file when records of one step and layer do not belong together
  // (Stats::merge says why) or count more than 2^50 rows; what visit returns.
  using Visit =
      std::function<Error(std::int64_t step, const std::string& layer, const Stats& stats)>;
  Error for_each(const Visit& visit) const;

 private:
  struct Key {
    std::int64_t step;
    std::string layer;
    bool operator<(const Key& other) const;
  };
  std::map<Key, std::vector<std::string>> records_;  // lines as log_line() writes them, sorted
  std::vector<std::string> cut_off_;
};

// Sets layers, each as it was last measured, and series of a report's input; thresholds and context
// are those of the input and must be set before. Errors: those of RunLog::for_each(); bad_value
// when the log is empty. Nothing changes on an error.
Error read_run(const RunLog& log, ReportInput& input);

}  // namespace poise
