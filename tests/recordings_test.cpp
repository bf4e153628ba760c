// ctest-labels: fast golden
// Reports of recordings made on purpose: what a person in the field would sign, the same verdicts
// from the kernels of this machine as from the stored statistics, and golden files of all faces.
#include <poise/report.h>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/made_recordings.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::compare_with_golden;
using test::made_recordings;
using test::make_recording;
using test::stored_recording;

// The page without its style sheet and script, which are the same on every page and stand in
// report.html already.
std::string without_constants(std::string page) {
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"<style>", "</style>"}, {"<script>", "</script>"}}) {
    const std::size_t from = page.find(open) + open.size();
    page.erase(from, page.find(close, from) - from);
  }
  const std::size_t policy = page.find("style-src");
  return page.erase(policy, page.find("; base-uri") - policy);
}

using Kinds = std::multiset<std::pair<std::string, std::string>>;

// Every flag of every head, "L1 H1" with "overflow fp16 (critical)".
Kinds flags_of(const Report& report) {
  Kinds all;
  for (const ReportHead& head : report.heads) {
    for (const Flag& flag : head.health.flags)
      all.insert({head.name, std::string(name(flag.kind)) + " (" + name(flag.severity) + ")"});
  }
  return all;
}

class Recordings : public testing::TestWithParam<std::string> {};

TEST_P(Recordings, faces_equal_their_golden_files) {
  const Report report = build_report(stored_recording(GetParam()));
  EXPECT_EQ(compare_with_golden(GetParam() + ".txt", to_text(report)), "");
  EXPECT_EQ(compare_with_golden(GetParam() + ".json", to_json(report) + "\n"), "");
  EXPECT_EQ(compare_with_golden(GetParam() + ".html", without_constants(to_html(report))), "");
}

TEST_P(Recordings, this_machine_raises_the_flags_that_are_stored) {
  EXPECT_EQ(flags_of(build_report(make_recording(GetParam()))),
            flags_of(build_report(stored_recording(GetParam()))));
}

INSTANTIATE_TEST_SUITE_P(made, Recordings, testing::ValuesIn(made_recordings()),
                         [](const auto& recording) { return recording.param; });

Report report_of(const std::string& recording) { return build_report(stored_recording(recording)); }

std::string headline(const Report& report) { return report.headline_alarm + report.headline_rest; }

bool says(const Report& report, const std::string& words) {
  for (const Finding& finding : report.findings) {
    if ((finding.claim + " " + finding.numbers + " " + finding.remedy).find(words) !=
        std::string::npos)
      return true;
  }
  return false;
}

TEST(recordings, a_healthy_model_is_called_healthy) {
  const Report report = report_of("healthy");
  EXPECT_EQ(headline(report), "All 8 heads are healthy: gradient passes, and nothing overflows.");
  EXPECT_EQ(flags_of(report).size(), 0u);
  EXPECT_TRUE(says(report, "Scores are wider than the textbook, and not too wide."));
  EXPECT_FALSE(says(report, "QK-norm"));
}

TEST(recordings, scores_that_nobody_divided_are_saturated_and_the_missing_division_is_named) {
  const Report report = report_of("unscaled");
  EXPECT_EQ(headline(report), "All 3 heads are saturated. Nothing overflows.");
  EXPECT_TRUE(says(report, "The scale is 1: the division by √512 was forgotten."));
  EXPECT_TRUE(says(report, "scale 1/√512 = 0.044"));
}

TEST(recordings, a_large_key_mean_overflows_float16_in_one_head_and_nearly_in_another) {
  const Report report = report_of("overflowing");
  const Kinds flags = flags_of(report);
  EXPECT_TRUE(flags.contains({"L1 H1", "overflow fp16 (critical)"}));
  EXPECT_TRUE(flags.contains({"L1 H3", "overflow fp16 (warn)"}));
  for (const auto& [head, flag] : flags) EXPECT_TRUE(head == "L1 H1" || head == "L1 H3") << head;
  EXPECT_EQ(headline(report).find("1 of 8 heads overflows float16, L1 H1."), 0u)
      << headline(report);
  EXPECT_TRUE(says(report, "subtract the mean key"));
}

TEST(recordings, scores_divided_twice_are_diffuse_and_the_cure_is_the_root) {
  const Report report = report_of("diffuse");
  EXPECT_EQ(headline(report).find("All 4 heads are nearly uniform."), 0u) << headline(report);
  EXPECT_TRUE(says(report, "scale × 8") || says(report, "scale ×\u00A08") || says(report, "1/√64"));
}

TEST(recordings, sinks_are_told_and_are_no_alarm) {
  const Report report = report_of("sinks");
  EXPECT_EQ(report.headline_alarm, "");
  EXPECT_LE(report.worst, Severity::information);
  EXPECT_TRUE(says(report, "Key 0 is a sink in 6 heads."));
  EXPECT_TRUE(says(report, "keep key 0 when evicting from a KV cache"));
}

TEST(recordings, in_a_mixed_model_the_sick_heads_are_found_and_no_others) {
  const Report report = report_of("mixed");
  std::set<std::string> sick;
  for (const ReportHead& head : report.heads) {
    if (head.health.severity >= Severity::watch) sick.insert(head.name);
  }
  EXPECT_EQ(sick, (std::set<std::string>{"L2 H1", "L14 H1", "L20 H1", "L21 H1"}));
  EXPECT_EQ(report.findings.size(), 5u);
  EXPECT_EQ(headline(report).find("2 of 48 heads run hot, in 2 of 24 layers."), 0u)
      << headline(report);
  EXPECT_TRUE(says(report, "L2 H1 is one-hot."));
}

}  // namespace
}  // namespace poise
