// What poise clip refuses: one sentence, exit code 1 or 2, no file written or changed; and what it
// prints when there is nothing to do.
// ctest-labels: cli
//
// In: the built program, a good checkpoint, report and map of which each test spoils one. What it
// does when all is well: cli_clip_test.cpp; JSON that is malformed: clip_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/clip_model.h"
#include "support/command_files.h"
#include "support/file_builder.h"

namespace poise::test {
namespace {

using Json = nlohmann::ordered_json;

// Two layers of 2 heads on 2 key heads, head_dim 4, inputs 6; every head's largest score is 10 but
// that of L0 H1, which is 400.
class ClipRefusal : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string layer : {"0", "1"}) {
      weights_["q." + layer] = random_matrix(8, 6, 1, 1);
      weights_["k." + layer] = random_matrix(8, 6, 1, 2);
      weights_["qb." + layer] = TensorBuffer(DType::f32, {8});
      weights_["qb." + layer].fill([] { return 1.0; });
      weights_["gain." + layer] = TensorBuffer(DType::f32, {4});
      weights_["gain." + layer].fill([] { return 1.0; });
    }
    weights_["ids"] = TensorBuffer(DType::i64, {8, 6});
    map_ = Json::parse(R"({"schema": "poise.map", "version": 1, "layers": [
        {"label": "L{0..1}", "q_heads": 2, "head_dim": 4,
         "query": {"weight": "q.{}", "bias": "qb.{}", "layout": "out_in"},
         "key": {"weight": "k.{}", "layout": "out_in"}}]})");
    for (const char* layer : {"L0", "L1"})
      for (const int head : {0, 1})
        report_["heads"].push_back({{"layer", layer},
                                    {"head", head},
                                    {"nonfinite_rows", 0},
                                    {"readout", {{"max_score", 10.0}}}});
    report_["schema"] = "poise.report";
    report_["version"] = 1;
    score(1) = 400.0;
  }

  Json& score(std::size_t head) { return report_["heads"][head]["readout"]["max_score"]; }
  Json& layer() { return map_["layers"][0]; }

  CommandResult clip(const std::vector<std::string>& more = {}) {
    write_weights(folder_.path("old.safetensors"), weights_);
    folder_.write("map.json", map_.dump());
    folder_.write("report.json", report_.dump());
    std::vector<std::string> words{"clip",   folder_.path("old.safetensors"),
                                   "--from", folder_.path("report.json"),
                                   "--map",  folder_.path("map.json")};
    words.insert(words.end(), more.begin(), more.end());
    if (more.empty() || more.front() != "--out")
      words.insert(words.end(), {"--out", folder_.path("new.safetensors")});
    return run_poise(words);
  }

  void expect_refused(const std::string& part, const std::vector<std::string>& more = {},
                      int exit_code = 1) {
    const CommandResult result = clip(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err << result.out;
    EXPECT_NE(result.err.find(part), std::string::npos)
        << "expected '" << part << "' in '" << result.err << "'";
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder_.names(),
              (std::vector<std::string>{"map.json", "old.safetensors", "report.json"}));
  }

  TemporaryFolder folder_;
  Weights weights_;
  Json map_, report_;
};

TEST_F(ClipRefusal, nothing_is_wrong_with_what_the_tests_spoil) {
  const CommandResult result = clip();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "L0 H1  largest score 400, γ = 0.25\n"
            "  \"q.0\" rows 4 to 7 × 0.5\n"
            "  \"qb.0\" rows 4 to 7 × 0.5\n"
            "  \"k.0\" rows 4 to 7 × 0.5\n"
            "1 of 4 heads clipped at τ = 100\n");
}

TEST_F(ClipRefusal, a_head_that_was_not_measured_or_is_all_negative_is_left_alone) {
  score(0) = "nan";
  score(1) = -400.0;
  score(2) = "-inf";
  const CommandResult result = clip();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "0 of 4 heads clipped at τ = 100: the copy is byte for byte the same\n");
  EXPECT_EQ(folder_.read("new.safetensors"), folder_.read("old.safetensors"));
}

TEST_F(ClipRefusal, tau_is_an_option) {
  const CommandResult result = clip({"--tau", "5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("4 of 4 heads clipped at τ = 5\n"), std::string::npos) << result.out;
  for (const std::string tau : {"0", "-3", "nan", "inf", "many"})
    EXPECT_EQ(clip({"--tau", tau}).exit_code, 2) << tau;
}

TEST_F(ClipRefusal, an_output_that_is_an_input) {
  expect_refused("is an input of this run", {"--out", folder_.path("old.safetensors")});
  expect_refused("is an input of this run", {"--out", folder_.path("map.json")});
}

TEST_F(ClipRefusal, a_tau_that_is_no_positive_number) {
  expect_refused("--tau: 'many' is not a finite number above 0", {"--tau", "many"}, 2);
}

TEST_F(ClipRefusal, an_unknown_layout) {
  layer()["query"]["layout"] = "oi";
  expect_refused("layers[0].query.layout is \"oi\", expected \"out_in\" or \"in_out\"");
}

TEST_F(ClipRefusal, an_unknown_fusion) {
  layer().erase("query");
  layer().erase("key");
  layer()["qkv"] = {{"weight", "q.{}"}, {"layout", "out_in"}};
  layer()["fused"] = "mixed";
  expect_refused("layers[0].fused is \"mixed\", expected \"blocks\" or \"per_head\"");
}

TEST_F(ClipRefusal, a_tensor_that_the_checkpoint_lacks) {
  layer()["key"]["weight"] = "kk.{}";
  expect_refused("old.safetensors has no tensor \"kk.0\"");
}

TEST_F(ClipRefusal, a_shape_that_is_not_that_of_the_heads) {
  layer()["query"]["weight"] = "gain.{}";
  expect_refused("tensor \"gain.0\" has shape [4], expected [8, in] for 2 query heads");
}

TEST_F(ClipRefusal, a_weight_that_lies_the_other_way_round) {
  layer()["query"]["layout"] = "in_out";
  expect_refused("tensor \"q.0\" has shape [8, 6], expected [in, 8]");
}

TEST_F(ClipRefusal, a_bias_of_another_length) {
  layer()["query"]["bias"] = "gain.{}";
  expect_refused("tensor \"gain.0\" has shape [4], expected [8]");
}

TEST_F(ClipRefusal, a_fused_tensor_that_is_too_short) {
  layer().erase("query");
  layer().erase("key");
  layer()["qkv"] = {{"weight", "q.{}"}, {"layout", "out_in"}};
  layer()["fused"] = "blocks";
  expect_refused("tensor \"q.0\" has shape [8, 6], expected [24, in]");
}

TEST_F(ClipRefusal, a_dtype_that_cannot_be_scaled) {
  layer()["query"]["weight"] = "ids";
  expect_refused("tensor \"ids\" has dtype I64, expected F64, F32, F16 or BF16");
}

TEST_F(ClipRefusal, a_hot_layer_that_the_map_lacks) {
  layer()["label"] = "L{1..2}";
  weights_["q.2"] = weights_["q.0"];
  weights_["k.2"] = weights_["k.0"];
  weights_["qb.2"] = weights_["qb.0"];
  expect_refused("has no layer \"L0\", of which");
  score(1) = 99.0;
  EXPECT_EQ(clip().exit_code, 0) << "a layer that needs no clip need not be mapped";
}

TEST_F(ClipRefusal, another_number_of_heads_than_the_report) {
  report_["heads"].erase(3);
  expect_refused("layer \"L1\" has 2 query heads, in");
}

TEST_F(ClipRefusal, a_head_whose_scores_are_not_all_numbers) {
  report_["heads"][2]["nonfinite_rows"] = 7;
  expect_refused("head 0 of layer \"L1\" has 7 rows with NaN or infinity");
}

TEST_F(ClipRefusal, a_gain_that_the_heads_share) {
  layer()["query_norm"] = {{"weight", "gain.{}"}};
  expect_refused(
      "the gain \"gain.0\" is shared by its heads, so head 1 (γ = 0.25) cannot be "
      "clipped alone");
  score(1) = 99.0;
  EXPECT_EQ(clip().exit_code, 0) << "where no head is hot the gain is of no concern";
}

TEST_F(ClipRefusal, layers_that_disagree_on_the_layout_of_a_tensor) {
  weights_["square"] = random_matrix(8, 8, 1, 9);
  map_["layers"] = Json::array();
  for (const int i : {0, 1})
    map_["layers"].push_back(
        {{"label", "L" + std::to_string(i)},
         {"q_heads", 2},
         {"head_dim", 4},
         {"query", {{"weight", "square"}, {"layout", i == 0 ? "out_in" : "in_out"}}},
         {"key", {{"weight", "k." + std::to_string(i)}, {"layout", "out_in"}}}});
  score(3) = 200.0;
  expect_refused("layers disagree on the layout of tensor \"square\"");
}

TEST_F(ClipRefusal, files_that_are_something_else) {
  report_["schema"] = "poise.stats";
  expect_refused("schema is not \"poise.report\"");
  report_["schema"] = "poise.report";
  map_["schema"] = "poise.report";
  expect_refused("schema is not \"poise.map\"");
}

}  // namespace
}  // namespace poise::test
