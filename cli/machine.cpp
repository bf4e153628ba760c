// Reads what Linux says about the machine: /proc/cpuinfo, /proc/meminfo, /sys/.../cache; the time.
// In: those files, any of which may be missing. Out: see machine.h.
// Must not happen here: a failure; whoever measures can live without a name.
#include "machine.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <thread>

namespace poise::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The text behind the colon of the first line that begins with `key`, without its blanks.
std::string value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

// Sizes as Linux writes them: "32K", "32768K", "1M", "24630540 kB".
std::int64_t bytes_of(const std::string& size) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(size.data(), size.data() + size.size(), number);
  if (problem != std::errc()) return 0;
  const std::string unit(end, size.data() + size.size());
  if (unit == "K" || unit == " kB") return number << 10;
  if (unit == "M") return number << 20;
  return number;
}

}  // namespace

std::int64_t Machine::last_cache_bytes() const {
  std::int64_t bytes = 0;
  for (const Cache& cache : caches) bytes = std::max(bytes, cache.bytes);
  return bytes;
}

Machine this_machine() {
  Machine machine;
  machine.cpu = value_of("/proc/cpuinfo", "model name");
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  for (int index = 0;; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::int64_t bytes = bytes_of(first_line(folder + "size"));
    if (bytes == 0) break;
    machine.caches.push_back({static_cast<int>(bytes_of(first_line(folder + "level"))),
                              first_line(folder + "type"), bytes,
                              first_line(folder + "shared_cpu_list")});
  }
  return machine;
}

std::int64_t available_memory_bytes() {
  return bytes_of(value_of("/proc/meminfo", "MemAvailable"));
}

std::string compiler_text() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%d %b %Y %H:%M UTC", &utc));
}

}  // namespace poise::cli
