// Run logs as a user types them: appending, several processes at once, joining, reporting a run,
// and what is refused. ctest-labels: cli
//
// In: the built program, small recordings. Out of scope: the form of a line and merging
// (run_log_test.cpp), what a report of a run says (report_series_test.cpp).
#include <gtest/gtest.h>

#include <poise/run_log.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "support/command_files.h"

namespace poise::test {
namespace {

class Log : public testing::Test {
 protected:
  // Records a model of 2 layers whose first heads are `stretch` times as wide, and logs it.
  CommandResult append(int step, double stretch, const std::string& log = "run.jsonl") {
    const std::string recording = folder_.path("r.safetensors");
    write_recording(recording, 2, stretch);
    return run_poise(
        {"report", recording, "--log", folder_.path(log), "--step", std::to_string(step)});
  }

  void expect_refused(const std::vector<std::string>& words, int exit_code,
                      const std::string& part) {
    const std::string before = folder_.read("run.jsonl");
    const auto names = folder_.names();
    const CommandResult result = run_poise(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos)
        << "expected '" << part << "' in '" << result.err << "'";
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder_.read("run.jsonl"), before) << "the log must stay as it was";
    EXPECT_EQ(folder_.names(), names) << "nothing may be written";
  }

  std::string path(const std::string& name) const { return folder_.path(name); }

  TemporaryFolder folder_;
};

TEST_F(Log, grows_by_a_line_a_layer_and_is_reported_over_time) {
  for (int step = 0; step < 8; ++step) {
    const auto result = append(100 * step, 1 + 2 * step);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out.find("over time"), std::string::npos) << "one step is no run";
  }
  const std::string log = folder_.read("run.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 16);
  const auto result = run_poise(
      {"report", path("run.jsonl"), "--html", path("h.html"), "--json", path("h.json"), "--all"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* part : {"over time", "8 steps, 0 to 700", "run.jsonl, step 700", "L1"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in\n" << result.out;
  EXPECT_NE(folder_.read("h.html").find("id=\"time\""), std::string::npos);
  EXPECT_NE(folder_.read("h.json").find("\"series\""), std::string::npos);
  EXPECT_EQ(run_poise({"report", path("run.jsonl"), "--fail-on", "watch"}).exit_code, 1);
}

TEST_F(Log, takes_lines_of_many_processes_at_once_and_loses_none) {
  write_recording(path("r.safetensors"), 2, 1);
  constexpr int kWriters = 8;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const auto result = run_poise({"report", path("r.safetensors"), "--log", path("run.jsonl"),
                                     "--step", std::to_string(i % 4)});
      EXPECT_EQ(result.exit_code, 0) << result.err;
    });
  }
  for (std::thread& writer : writers) writer.join();
  RunLog log;
  const Error error = log.add(folder_.read("run.jsonl"), "run.jsonl");
  ASSERT_FALSE(error) << error.message();
  EXPECT_TRUE(log.cut_off().empty());
  EXPECT_EQ(log.lines(), std::size_t{2 * kWriters});
  EXPECT_EQ(log.steps(), 4u);
}

TEST_F(Log, goes_on_after_a_line_that_a_crash_cut_off) {
  ASSERT_EQ(append(1, 1).exit_code, 0);
  const std::string whole = folder_.read("run.jsonl");
  folder_.write("run.jsonl", whole.substr(0, whole.size() - 40));
  ASSERT_EQ(append(2, 1).exit_code, 0);
  const auto result = run_poise({"report", path("run.jsonl")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("run.jsonl: line 2 is cut off and was left out"), std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("2 steps, 1 to 2"), std::string::npos) << result.out;
}

TEST_F(Log, of_several_processes_joins_to_the_same_bytes_in_any_order) {
  for (int step = 0; step < 2; ++step) {
    append(step, 1, "a.jsonl");
    append(step, 3, "b.jsonl");
    append(step, 5, "c.jsonl");
  }
  const auto join = [&](std::vector<std::string> names, const std::string& out) {
    std::vector<std::string> words{"log"};
    for (const std::string& name : names) words.push_back(path(name));
    words.insert(words.end(), {"--out", path(out)});
    const auto result = run_poise(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string told = join({"a.jsonl", "b.jsonl", "c.jsonl"}, "abc.jsonl");
  EXPECT_NE(told.find("abc.jsonl: 12 records of 2 layers at 2 steps, 0 to 1"), std::string::npos)
      << told;
  join({"c.jsonl", "a.jsonl"}, "ca.jsonl");
  join({"ca.jsonl", "b.jsonl"}, "cab.jsonl");
  EXPECT_EQ(folder_.read("cab.jsonl"), folder_.read("abc.jsonl"));

  run_poise(
      {"report", path("b.jsonl"), path("c.jsonl"), path("a.jsonl"), "--json", path("1.json")});
  run_poise({"report", path("abc.jsonl"), "--json", path("2.json")});
  const auto heads = [&](const std::string& name) {
    const std::string json = folder_.read(name);
    EXPECT_NE(json.find("\"verdict\": {"), std::string::npos);
    return json.substr(json.find("\"verdict\": {"));  // what was measured names files and date
  };
  EXPECT_EQ(heads("1.json"), heads("2.json"));
}

TEST_F(Log, refuses_what_cannot_be_logged_or_read_and_changes_nothing) {
  ASSERT_EQ(append(1, 1).exit_code, 0);
  const std::string recording = path("r.safetensors"), log = path("run.jsonl");
  folder_.write("notes.txt", "not a log\n");
  folder_.write("broken.jsonl", "{\"schema\":\"poise.log\",\"version\":9}\n");
  folder_.write("empty.jsonl", "");
  expect_refused({"report", recording, "--log", log}, 2, "--step is missing");
  expect_refused({"report", recording, "--step", "3"}, 2, "--log");
  expect_refused({"report", recording, "--log", log, "--step", "-1"}, 2, "--step");
  expect_refused({"report", recording, "--log", path("notes.txt"), "--step", "1"}, 1,
                 "is not a run log and is not appended to");
  // A report is JSON as well, and would be spoilt.
  ASSERT_EQ(run_poise({"report", recording, "--json", path("report.json")}).exit_code, 0);
  expect_refused({"report", recording, "--log", path("report.json"), "--step", "1"}, 1,
                 "is not a run log and is not appended to");
  expect_refused({"report", recording, "--log", path("broken.jsonl"), "--step", "1"}, 1,
                 "is not a run log and is not appended to");
  expect_refused({"report", recording, "--log", recording, "--step", "1"}, 1, "input of this run");
  expect_refused({"report", recording, "--log", log, "--step", "1", "--json", log}, 2, "--log");
  expect_refused({"report", log, "--scale", "2"}, 2, "is a run log, which is measured already");
  expect_refused({"report", log, "--what-if", "2"}, 2, "is a run log, which is measured already");
  expect_refused({"report", log, "--log", path("other.jsonl"), "--step", "1"}, 2, "run log");
  expect_refused({"report", log, recording}, 2, "not reported together");
  expect_refused({"report", recording, recording}, 2, "second recording");
  expect_refused({"report", log, log}, 1, "given twice");
  expect_refused({"report", path("broken.jsonl")}, 1, "line 1: version is 9, expected 1");
  expect_refused({"report", path("empty.jsonl")}, 1, "holds no record");
  expect_refused({"report", path("none.jsonl")}, 1, "cannot read");
  expect_refused({"log", log}, 2, "--out");
  expect_refused({"log", "--out", path("o.jsonl")}, 2, "LOG");
  expect_refused({"log", log, "--out", log}, 1, "input of this run");
  expect_refused({"log", path("notes.txt"), "--out", path("o.jsonl")}, 1,
                 "line 1: not well-formed JSON");
}

}  // namespace
}  // namespace poise::test
