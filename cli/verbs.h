// The verbs of the command, one file each.
//
// add_VERB() describes the verb's options to CLI11 and returns what to do when it was chosen: a
// function that runs after the whole command line has been read and returns the exit code. Input
// that is no good leaves it as a Failure. Must not happen here: anything that computes.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "output.h"

namespace poise::cli {

// What holds for every verb.
struct Session {
  std::string command;  // the command line, for the report's reader
  ColourChoice colour = ColourChoice::automatic;
};

using Run = std::function<int(const Session&)>;

Run add_report(CLI::App& app);
Run add_attend(CLI::App& app);
Run add_explain(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_log(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_clip(CLI::App& app);
Run add_lab(CLI::App& app);

}  // namespace poise::cli
