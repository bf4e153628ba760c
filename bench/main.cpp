// poise_bench [--seconds S] [--section forward|tally|gradient|masks|spread|memory] [--tolerant]
// Exit code 1 when a goal is missed, unless --tolerant; 2 when the command line is wrong. POISE_ISA
// chooses the kernels.
#include <poise/error.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/cases.h"
#include "isa/dispatch.h"

namespace {

using bench::Settings;
using poise::Kernels;

constexpr struct {
  const char* name;
  int (*run)(const Kernels& kernels, const Settings& settings);
} kSections[] = {
    {"forward", bench::forward_section},
    {"tally", bench::tally_section},
    {"gradient", bench::gradient_section},
    {"masks", [](const Kernels&, const Settings& s) { return bench::mask_section(s); }},
    {"spread", [](const Kernels&, const Settings& s) { return bench::spread_section(s); }},
    {"memory", [](const Kernels&, const Settings& s) { return bench::memory_section(s); }},
};

bool is_section(const std::string& name) {
  for (const auto& section : kSections)
    if (name == section.name) return true;
  return false;
}

// A positive, finite number, and nothing behind it; 0 for anything else.
double parse_seconds(const char* text) {
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  return *end == '\0' && seconds > 0 && std::isfinite(seconds) ? seconds : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string wanted;
  bool understood = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tolerant") {
      settings.tolerant = true;
    } else if (argument == "--seconds" && i + 1 < argc) {
      settings.seconds = parse_seconds(argv[++i]);
      understood = understood && settings.seconds > 0;
    } else if (argument == "--section" && i + 1 < argc) {
      wanted = argv[++i];
      understood = understood && is_section(wanted);
    } else {
      understood = false;
    }
  }
  if (!understood) {
    std::fprintf(stderr,
                 "usage: poise_bench [--seconds S] "
                 "[--section forward|tally|gradient|masks|spread|memory] [--tolerant]\n");
    return 2;
  }
  poise::Error error;
  const Kernels* kernels = poise::active_kernels(&error);
  if (kernels == nullptr) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  }
  int missed = 0;
  for (const auto& section : kSections)
    if (wanted.empty() || wanted == section.name) missed += section.run(*kernels, settings);
  if (missed > 0) std::printf("%d goals missed\n", missed);
  return missed > 0 && !settings.tolerant ? 1 : 0;
}
