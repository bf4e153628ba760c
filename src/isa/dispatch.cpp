// The table of instruction sets, best first, and the one in use.
// In: CPUID (with the operating system's consent, XGETBV), POISE_ISA once, set_isa(). Out: a table
// of kernels, or an Error that names the bad value.
// What must not happen here: any code compiled for more than the baseline. Adding an instruction
// set: its file src/isa/<name>.cpp, and one row here.
#include "isa/dispatch.h"

#include "check_view.h"

#include <poise/cpu.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace poise {

#if defined(__x86_64__)
extern const Kernels kAvx512Kernels, kAvx2Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif
extern const Kernels kScalarKernels;

namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports answers yes only when the operating system saves the registers too (gcc
// and clang read XCR0 before they report AVX or AVX-512).
// clang 14 does not know the name "f16c": CPUID leaf 1, ecx bit 29 (Intel SDM, CPUID).
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1U) != 0;
}
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}
#endif
// Sets that belong to the baseline of their builds.
bool always() { return true; }

struct Isa {
  const char* name;
  const Kernels* kernels;  // null = not part of this build
  bool (*supported)();
};

constexpr std::array<Isa, 4> kIsas = {{
#if defined(__x86_64__)
    {"avx512", &kAvx512Kernels, has_avx512},
    {"avx2", &kAvx2Kernels, has_avx2},
#else
    {"avx512", nullptr, nullptr},
    {"avx2", nullptr, nullptr},
#endif
#if defined(__aarch64__)
    {"neon", &kNeonKernels, always},
#else
    {"neon", nullptr, nullptr},
#endif
    {"scalar", &kScalarKernels, always},
}};

bool runs_here(const Isa& isa) { return isa.kernels != nullptr && isa.supported(); }

template <class Wanted>
std::string names(Wanted wanted) {
  std::string list;
  for (const Isa& isa : kIsas)
    if (wanted(isa)) list += (list.empty() ? "" : ", ") + std::string(isa.name);
  return list;
}

// Looks a name up; null with the refusal of `argument` in *error when it is not to be had.
const Kernels* select(const std::string& name, Argument argument, Error* error) {
  if (const Kernels* kernels = find_kernels(name)) return kernels;
  for (const Isa& isa : kIsas)
    if (isa.name == name) {
      *error = refuse(ErrorCode::unsupported, argument, "\"{}\" does not run here, where {} do",
                      {name, names(runs_here)});
      return nullptr;
    }
  *error = refuse(ErrorCode::unsupported, argument, "\"{}\" is not one of {}",
                  {name, names([](const Isa&) { return true; })});
  return nullptr;
}

// What runs unless set_isa() says otherwise: POISE_ISA, else the best.
struct DefaultIsa {
  const Kernels* kernels = nullptr;
  Error error;

  DefaultIsa() {
    const char* variable = std::getenv("POISE_ISA");
    if (variable != nullptr && *variable != '\0') {
      kernels = select(variable, {"environment", "POISE_ISA"}, &error);
      return;
    }
    for (const Isa& isa : kIsas)
      if (kernels == nullptr && runs_here(isa)) kernels = isa.kernels;
  }
};

const DefaultIsa& default_isa() {
  static const DefaultIsa isa;
  return isa;
}

// set_isa()'s choice; null = the default.
std::atomic<const Kernels*> forced_kernels{nullptr};

}  // namespace

const Kernels* active_kernels(Error* error) {
  const DefaultIsa& isa = default_isa();
  if (isa.error) {
    *error = isa.error;
    return nullptr;
  }
  const Kernels* forced = forced_kernels.load(std::memory_order_acquire);
  return forced != nullptr ? forced : isa.kernels;
}

const Kernels* find_kernels(std::string_view name) {
  for (const Isa& isa : kIsas)
    if (isa.name == name && runs_here(isa)) return isa.kernels;
  return nullptr;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> available;
  for (const Isa& isa : kIsas)
    if (runs_here(isa)) available.emplace_back(isa.name);
  return available;
}

// Empty when POISE_ISA is not to be had: no call runs then.
std::string active_isa() {
  Error ignored;
  const Kernels* kernels = active_kernels(&ignored);
  return kernels == nullptr ? "" : kernels->name;
}

Error set_isa(const std::string& isa) {
  if (default_isa().error) return default_isa().error;
  const Kernels* kernels = nullptr;
  if (!isa.empty()) {
    Error error;
    kernels = select(isa, {"set_isa", "isa"}, &error);
    if (error) return error;
  }
  forced_kernels.store(kernels, std::memory_order_release);
  return {};
}

}  // namespace poise
