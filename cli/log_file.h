// Run logs on the disk: read whole, appended to by several processes at once.
//
// In: paths, lines of poise::log_line(). Out: a RunLog, or a longer file. Must not happen here: the
// form of a line (poise/run_log.h), a statistic.
#pragma once

#include <poise/run_log.h>

#include <string>
#include <vector>

namespace poise::cli {

// Whether a file is meant as a run log: it is named *.jsonl, or begins as an object of JSON does.
bool is_run_log(const std::string& path);

// All records of these logs. What a crash cut off is told on standard error. Throws Failure when a
// file cannot be read, is given twice, or holds what is no record; or when there is no record.
RunLog read_run_logs(const std::vector<std::string>& paths);

// Throws Failure when `path` exists and is neither empty nor a run log: before long work, and so
// that no other file is appended to by mistake.
void check_run_log(const std::string& option, const std::string& path);

// Appends whole lines under a lock that other poise processes respect, in one write; a line that a
// crash cut off is ended first, so that the new ones stand alone. Creates the file. Throws Failure.
void append_to_run_log(const std::string& option, const std::string& path,
                       const std::string& lines);

}  // namespace poise::cli
