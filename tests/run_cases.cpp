// poise_cases [FOLDER] [--isa NAME] [--no-processes]: runs every case file of a folder on every
// instruction set; with --no-processes, for emulators and the thread sanitizer, not those that
// start others.
//
// In: files in the schema of tests/cases/README.md (default: the project's own). Out: one line per
// case and engine (the definition, then each instruction set) with the largest error over its
// tolerance, then "N passed, N failed" (", N skipped" may follow), counted in those lines. Exit 0
// if none failed, 1 if one did, 2 on bad usage.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "case_procedures.h"
#include "case_processes.h"
#include "support/isa.h"

namespace poise::test {
namespace {

struct Tally {
  int passed = 0, failed = 0, skipped = 0;
};

void run_on_engine(const CaseFile& file, const std::string& engine, Tally& tally) {
  const bool reference = engine == "reference";
  Judgement verdict;
  try {
    verdict = file.cls == "value" ? judge_case(file, solve_case(file, reference))
                                  : run_procedure(file, reference);
  } catch (const std::exception& e) {
    verdict.worst = std::numeric_limits<double>::infinity();
    verdict.where = e.what();
  }
  const bool passed = verdict.worst <= 1;
  ++(passed ? tally.passed : tally.failed);
  std::printf("%s  %-9s  %-4s  %8.3g  %s\n", file.id.c_str(), engine.c_str(),
              passed ? "ok" : "FAIL", verdict.worst,
              passed ? file.title.c_str() : verdict.where.c_str());
  std::fflush(stdout);
}

void run_case(const std::string& path, const std::vector<std::string>& isas, bool processes,
              Tally& tally) {
  CaseFile file;
  try {
    file = read_case(path);
  } catch (const std::exception& e) {
    ++tally.failed;
    std::printf("%s: %s\n", path.c_str(), e.what());
    return;
  }
  if (!processes && starts_processes(file)) {
    std::printf("%s  skipped, it starts other processes: %s\n", file.id.c_str(),
                file.title.c_str());
    ++tally.skipped;
    return;
  }
  if (reference_can_run(file)) run_on_engine(file, "reference", tally);
  for (const std::string& isa : isas) {
    const IsaScope scope(isa);
    run_on_engine(file, isa, tally);
  }
}

int usage(const char* complaint) {
  std::fprintf(stderr, "%s\nusage: poise_cases [FOLDER] [--isa NAME] [--no-processes]\n",
               complaint);
  return 2;
}

int run_folder(int argc, char** argv) {
  std::string folder = POISE_SOURCE_DIR "/tests/cases";
  std::vector<std::string> isas = available_isas();
  bool processes = true;
  for (int n = 1; n < argc; ++n) {
    if (std::strcmp(argv[n], "--isa") == 0) {
      if (++n == argc) return usage("--isa needs a name");
      if (std::count(isas.begin(), isas.end(), argv[n]) == 0)
        return usage("this machine does not have that instruction set");
      isas = {argv[n]};
    } else if (std::strcmp(argv[n], "--no-processes") == 0) {
      processes = false;
    } else if (argv[n][0] == '-') {
      return usage("unknown option");
    } else {
      folder = argv[n];
    }
  }
  if (!std::filesystem::is_directory(folder)) return usage("no such folder");

  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Tally tally;
  for (const std::string& path : paths) run_case(path, isas, processes, tally);
  std::printf("%d passed, %d failed", tally.passed, tally.failed);
  if (tally.skipped > 0) std::printf(", %d skipped", tally.skipped);
  std::printf("\n");
  return tally.failed == 0 && tally.passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace poise::test

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], poise::test::kSayThreads) == 0)
    return std::printf("%d\n", poise::default_threads()) > 0 ? 0 : 1;
  return poise::test::run_folder(argc, argv);
}
