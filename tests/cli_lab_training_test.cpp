// `poise lab training` as a user runs it: what its options choose, its tables in JSON, refusals.
// ctest-labels: cli
//
// In: the built program, narrow heads, few steps. Out of scope: what is learned
// (lab_training_test.cpp), what every experiment does (cli_lab_test.cpp).
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_files.h"

namespace poise::test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kQuick{"lab", "training", "--steps", "40", "--seeds", "2"};

std::vector<std::string> quick(const std::vector<std::string>& more) {
  std::vector<std::string> words = kQuick;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(LabTraining, options_choose_tasks_scales_and_widths_in_one_order) {
  const TemporaryFolder folder;
  const auto result =
      run_poise(quick({"--task", "averaging", "--scale", "qk-norm,1/D", "--head-dim", "8,4",
                       "--json", folder.path("t.json"), "--svg", folder.path("t.svg")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(folder.read("t.json"));
  EXPECT_EQ(json.at("experiment"), "training");
  const Json& parameters = json.at("parameters");
  EXPECT_EQ(parameters.at("tasks"), "averaging");
  EXPECT_EQ(parameters.at("scales"), "1/D, qk-norm");
  EXPECT_EQ(parameters.at("head_dims"), Json({4, 8}));
  EXPECT_EQ(parameters.at("seeds"), 2);
  EXPECT_EQ(parameters.at("steps"), 40);
  std::map<std::string, std::size_t> rows;
  for (const Json& table : json.at("tables")) rows[table.at("name")] = table.at("rows").size();
  EXPECT_EQ(rows, (std::map<std::string, std::size_t>{
                      {"start", 4}, {"end", 4}, {"runs", 8}, {"curves", 4 * 41}}));
  const Json& point = json.at("tables").at(3).at("rows").at(40);
  EXPECT_EQ(point.at("step"), 40);
  for (const char* member :
       {"loss", "accuracy", "entropy_ratio", "transmission", "query_key_gradient", "gradient"}) {
    EXPECT_TRUE(point.at(member).is_number()) << member;
    EXPECT_TRUE(point.at(std::string(member) + "_se").is_number()) << member;
  }
  EXPECT_NE(folder.read("t.svg").find("Averaging: every key counts"), std::string::npos);
  EXPECT_EQ(folder.read("t.svg").find("Recall"), std::string::npos);
  EXPECT_EQ(result.out.find("Everything against the step"), std::string::npos)
      << "points are for JSON";
  EXPECT_NE(result.out.find("the width of q and k"), std::string::npos);
  EXPECT_EQ(result.out.find("updates done"), std::string::npos) << "a column of the points";
}

TEST(LabTraining, what_is_typed_beside_full_holds) {
  const TemporaryFolder folder;
  const auto result = run_poise(
      quick({"--full", "--task", "recall", "--head-dim", "4", "--json", folder.path("t.json")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json parameters = Json::parse(folder.read("t.json")).at("parameters");
  EXPECT_EQ(parameters.at("scales"), "1, 1/sqrt(D), 1/D, learned, qk-norm");
  EXPECT_EQ(parameters.at("head_dims"), Json({4}));
  EXPECT_EQ(parameters.at("seeds"), 2);
}

TEST(LabTraining, words_out_of_range_are_refused_before_anything_runs) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--task", "sorting"}, "sorting"},
      {{"--scale", "2"}, "--scale"},
      {{"--head-dim", "0"}, "--head-dim"},
      {{"--head-dim", "1025"}, "--head-dim"},
      {{"--learning-rate", "0"}, "'0' is not a number from 1e-09 to 1"},
      {{"--learning-rate", "nan"}, "'nan' is not a number from 1e-09 to 1"},
      {{"--learning-rate", "2"}, "--learning-rate"}};
  for (const auto& [words, part] : cases) {
    const TemporaryFolder folder;
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--json", folder.path("t.json")});
    const auto result = run_poise(quick(all));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder.names(), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace poise::test
