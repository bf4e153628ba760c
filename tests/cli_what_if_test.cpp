// What the report runs again: other temperatures, and columns that hold many rows' largest weight.
// ctest-labels: cli
//
// In: the built program, small recordings. Numbers are compared with each other and with what was
// planted; that they are attention's is whatif_test's and signals_test's to show.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_files.h"

namespace poise::test {
namespace {

using Json = nlohmann::json;

Json heads_of(const TemporaryFolder& folder, const std::vector<std::string>& options) {
  std::vector<std::string> words{"report", folder.path("r.safetensors"), "--json",
                                 folder.path("r.json")};
  words.insert(words.end(), options.begin(), options.end());
  const auto result = run_poise(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(folder.read("r.json")).at("heads");
}

const Json* labelled(const Json& head, const std::string& label) {
  for (const Json& what_if : head.at("what_ifs"))
    if (what_if.at("label") == label) return &what_if;
  return nullptr;
}

TEST(WhatIfs, stand_beside_every_head_with_the_advised_scale_where_one_is_advised) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 1, 40);
  const Json heads = heads_of(folder, {});
  for (const char* label : {"as it is", "scale × 0.25", "scale × 0.5", "scale × 2", "scale × 4",
                            "QK-norm", "softcap 50"})
    for (const Json& head : heads) EXPECT_NE(labelled(head, label), nullptr) << label;
  const Json *advised = labelled(heads[0], "advised scale"), *now = labelled(heads[0], "as it is");
  ASSERT_NE(advised, nullptr);
  EXPECT_EQ(labelled(heads[1], "advised scale"), nullptr) << "a healthy head keeps its scale";
  const double target = heads[0].at("readout").at("target_sigma");
  EXPECT_NEAR(advised->at("sigma").get<double>(), target, 0.03 * target);
  EXPECT_GT(advised->at("gain").get<double>(), now->at("gain").get<double>());
  EXPECT_EQ(now->at("sigma"), heads[0].at("readout").at("sigma"));
  EXPECT_LE(labelled(heads[0], "QK-norm")->at("sigma").get<double>(), 4);
}

TEST(WhatIfs, are_those_of_the_list_or_none) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 1, 1);
  const Json heads = heads_of(folder, {"--what-if", "3,log-n=12"});
  ASSERT_EQ(heads[0].at("what_ifs").size(), 3u);
  const Json &now = heads[0]["what_ifs"][0], &wide = heads[0]["what_ifs"][1],
             &longer = heads[0]["what_ifs"][2];
  EXPECT_EQ(wide.at("label"), "scale × 3");
  EXPECT_NEAR(wide.at("scale").get<double>(), 3 * now.at("scale").get<double>(), 1e-6);
  EXPECT_LT(wide.at("entropy").get<double>(), now.at("entropy").get<double>());
  EXPECT_LT(wide.at("first_order_entropy_change").get<double>(), 0);
  EXPECT_NEAR(longer.at("scale").get<double>(),
              now.at("scale").get<double>() * std::log(24.0) / std::log(12.0), 1e-6);
  EXPECT_FALSE(heads_of(folder, {"--what-if", "none"})[0].contains("what_ifs"));
  const Json scales = heads_of(folder, {"--what-if", "undivided,1/D"})[0].at("what_ifs");
  ASSERT_EQ(scales.size(), 3u);
  EXPECT_EQ(scales[1].at("label"), "scale 1");
  EXPECT_NEAR(scales[1].at("scale").get<double>(), 1, 1e-12);
  EXPECT_EQ(scales[2].at("label"), "scale 1/D");
  const double usual = now.at("scale").get<double>();  // 1/sqrt(D)
  EXPECT_NEAR(scales[2].at("scale").get<double>(), usual * usual, 1e-12);
}

TEST(WhatIfs, of_the_worst_head_are_a_table_on_the_page) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 1, 40);
  const auto page = run_poise({"report", folder.path("r.safetensors")});
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_NE(page.out.find("what if L0 H0 ran at another temperature"), std::string::npos);
  EXPECT_NE(page.out.find("1st order"), std::string::npos);
  EXPECT_NE(page.out.find("advised scale"), std::string::npos);
  const auto without = run_poise({"report", folder.path("r.safetensors"), "--what-if", "none"});
  EXPECT_EQ(without.out.find("what if"), std::string::npos);
}

TEST(WhatIfs, that_nobody_can_read_are_refused_in_one_sentence) {
  const struct {
    const char *list, *sentence;
    int exit_code;
  } refusals[] = {
      {"warm",
       "--what-if: 'warm' is neither a number, undivided, 1/D, advised, qk-norm, softcap=NUMBER, "
       "log-n=NUMBER nor none",
       2},
      {"2,", "--what-if: '' is neither", 2},
      {"softcap=high", "--what-if: 'softcap=high' has no number behind softcap=", 2},
      {"log-n=1", "trained_keys 1 is neither 0 (off) nor a finite number of 2 or more", 1},
      {"inf", "scale_factor inf is not finite", 1},
  };
  for (const auto& refusal : refusals) {
    const auto result = run_poise({"report", "--what-if", refusal.list});
    EXPECT_EQ(result.exit_code, refusal.exit_code) << refusal.list;
    EXPECT_NE(result.err.find(refusal.sentence), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(SinkColumns, beyond_the_first_keys_are_measured_and_named) {
  const TemporaryFolder folder;
  TensorBuffer query = random_tensor({1, 2, 24, 16}, 1), key = random_tensor({1, 2, 24, 16}, 2),
               value = random_tensor({1, 2, 24, 16}, 3);
  // The first head leans on key 17.
  for (std::int64_t i = 0; i < 24; ++i) {
    query.set(query.index({0, 0, i, 0}), 6);
    key.set(key.index({0, 0, i, 0}), i == 17 ? 5 : 0);
  }
  ASSERT_FALSE(io::write_safetensors(folder.path("r.safetensors"),
                                     {{"layer.0.query", query.view()},
                                      {"layer.0.key", key.view()},
                                      {"layer.0.value", value.view()}},
                                     {{"poise.recording", "1"}}));
  const Json heads = heads_of(folder, {"--what-if", "none"});
  EXPECT_EQ(heads[0].at("readout").at("sink_key"), 17);
  EXPECT_GT(heads[0].at("readout").at("sink_weight").get<double>(), 0.9);
  bool named = false;
  for (const Json& flag : heads[0].at("flags"))
    named |= flag.at("remedy") == "Keep key 17 when evicting from a KV cache";
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace poise::test
