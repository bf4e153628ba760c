// The command `poise`: reads the command line, runs one verb, turns its outcome into an exit code.
//
// Exit codes: 0 done, 1 the input is bad or the run failed, 2 the command line is wrong. Every
// refusal is one sentence on standard error. Each verb lives in a file of its own (verbs.h).
// Must not happen here: anything about attention or its statistics.
#include <poise/cpu.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "failure.h"
#include "io/message.h"
#include "output.h"
#include "verbs.h"

namespace poise::cli {
namespace {

std::string version_text() {
  return std::string("poise ") + POISE_VERSION + " (" + active_isa() + ", " +
         std::to_string(default_threads()) + " threads)\n";
}

// The command line as a shell would take it.
std::string shell_text(int argc, char** argv) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+%@";
  std::string text = "poise";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += ' ' + (plain ? word : quoted + '\'');
  }
  return text;
}

// Every refusal ends here: its sentence may hold bytes of a file, a path or the command line.
void say(const std::string& sentence) {
  std::fprintf(stderr, "poise: %s\n", io::on_one_line(sentence).c_str());
}

// The sentence of a command line that CLI11 refused, without its line ends.
std::string joined_lines(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// An empty value is a script's unset variable, never a wish. This cannot be left to CLI11, which
// takes the word after `--html=` for its value and cannot tell `--causal ""` from `--causal`.
void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.empty())
      throw usage_failure("the word after '" + std::string(i > 1 ? argv[i - 1] : "poise") +
                          "' is empty; expected a value");
    if (word.starts_with("--") && word.ends_with('='))
      throw usage_failure("'" + std::string(word) + "' has no value");
  }
}

int run(int argc, char** argv) {
  CLI::App app("Scaled dot-product attention for CPUs that shows the temperature of its softmax.",
               "poise");
  Session session{shell_text(argc, argv), ColourChoice::automatic};
  const std::map<std::string, ColourChoice> colours{{"auto", ColourChoice::automatic},
                                                    {"always", ColourChoice::always},
                                                    {"never", ColourChoice::never}};
  std::string colour = "auto";
  bool version = false;
  app.add_option("--color", colour, "colour: auto (a terminal without NO_COLOR), always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  app.add_flag("--version", version, "print the version, instruction set and threads");
  app.fallthrough();
  app.footer(
      "Exit codes: 0 done, 1 the input is bad or the run failed, 2 the command line is wrong.\n"
      "poise VERB --help shows the options of a verb, with examples.");

  const std::vector<std::pair<std::string, Run>> verbs{
      {"report", add_report(app)},   {"attend", add_attend(app)}, {"explain", add_explain(app)},
      {"inspect", add_inspect(app)}, {"log", add_log(app)},       {"bench", add_bench(app)},
      {"clip", add_clip(app)},       {"lab", add_lab(app)}};
  refuse_empty_values(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
    throw usage_failure(joined_lines(error.what()) + " (see poise" + verb + " --help)");
  }
  session.colour = colours.at(colour);
  if (version) {
    print(version_text());
    return kExitDone;
  }
  for (const auto& [name, verb] : verbs)
    if (app.got_subcommand(name)) return verb(session);
  throw usage_failure(
      "a verb is missing: report, attend, explain, inspect, log, bench, clip or lab (see poise "
      "--help)");
}

}  // namespace
}  // namespace poise::cli

int main(int argc, char** argv) {
  using poise::cli::Failure;
  poise::cli::prepare_process();
  try {
    return poise::cli::run(argc, argv);
  } catch (const Failure& failure) {
    poise::cli::say(failure.what());
    return failure.exit_code();
  } catch (const std::bad_alloc&) {
    poise::cli::say("not enough memory");
  } catch (const std::exception& error) {
    poise::cli::say(error.what());
  }
  return poise::cli::kExitFailed;
}
