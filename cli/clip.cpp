// poise clip: QK-clip on a checkpoint, from what a report measured.
//
// In: a checkpoint (safetensors), a report (JSON), a map of its projections. Out: a new checkpoint
// with the rows of the clipped heads scaled and every other byte the same, and on standard output
// what was done head by head. Must not happen here: a file changed in place; what to scale by what
// (clip_plan.h).
#include <poise/health.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clip_plan.h"
#include "failure.h"
#include "inputs.h"
#include "io/mapped_file.h"
#include "output.h"
#include "verbs.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::string checkpoint, report, map, out, tau;
};

std::string_view text_of(const io::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

double tau_of(const Arguments& arguments) {
  if (arguments.tau.empty()) return Thresholds{}.hot_bad;
  const auto tau = parse_number(arguments.tau);
  if (!tau || !std::isfinite(*tau) || !(*tau > 0))
    throw usage_failure("--tau: '" + arguments.tau + "' is not a finite number above 0");
  return *tau;
}

int clip(const Arguments& arguments) {
  const double tau = tau_of(arguments);
  OutputFiles files;
  for (const std::string& input : {arguments.checkpoint, arguments.report, arguments.map})
    files.protect(input);
  files.check("--out", arguments.out);

  io::MappedFile report, map;
  std::vector<io::HeadScore> heads;
  throw_if(io::MappedFile::open(arguments.report, &report));
  throw_if(io::read_report_scores(text_of(report), arguments.report, &heads));
  std::vector<io::MapLayer> layers;
  throw_if(io::MappedFile::open(arguments.map, &map));
  throw_if(io::read_clip_map(text_of(map), arguments.map, &layers));
  io::Checkpoint checkpoint;
  throw_if(io::Checkpoint::open(arguments.checkpoint, &checkpoint));

  ClipPlan plan = plan_clip({heads, layers, checkpoint, arguments.report, arguments.map, tau});
  files.add_file("--out", arguments.out, [&](const std::string& where) {
    return checkpoint.write_scaled(where, std::move(plan.scalings));
  });
  files.commit();
  print(plan.text);
  return kExitDone;
}

}  // namespace

Run add_clip(CLI::App& app) {
  auto* verb = app.add_subcommand(
      "clip", "Scale the weights of heads that run hot (QK-clip) in a copy of a checkpoint");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("CHECKPOINT", arguments->checkpoint, "the weights (safetensors)")->required();
  verb->add_option("--from", arguments->report, "the report: poise report RECORDING --json FILE")
      ->required()
      ->type_name("FILE");
  verb->add_option("--map", arguments->map,
                   "where the checkpoint keeps each head's query and key (docs/clip.md)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--out", arguments->out, "the new checkpoint")->required()->type_name("FILE");
  verb->add_option("--tau", arguments->tau, "the largest score allowed (100)")->type_name("N");
  verb->footer(
      "Examples:\n"
      "  poise report recorded.safetensors --json report.json\n"
      "  poise clip model.safetensors --from report.json --map map.json --out clipped.safetensors");
  return [arguments](const Session&) { return clip(*arguments); };
}

}  // namespace poise::cli
