// Threads and instruction sets: text of cgroup files and variables, set_isa(), and what a bad
// environment does to every call (in a child process, since variables are read once).
#include "cpu.h"

#include "check.h"
#include "isa/dispatch.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace poise {
namespace {

// A file system of a few files.
ReadFile files(std::map<std::string, std::string> contents) {
  return [contents = std::move(contents)](const std::string& path) -> std::optional<std::string> {
    const auto found = contents.find(path);
    if (found == contents.end()) return std::nullopt;
    return found->second;
  };
}

TEST(cpu, cpu_max_is_quota_over_period) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  for (const char* malformed : {"", "x", "100000", "0 100000", "-1 100000", "100000 0", "1 x"})
    EXPECT_EQ(parse_cpu_max(malformed), std::nullopt) << malformed;
}

TEST(cpu, cfs_quota_is_quota_over_period) {
  EXPECT_EQ(parse_cfs_quota("400000\n", "100000\n"), 4);
  EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), std::nullopt);
}

TEST(cpu, the_quota_of_the_own_cgroup_counts) {
  EXPECT_EQ(cgroup_quota("0::/user.slice/job\n",
                         files({{"/sys/fs/cgroup/user.slice/job/cpu.max", "200000 100000\n"},
                                {"/sys/fs/cgroup/other/cpu.max", "100000 100000\n"}})),
            2);
}

TEST(cpu, the_smallest_quota_on_the_way_to_the_root_counts) {
  EXPECT_EQ(cgroup_quota("0::/a/b/c\n", files({{"/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"},
                                               {"/sys/fs/cgroup/a/b/cpu.max", "300000 100000\n"},
                                               {"/sys/fs/cgroup/a/cpu.max", "800000 100000\n"}})),
            3);
}

TEST(cpu, a_container_that_sees_only_the_mounts_root_finds_its_quota_there) {
  EXPECT_EQ(
      cgroup_quota("0::/docker/0123abcd\n", files({{"/sys/fs/cgroup/cpu.max", "250000 100000\n"}})),
      2.5);
  EXPECT_EQ(cgroup_quota("0::/\n", files({{"/sys/fs/cgroup/cpu.max", "50000 100000\n"}})), 0.5);
}

TEST(cpu, version_one_quota_is_found_in_the_cpu_hierarchy) {
  const std::string groups = "9:cpuset:/x\n4:cpu,cpuacct:/job\n1:name=systemd:/\n";
  EXPECT_EQ(
      cgroup_quota(groups, files({{"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "600000\n"},
                                  {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
                                  {"/sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "100000\n"},
                                  {"/sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "100000\n"}})),
      6);
}

TEST(cpu, no_quota_file_means_no_quota) {
  EXPECT_EQ(cgroup_quota("0::/a\n", files({})), std::nullopt);
  EXPECT_EQ(cgroup_quota("", files({{"/sys/fs/cgroup/cpu.max", "1 1"}})), std::nullopt);
  EXPECT_EQ(cgroup_quota("no colons\none:only\n", files({})), std::nullopt);
}

TEST(cpu, usable_threads_round_the_quota_up_and_are_never_less_than_one) {
  EXPECT_EQ(usable_threads(8, std::nullopt), 8);
  EXPECT_EQ(usable_threads(8, 2.0), 2);
  EXPECT_EQ(usable_threads(8, 2.1), 3);
  EXPECT_EQ(usable_threads(8, 0.1), 1);
  EXPECT_EQ(usable_threads(2, 64.0), 2);
  EXPECT_EQ(usable_threads(0, std::nullopt), 1);
  EXPECT_EQ(usable_threads(100000, std::nullopt), kMaxThreads);
}

TEST(cpu, thread_counts_are_whole_numbers_in_range) {
  int threads = 7;
  EXPECT_FALSE(parse_threads(nullptr, &threads));
  EXPECT_FALSE(parse_threads("", &threads));
  EXPECT_EQ(threads, 7);
  EXPECT_FALSE(parse_threads("4096", &threads));
  EXPECT_EQ(threads, 4096);
  for (const char* bad : {"0", "-1", "4097", "two", "2 ", " 2", "2.5", "0x2", "99999999999999"}) {
    const Error error = parse_threads(bad, &threads);
    EXPECT_EQ(error.message(), std::string("[environment] POISE_THREADS: \"") + bad +
                                   "\" is not a whole number in 1 ... 4096");
    EXPECT_EQ(error.code(), ErrorCode::bad_value);
  }
  EXPECT_EQ(threads, 4096);
}

TEST(cpu, available_isas_end_with_scalar_and_each_can_be_forced) {
  const std::vector<std::string> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), "scalar");
  for (const std::string& isa : isas) {
    EXPECT_EQ(set_isa(isa).message(), "");
    EXPECT_EQ(active_isa(), isa);
    ASSERT_NE(find_kernels(isa.c_str()), nullptr);
    EXPECT_EQ(find_kernels(isa.c_str())->name, isa);
    Error error;
    EXPECT_EQ(active_kernels(&error), find_kernels(isa.c_str()));
  }
  EXPECT_EQ(set_isa("").message(), "");
}

TEST(cpu, an_unknown_isa_is_refused_and_changes_nothing) {
  const std::string before = active_isa();
  const Error error = set_isa("sse9");
  EXPECT_EQ(error.message(), "[set_isa] isa: \"sse9\" is not one of avx512, avx2, neon, scalar");
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(active_isa(), before);
  EXPECT_EQ(find_kernels("sse9"), nullptr);
  EXPECT_EQ(set_isa(std::string("scalar\0x", 8)).code(), ErrorCode::unsupported);
  EXPECT_EQ(active_isa(), before);
}

TEST(cpu, an_isa_this_machine_lacks_is_refused_by_name) {
  const std::vector<std::string> isas = available_isas();
  for (const char* isa : {"avx512", "avx2", "neon"}) {
    if (std::find(isas.begin(), isas.end(), isa) != isas.end()) continue;
    EXPECT_EQ(set_isa(isa).message().find(std::string("[set_isa] isa: \"") + isa +
                                          "\" does not run here, where "),
              0U);
    EXPECT_EQ(find_kernels(isa), nullptr);
  }
}

// What this program prints about its environment when run again with `variables` set.
std::string in_child(const std::string& variables) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return "no /proc/self/exe";
  const std::string command = "POISE_CPU_TEST_CHILD=1 " + variables + " '" + path.data() +
                              "' --gtest_filter=cpu.says_what_the_environment_asks_for";
  FILE* child = popen(command.c_str(), "r");
  std::string printed;
  for (std::array<char, 256> line{}; fgets(line.data(), line.size(), child) != nullptr;)
    if (std::string(line.data()).find("child: ") == 0) printed += line.data() + 7;
  pclose(child);
  return printed;
}

// The child's part; without the variable there is nothing to say.
TEST(cpu, says_what_the_environment_asks_for) {
  if (std::getenv("POISE_CPU_TEST_CHILD") == nullptr) return;
  const Error error = environment_error();
  if (error)
    std::printf("child: %s\n", error.message().c_str());
  else
    std::printf("child: %s %d\n", active_isa().c_str(), default_threads());
  EXPECT_EQ(set_isa("scalar").message(), environment_error().message().find("POISE_ISA") == 14
                                             ? environment_error().message()
                                             : "");
}

TEST(cpu, variables_choose_isa_and_threads) {
  EXPECT_EQ(in_child("POISE_ISA=scalar POISE_THREADS=3"), "scalar 3\n");
  EXPECT_EQ(in_child("POISE_ISA= POISE_THREADS=5"), available_isas().front() + " 5\n");
}

TEST(cpu, a_bad_variable_is_an_error_that_names_it) {
  EXPECT_EQ(in_child("POISE_ISA=mmx POISE_THREADS=3"),
            "[environment] POISE_ISA: \"mmx\" is not one of avx512, avx2, neon, scalar\n");
  EXPECT_EQ(in_child("POISE_ISA=scalar POISE_THREADS=many"),
            "[environment] POISE_THREADS: \"many\" is not a whole number in 1 ... 4096\n");
}

}  // namespace
}  // namespace poise
