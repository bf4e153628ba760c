// The cases that need children or a look at the process.
//
// In: a case file. Out: a Judgement. Nothing here changes this process: masks are set in children.
#include "case_processes.h"

#include <poise/cpu.h>

#include <fcntl.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>

#include "cpu.h"
#include "support/child_process.h"
#include "support/peak_memory.h"
#include "support/problem.h"

namespace poise::test {
namespace {

Judgement verdict_of(const std::string& broken) {
  if (broken.empty()) return {};
  return {std::numeric_limits<double>::infinity(), broken};
}

// The CPUs of this process's affinity mask, in order.
std::vector<int> own_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) throw std::runtime_error("no affinity mask");
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

// What a new process of this program, bound to the first `count` CPUs, says about its threads.
std::string threads_said(const std::vector<int>& cpus, std::size_t count) {
  return in_forked_child([&]() -> std::string {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (std::size_t n = 0; n < count; ++n) CPU_SET(static_cast<std::size_t>(cpus[n]), &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0) return "cannot set an affinity mask";
    unsetenv("POISE_THREADS");
    FILE* said = popen(
        (std::string("exec '/proc/") + std::to_string(getpid()) + "/exe' " + kSayThreads).c_str(),
        "r");
    char line[32] = "nothing";
    if (said == nullptr || std::fgets(line, sizeof line, said) == nullptr) return "no answer";
    pclose(said);
    return std::string(line, std::strcspn(line, "\n"));
  });
}

std::optional<std::string> real_file(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return std::nullopt;
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

bool starts_processes(const CaseFile& file) {
  return file.cls == "memory" || (file.cls == "process" && file.id != "055");
}

Judgement run_fork() {
  const Problem p = make_problem({1, 4, 2, 300, 700, 64, 64}, DType::f32, 331);
  const Wish wish{.threads = 2};
  const Outputs expected = run(p, wish);
  if (expected.error) return verdict_of(expected.error.message());
  const auto call_again = [&] {
    const Outputs o = run(p, wish);
    return o.error ? o.error.message() : first_difference(expected, o);
  };
  std::string broken = in_forked_child(call_again);
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop) static_cast<void>(run(p, wish));
  });
  for (int n = 0; n < 20 && broken.empty(); ++n)
    broken = in_forked_child(call_again, kChildSeconds, Leaving::at_once);
  stop = true;
  caller.join();
  return verdict_of(broken);
}

Judgement run_default_threads() {
  // Quotas, on files of our own: the case's 200 %, one and a half CPUs, none.
  const auto with_quota = [](const std::string& cpu_max) {
    const std::map<std::string, std::string> files = {{"/sys/fs/cgroup/job/cpu.max", cpu_max}};
    return cgroup_quota("0::/job\n", [=](const std::string& path) -> std::optional<std::string> {
      const auto found = files.find(path);
      if (found == files.end()) return std::nullopt;
      return found->second;
    });
  };
  if (usable_threads(64, with_quota("200000 100000\n")) != 2 ||
      usable_threads(64, with_quota("150000 100000\n")) != 2 ||
      usable_threads(64, with_quota("max 100000\n")) != 64)
    return verdict_of("a quota on 64 CPUs gives another number of threads");

  // Affinity, for real, with whatever quota this machine has.
  const auto quota = cgroup_quota(real_file("/proc/self/cgroup").value_or("0::/"), real_file);
  const std::vector<int> cpus = own_cpus();
  for (std::size_t count = 1; count <= cpus.size(); count = count < 4 ? count + 1 : 2 * count) {
    const std::string said = threads_said(cpus, count);
    const std::string expected = std::to_string(usable_threads(static_cast<int>(count), quota));
    if (said != expected)
      return verdict_of(std::to_string(count) + " CPUs: " + said + " against " + expected);
  }
  return {};
}

Judgement run_memory(const CaseFile& file) {
  const Json& sizes = file.json.at("sizes");
  for (const auto& [name, value] : std::map<std::string, int>{{"Hq", 8}, {"Hkv", 2}, {"D", 320}})
    if (sizes.at(name) != value) throw std::runtime_error("the case has another shape");
  constexpr std::int64_t kLen = 1024;
  const double bytes = peak_bytes_with_broadcast_mask(kLen);
  // A quarter of the scores, 8.4 MB: the workspace is the same as at the full length.
  const double allowed = score_matrix_bytes(kLen) / 4;
  return {bytes / allowed, "the call took " + std::to_string(bytes / 1e6) + " MB at its peak"};
}

}  // namespace poise::test
