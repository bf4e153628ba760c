// poise_bench [--seconds S] [--section forward|tally|gradient|masks|spread|memory] [--tolerant]
// Exit code 1 when a goal is missed, unless --tolerant. POISE_ISA chooses the kernels.
#include <poise/error.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/cases.h"
#include "isa/dispatch.h"

int main(int argc, char** argv) {
  bench::Settings settings;
  std::string section;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tolerant") {
      settings.tolerant = true;
    } else if (argument == "--seconds" && i + 1 < argc) {
      settings.seconds = std::atof(argv[++i]);
    } else if (argument == "--section" && i + 1 < argc) {
      section = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: poise_bench [--seconds S] "
                   "[--section forward|tally|gradient|masks|spread|memory] [--tolerant]\n");
      return 2;
    }
  }
  poise::Error error;
  const poise::Kernels* kernels = poise::active_kernels(&error);
  if (kernels == nullptr) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  }
  int missed = 0;
  if (section.empty() || section == "forward") missed += bench::forward_section(*kernels, settings);
  if (section.empty() || section == "tally") missed += bench::tally_section(*kernels, settings);
  if (section.empty() || section == "gradient")
    missed += bench::gradient_section(*kernels, settings);
  if (section.empty() || section == "masks") missed += bench::mask_section(settings);
  if (section.empty() || section == "spread") missed += bench::spread_section(settings);
  if (section.empty() || section == "memory") missed += bench::memory_section(settings);
  if (missed > 0) std::printf("%d goals missed\n", missed);
  return missed > 0 && !settings.tolerant ? 1 : 0;
}
