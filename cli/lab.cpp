// poise lab: the lesson's claims as experiments, with error bars.
//
// In: an experiment and its sizes. Out: tables on standard output; JSON and a picture on request,
// after the last computation. An interrupt leaves no file. Must not happen here: a number.
#include "lab.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "failure.h"
#include "lab/table.h"
#include "options.h"
#include "output.h"

namespace poise::cli {
namespace {

struct Arguments {
  lab::RunSettings settings;
  std::string json, svg;
};

// The experiment's progress as a line on the terminal.
class Bar : public lab::Watcher {
 public:
  explicit Bar(std::string what) : what_(std::move(what)) {}
  void begin(std::int64_t units) override { progress_.emplace(what_, units); }
  void advance() override {
    if (progress_) progress_->advance();
  }

 private:
  std::string what_;
  std::optional<Progress> progress_;
};

int run(const LabExperiment& experiment, const Arguments& arguments, const Session& session) {
  OutputFiles files;
  if (!arguments.json.empty()) files.check("--json", arguments.json);
  if (!arguments.svg.empty()) files.check("--svg", arguments.svg);
  lab::Outcome outcome;
  {
    Bar bar("lab " + experiment.verb->get_name());
    lab::RunSettings settings = arguments.settings;
    settings.watcher = &bar;
    throw_if(experiment.run(settings, &outcome));
  }
  if (!arguments.json.empty())
    files.add_text("--json", arguments.json, lab_json(outcome.result, arguments.settings, session));
  if (!arguments.svg.empty()) files.add_text("--svg", arguments.svg, outcome.picture);
  print(lab::to_text(outcome.result));
  files.commit();
  return kExitDone;
}

}  // namespace

Run add_lab(CLI::App& app) {
  auto* verb = app.add_subcommand("lab", "Measure the claims about scaled dot products");
  const std::vector<LabExperiment> experiments{add_lab_variance(*verb), add_lab_saturation(*verb),
                                               add_lab_gradient(*verb), add_lab_example(*verb),
                                               add_lab_training(*verb)};
  auto arguments = std::make_shared<Arguments>();
  std::string names;
  for (const LabExperiment& experiment : experiments) {
    CLI::App& one = *experiment.verb;
    one.add_option("--seed", arguments->settings.seed,
                   "where the random numbers begin; 1 unless given")
        ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
        ->type_name("S");
    add_threads(one, &arguments->settings.threads);
    one.add_option("--json", arguments->json, "write every number as JSON")->type_name("F");
    one.add_option("--svg", arguments->svg, "write a picture")->type_name("F");
    names += (names.empty() ? "" : ", ") + one.get_name();
  }
  verb->footer(
      "The same seed gives the same numbers, for any number of threads.\n"
      "poise lab EXPERIMENT --help shows the options of an experiment.\n"
      "Examples:\n"
      "  poise lab example\n"
      "  poise lab variance --svg variance.svg\n"
      "  poise lab gradient --seed 7 --json gradient.json");
  return [experiments, arguments, names](const Session& session) {
    for (const LabExperiment& experiment : experiments)
      if (experiment.verb->parsed()) return run(experiment, *arguments, session);
    throw usage_failure("lab: an experiment is missing: " + names + " (see poise lab --help)");
  };
}

}  // namespace poise::cli
