// poise log LOG...: joins run logs of several processes, or of parts of a run, into one.
//
// In: run logs in any order. Out: one log with every record, in an order that depends on the
// records alone. Must not happen here: merging of statistics, which is left to whoever reads the
// log.
#include <poise/run_log.h>

#include <memory>
#include <string>
#include <vector>

#include "failure.h"
#include "io/message.h"
#include "log_file.h"
#include "output.h"
#include "verbs.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::vector<std::string> logs;
  std::string out;
};

std::string plural(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

int merge(const Arguments& arguments) {
  OutputFiles files;
  for (const std::string& log : arguments.logs) files.protect(log);
  files.check("--out", arguments.out);
  const RunLog log = read_run_logs(arguments.logs);
  files.add_text("--out", arguments.out, log.text());
  files.commit();
  print(io::on_one_line(arguments.out) + ": " + plural(log.lines(), "record") + " of " +
        plural(log.layers(), "layer") + " at " + plural(log.steps(), "step") + ", " +
        std::to_string(log.first_step()) + " to " + std::to_string(log.last_step()) + '\n');
  return kExitDone;
}

}  // namespace

Run add_log(CLI::App& app) {
  auto* verb = app.add_subcommand("log", "Join run logs of several processes into one");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("LOG", arguments->logs, "run logs (docs/run-log.md), in any order")->required();
  verb->add_option("--out", arguments->out, "the log with all records")->required()->type_name("F");
  verb->footer(
      "Examples:\n"
      "  poise log rank0.jsonl rank1.jsonl --out run.jsonl\n"
      "A log is written by `poise report RECORDING --log run.jsonl --step N` or by "
      "poise::log_line, "
      "and\nshown by `poise report run.jsonl`, which takes several logs as well.");
  return [arguments](const Session&) { return merge(*arguments); };
}

}  // namespace poise::cli
