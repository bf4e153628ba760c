// How many threads to use when the call names none. In: POISE_THREADS, the affinity mask, the
// cgroup files, each read once. Out: a number of threads. cpu.h says what may be read.
#include "cpu.h"

#include "check.h"
#include "check_view.h"
#include "isa/dispatch.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace poise {
namespace {

int affinity_count() {
#ifdef __linux__
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void lower_to(std::optional<double>* quota, std::optional<double> other) {
  if (other && (!*quota || *other < **quota)) *quota = other;
}

// Calls `visit` with the directories of `path` under `mount`, from the own one up to the mount.
template <class Visit>
void walk_up(const std::string& mount, std::string path, Visit visit) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (;;) {
    visit(mount + path);
    if (path.empty()) return;
    const auto slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool names_cpu_controller(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(comma == std::string_view::npos ? controllers.size() : comma + 1);
  }
  return false;
}

// POISE_THREADS and the machine's answer, both taken once.
struct ThreadDefaults {
  Error error;
  int threads = 0;

  ThreadDefaults() {
    error = parse_threads(std::getenv("POISE_THREADS"), &threads);
    if (threads != 0) return;
    const auto groups = read_small_file("/proc/self/cgroup");
    threads =
        usable_threads(affinity_count(), cgroup_quota(groups.value_or("0::/"), read_small_file));
  }
};

const ThreadDefaults& thread_defaults() {
  static const ThreadDefaults defaults;
  return defaults;
}

}  // namespace

Error parse_threads(const char* variable, int* threads) {
  const std::string_view given = variable == nullptr ? "" : variable;
  if (given.empty()) return {};
  int number = 0;
  const auto [end, problem] = std::from_chars(given.data(), given.data() + given.size(), number);
  if (problem == std::errc() && end == given.data() + given.size() && number >= 1 &&
      number <= kMaxThreads) {
    *threads = number;
    return {};
  }
  return refuse(ErrorCode::bad_value, {"environment", "POISE_THREADS"},
                "\"{}\" is not a whole number in 1 ... {}",
                {std::string(given), text(std::int64_t{kMaxThreads})});
}

std::optional<double> parse_cpu_max(const std::string& text) {
  std::istringstream words(text);
  std::string quota, period;
  words >> quota >> period;
  return parse_cfs_quota(quota, period);
}

std::optional<double> parse_cfs_quota(const std::string& quota, const std::string& period) {
  double allowed = 0, every = 0;
  if (!(std::istringstream(quota) >> allowed) || !(std::istringstream(period) >> every))
    return std::nullopt;
  if (!(allowed > 0) || !(every > 0)) return std::nullopt;
  return allowed / every;
}

std::optional<double> cgroup_quota(const std::string& self_cgroup, const ReadFile& read_file) {
  std::optional<double> quota;
  const auto visit_v2 = [&](const std::string& directory) {
    if (const auto text = read_file(directory + "/cpu.max")) lower_to(&quota, parse_cpu_max(*text));
  };
  const auto visit_v1 = [&](const std::string& directory) {
    const auto allowed = read_file(directory + "/cpu.cfs_quota_us");
    const auto period = read_file(directory + "/cpu.cfs_period_us");
    if (allowed && period) lower_to(&quota, parse_cfs_quota(*allowed, *period));
  };
  std::istringstream lines(self_cgroup);
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path; version 2 has number 0 and no controllers.
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      walk_up("/sys/fs/cgroup", path, visit_v2);
    else if (names_cpu_controller(controllers))
      walk_up("/sys/fs/cgroup/" + controllers, path, visit_v1);
  }
  return quota;
}

int usable_threads(int affinity, std::optional<double> quota) {
  double threads = affinity;
  if (quota) threads = std::min(threads, std::ceil(*quota));
  return static_cast<int>(std::clamp(threads, 1.0, static_cast<double>(kMaxThreads)));
}

int default_threads() { return thread_defaults().threads; }

Error environment_error() {
  if (thread_defaults().error) return thread_defaults().error;
  Error error;
  active_kernels(&error);
  return error;
}

}  // namespace poise
