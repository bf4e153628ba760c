// The experiments of `poise lab` as the command line spells them.
//
// In: a subcommand's own options. Out: an experiment that runs with the options all of them share,
// which lab.cpp adds: --seed, --threads, --json, --svg. Must not happen here: a measurement.
#pragma once

#include <poise/error.h>

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "lab/result.h"
#include "lab/units.h"
#include "verbs.h"

namespace poise::cli {

struct LabExperiment {
  CLI::App* verb = nullptr;  // `poise lab NAME`
  std::function<Error(const lab::RunSettings& settings, lab::Outcome* outcome)> run;
};

// lab_experiments.cpp
LabExperiment add_lab_variance(CLI::App& lab);
LabExperiment add_lab_saturation(CLI::App& lab);
LabExperiment add_lab_gradient(CLI::App& lab);
LabExperiment add_lab_example(CLI::App& lab);

// lab_training.cpp
LabExperiment add_lab_training(CLI::App& lab);

// The machine face of a Result; docs/lab.md says what is in it.
std::string lab_json(const lab::Result& result, const lab::RunSettings& settings,
                     const Session& session);

}  // namespace poise::cli
