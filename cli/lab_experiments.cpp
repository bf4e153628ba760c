// The options of the experiments that take seconds: sizes, with the bounds that keep them so.
//
// In: what was typed. Out: a request for lab/. Must not happen here: a measurement, an option that
// every experiment has (lab.cpp).
#include <memory>

#include "lab.h"
#include "lab/example.h"

namespace poise::cli {

LabExperiment add_lab_example(CLI::App& lab) {
  auto* verb = lab.add_subcommand("example", "The worked figures of the lesson, computed");
  auto request = std::make_shared<lab::ExampleRequest>();
  verb->add_option("--head-dim", request->head_dim,
                   "width of the histogram's q and k; 64 unless given")
      ->check(CLI::Range(1, 4096))
      ->type_name("D");
  verb->add_option("--sets", request->sets,
                   "sets of 64 queries and 64 keys in the histogram; 400 unless given")
      ->check(CLI::Range(2, 100000))
      ->type_name("N");
  return {verb, [request](const lab::RunSettings& settings, lab::Outcome* outcome) {
            return lab::run_example(*request, settings, outcome);
          }};
}

}  // namespace poise::cli
