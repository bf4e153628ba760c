// What the environment and the operating system allow, written as functions of text so that tests
// need no machine of each kind: POISE_THREADS, the affinity mask, the cgroup's CPU quota.
// In: the contents of files and variables. Out: a number of threads, or an Error naming the
// variable.
// What must not happen here: reading a file other than /proc/self/cgroup and the quota files it
// leads to, reading an environment variable other than POISE_THREADS (dispatch.cpp has POISE_ISA),
// reading either more than once.
#pragma once

#include <poise/cpu.h>
#include <poise/error.h>

#include <functional>
#include <optional>
#include <string>

namespace poise {

// The error of a malformed POISE_THREADS or POISE_ISA, naming it; empty when both are fine.
// attention() and its siblings return it before anything else.
Error environment_error();

// POISE_THREADS as text: sets *threads (left alone when the text is null or empty, which means not
// given) or returns bad_value.
Error parse_threads(const char* variable, int* threads);

// CPUs a cgroup v2 "cpu.max" ("max 100000", "150000 100000") or a v1 pair of cpu.cfs_quota_us and
// cpu.cfs_period_us ("-1", "100000") allows, as a fraction; absent = no limit or malformed.
std::optional<double> parse_cpu_max(const std::string& text);
std::optional<double> parse_cfs_quota(const std::string& quota, const std::string& period);

// Reads a whole small file; absent when it cannot.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

// The smallest quota of the cgroups this process is in, from its own up to the root of the mount
// (a container sees only the upper part of its path), v2 and v1. `self_cgroup` is the text of
// /proc/self/cgroup. Source: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cgroups.rst,
// scheduler/sched-bwc.rst.
std::optional<double> cgroup_quota(const std::string& self_cgroup, const ReadFile& read_file);

// min(affinity, quota rounded up), at least 1, at most kMaxThreads.
int usable_threads(int affinity, std::optional<double> quota);

}  // namespace poise
