// Reading and judging case files: nothing that a file expects goes unlooked at.
//
// In: small cases written to a temporary file. What the real ones say is the program poise_cases.
// ctest-labels: fast unit
#include "support/case_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace poise::test {
namespace {

// One query, one key of value 3: weight 1, so dv is dout, and dq and dk are 0.
Json one_key_case() {
  return Json::parse(R"({
    "id": "1", "title": "one key", "cls": "value", "dtype": "f32", "options": {"scale": 1},
    "q": {"shape": [1, 1, 1, 1], "data": [2]}, "k": {"shape": [1, 1, 1, 1], "data": [1]},
    "v": {"shape": [1, 1, 1, 1], "data": [3]}, "do": {"shape": [1, 1, 1, 1], "data": [5]},
    "expect": {"out": {"shape": [1, 1, 1, 1], "data": [3]},
               "dv": {"shape": [1, 1, 1, 1], "data": [5]},
               "dscale": {"shape": [1], "data": [0]},
               "tol": {"out": [1e-12, 0], "dv": [1e-12, 0], "dscale": [1e-12, 0]}}})");
}

CaseFile written(const Json& json) {
  const std::string path = testing::TempDir() + "poise_case_file_test.json";
  std::ofstream(path) << json;
  CaseFile file = read_case(path);
  std::filesystem::remove(path);
  return file;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}

TEST(case_file, a_right_answer_passes_with_its_gradients) {
  const CaseFile file = written(one_key_case());
  EXPECT_TRUE(expects_gradients(file));
  const Judgement verdict = judge_case(file, reference_case_result(file));
  EXPECT_LE(verdict.worst, 1) << verdict.where;
}

TEST(case_file, a_wrong_gradient_fails_and_is_named) {
  Json json = one_key_case();
  json["expect"]["dv"]["data"][0] = 5.5;
  const CaseFile file = written(json);
  const Judgement verdict = judge_case(file, reference_case_result(file));
  EXPECT_GT(verdict.worst, 1);
  EXPECT_EQ(verdict.where, "dv[0] is 5, expected 5.5");
}

TEST(case_file, an_expectation_of_an_unknown_name_is_refused) {
  Json json = one_key_case();
  json["expect"]["dmask"] = json["expect"]["dv"];
  EXPECT_EQ(refusal([&] { written(json); }), "expect.dmask is not in the schema");
  json = one_key_case();
  json["cls"] = "isolation";  // which compares rows, never a gradient
  json["expect"] = {{"dv", json["expect"]["dv"]}};
  EXPECT_EQ(refusal([&] { written(json); }), "expect.dv is not in the schema");
}

TEST(case_file, a_gradient_that_a_backward_pass_leaves_out_is_refused) {
  const CaseFile file = written(one_key_case());
  CaseResult result = reference_case_result(file);
  result.gradients->erase("dv");
  EXPECT_EQ(refusal([&] { judge_case(file, result); }), "dv was not computed");
  result.gradients.reset();  // an engine without a backward pass is judged by its outputs
  EXPECT_LE(judge_case(file, result).worst, 1);
}

TEST(case_file, gradients_without_dout_are_refused) {
  Json json = one_key_case();
  json.erase("do");
  EXPECT_EQ(refusal([&] { written(json); }), "gradients are expected, but `do` is not given");
}

TEST(case_file, dlse_and_the_shape_of_an_option_reach_the_gradients) {
  Json json = one_key_case();
  json["dlse"] = Json::parse(R"({"shape": [1, 1, 1], "data": [7]})");
  json["options"] = Json::parse(R"({"scale": [0.5], "alibi_slopes": [0.25], "offset": 3})");
  // dlogits = dlse; dots = 2 and the distance is 3.
  json["expect"] = Json::parse(R"({
    "ds_dense": {"shape": [1, 1, 1, 1], "data": [7]}, "dq": {"shape": [1, 1, 1, 1], "data": [3.5]},
    "dscale": {"shape": [1], "data": [14]}, "dslopes": {"shape": [1], "data": [-21]},
    "tol": {"ds_dense": [1e-12, 0], "dq": [1e-12, 0], "dscale": [1e-12, 0],
            "dslopes": [1e-12, 0]}})");
  const CaseFile file = written(json);
  const Judgement verdict = judge_case(file, reference_case_result(file));
  EXPECT_LE(verdict.worst, 1) << verdict.where;
}

}  // namespace
}  // namespace poise::test
