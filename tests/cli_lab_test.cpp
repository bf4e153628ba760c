// `poise lab` as a user runs it: JSON that holds every number with its error, the same numbers for
// any thread count, refusals, files that appear together or not at all.
// ctest-labels: cli
//
// In: the built program and small sizes. Out of scope: what the numbers are (lab_test.cpp).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_files.h"

namespace poise::test {
namespace {

using Json = nlohmann::json;

struct Experiment {
  const char* name;
  std::vector<std::string> quick;  // sizes that take a fraction of a second
};

void PrintTo(const Experiment& experiment, std::ostream* out) { *out << experiment.name; }

std::vector<std::string> words_of(const Experiment& experiment,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"lab", experiment.name};
  words.insert(words.end(), experiment.quick.begin(), experiment.quick.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json json_of(const Experiment& experiment, const std::vector<std::string>& more = {}) {
  const TemporaryFolder folder;
  std::vector<std::string> words = words_of(experiment, more);
  words.insert(words.end(), {"--json", folder.path("l.json")});
  const auto result = run_poise(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(folder.read("l.json"));
}

class Lab : public testing::TestWithParam<Experiment> {};

TEST_P(Lab, json_says_what_was_measured_where_and_how) {
  const Json json = json_of(GetParam());
  EXPECT_EQ(json.at("format"), "poise.lab");
  EXPECT_EQ(json.at("format_version"), 1);
  EXPECT_EQ(json.at("experiment"), GetParam().name);
  EXPECT_EQ(json.at("seed"), 1);
  for (const char* member : {"statement", "poise_version", "compiler", "date", "command"})
    EXPECT_FALSE(json.at(member).get<std::string>().empty()) << member;
  EXPECT_FALSE(json.at("machine").at("isa").get<std::string>().empty());
  EXPECT_FALSE(json.at("parameters").empty());
  ASSERT_FALSE(json.at("tables").empty());
}

TEST_P(Lab, every_row_has_every_column_and_some_columns_have_errors) {
  const Json json = json_of(GetParam());
  ASSERT_FALSE(json.at("tables").empty());
  for (const Json& table : json.at("tables")) {
    ASSERT_FALSE(table.at("rows").empty()) << table.at("name");
    bool measured = false;
    for (const Json& row : table.at("rows")) {
      for (const Json& column : table.at("columns")) {
        const std::string name = column.at("name");
        EXPECT_FALSE(column.at("meaning").get<std::string>().empty()) << name;
        ASSERT_TRUE(row.contains(name)) << name << " in " << row;
        if (!row.contains(name + "_se")) continue;
        measured = true;
        EXPECT_TRUE(row.at(name).is_number()) << name << " in " << row;
        EXPECT_GE(row.at(name + "_se").get<double>(), 0) << name << " in " << row;
      }
    }
    // Worked figures are exact, and a single run has no scatter.
    EXPECT_TRUE(measured || table.at("name") == "worked" || table.at("name") == "runs")
        << table.at("name");
  }
}

TEST_P(Lab, the_same_seed_gives_the_same_numbers_for_any_thread_count) {
  const Json one = json_of(GetParam(), {"--threads", "1"});
  const Json three = json_of(GetParam(), {"--threads", "3"});
  EXPECT_EQ(one.at("tables"), three.at("tables"));
  EXPECT_EQ(one.at("statement"), three.at("statement"));
  const Json other = json_of(GetParam(), {"--threads", "1", "--seed", "2"});
  EXPECT_NE(one.at("tables"), other.at("tables"));
  EXPECT_EQ(other.at("seed"), 2);
}

TEST_P(Lab, prints_ascii_lines_and_writes_both_files) {
  const TemporaryFolder folder;
  const auto result = run_poise(
      words_of(GetParam(), {"--json", folder.path("l.json"), "--svg", folder.path("l.svg")}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"l.json", "l.svg"}));
  const Json json = Json::parse(folder.read("l.json"));
  EXPECT_TRUE(result.out.starts_with(json.at("statement").get<std::string>() + ".\n"))
      << result.out;
  EXPECT_NE(result.out.find(" +- "), std::string::npos) << result.out;
  for (const char c : result.out) ASSERT_TRUE(c == '\n' || (c >= ' ' && c < 127)) << result.out;
  EXPECT_TRUE(folder.read("l.svg").starts_with("<svg xmlns=")) << folder.read("l.svg");
  EXPECT_EQ(folder.read("l.svg").find("http", 40), std::string::npos) << "refers outside itself";
}

TEST_P(Lab, refuses_bad_options_before_anything_is_measured) {
  const TemporaryFolder folder;
  folder.write("not_a_folder", "");
  const auto refused = [&](const std::vector<std::string>& more, int exit_code,
                           const std::string& part) {
    std::vector<std::string> words = words_of(GetParam(), {"--svg", folder.path("l.svg")});
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_poise(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder.names(), std::vector<std::string>{"not_a_folder"});
  };
  refused({"--threads", "0"}, 2, "--threads");
  refused({"--seed", "-1"}, 2, "--seed");
  refused({"--seed", "x"}, 2, "--seed");
  refused({"--seed", "1.5"}, 2, "--seed");
  refused({"--seed", "18446744073709551616"}, 2,
          "--seed: '18446744073709551616' is not a whole number from 0 to 18446744073709551615");
  refused({"--json", folder.path("not_a_folder/l.json")}, 1, "not_a_folder");
  refused({"--json", folder.path("l.svg")}, 2, "l.svg");
}

INSTANTIATE_TEST_SUITE_P(
    Experiments, Lab,
    testing::Values(
        Experiment{"example", {"--sets", "20"}},
        Experiment{"variance", {"--head-dims", "4,64", "--sets", "3", "--model-dim", "16"}},
        Experiment{"saturation", {"--head-dims", "4,64", "--keys", "8,32", "--rows", "200"}},
        Experiment{"gradient", {"--head-dims", "4,64", "--keys", "8,32", "--rows", "200"}},
        Experiment{"training", {"--steps", "40", "--seeds", "2", "--head-dim", "4"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(LabVerb, without_an_experiment_names_them) {
  const auto result = run_poise({"lab"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("an experiment is missing: "), std::string::npos) << result.err;
}

TEST(LabVerb, refuses_sizes_out_of_range_and_names_the_option) {
  const auto refused = [&](const std::vector<std::string>& words, const std::string& option) {
    const auto result = run_poise(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(option), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  };
  refused({"lab", "example", "--head-dim", "0"}, "--head-dim");
  refused({"lab", "example", "--sets", "1"}, "--sets");
  refused({"lab", "variance", "--head-dims", "64,0"}, "--head-dims");
  refused({"lab", "variance", "--correlation", "1.5"}, "--correlation");
  refused({"lab", "variance", "--correlation", "nan"},
          "--correlation: 'nan' is not a number from 0 to 1");
  refused({"lab", "example", "--sets", "010"}, "--sets: '010' is not a whole number from 2 to");
  refused({"lab", "variance", "--model-dim", "1"}, "--model-dim");
  refused({"lab", "saturation", "--keys", "1"}, "--keys");
  refused({"lab", "saturation", "--rows", "99"}, "--rows");
  refused({"lab", "gradient", "--head-dims", "x"}, "--head-dims");
  refused({"lab", "gradient", "--keys", "8,,64"}, "--keys: '8,,64' is not whole numbers from 2 to");
  refused({"lab", "gradient", "--keys", "8,"}, "--keys");
  refused({"lab", "variance", "--head-dims", ""}, "--head-dims");
  refused({"lab", "saturation", "--keys", "8,65537"}, "--keys");
  refused({"lab", "heat"}, "heat");
}

TEST(LabSizes, are_taken_in_any_order_and_once) {
  const auto sizes = [](const char* list) {
    return json_of({"saturation", {"--head-dims", list, "--keys", "8", "--rows", "100"}})
        .at("tables");
  };
  EXPECT_EQ(sizes("64,4,4"), sizes("4,64"));
}

TEST(LabVerb, shows_its_progress_on_a_terminal_only) {
  CommandSetup setup;
  setup.output = CommandSetup::Output::terminal;
  setup.environment.push_back({"TERM", "xterm"});
  const auto result = run_poise({"lab", "example", "--sets", "4000", "--threads", "1"}, setup);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("lab example"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace poise::test
