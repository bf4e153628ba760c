// The parts of QK-clip without the command: γ and how it is split, maps, scores out of reports, the
// streaming copy of a checkpoint.
// ctest-labels: unit fast
//
// In: numbers, JSON, small checkpoints in every dtype. Rounding is checked against the definition
// of nearest even, on every 16-bit value. Layouts and statistics: cli_clip_test.cpp.
#include <gtest/gtest.h>
#include <poise/advice.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/clip_map.h"
#include "io/report_scores.h"
#include "kernels/half.h"
#include "support/clip_model.h"
#include "support/command_runner.h"
#include "support/file_builder.h"

namespace poise::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- advice ----

TEST(Advice, gamma_brings_the_largest_score_to_tau_and_never_raises_it) {
  EXPECT_EQ(clip_gamma(400, 100), 0.25);
  EXPECT_EQ(clip_gamma(100, 100), 1);
  EXPECT_EQ(clip_gamma(99, 100), 1);
  for (const double score : {0.0, -0.0, -400.0, -kInfinity, kNaN})
    EXPECT_EQ(clip_gamma(score, 100), 1) << score;
}

TEST(Advice, the_parts_of_a_split_factor_multiply_to_it) {
  for (const double f : {0.0, 0.09, 0.25, 1.0, 4.0}) {
    for (const WeightRule rule :
         {WeightRule::mha, WeightRule::gqa, WeightRule::mla, WeightRule::scale}) {
      const WeightFactors w = split_factor(f, rule);
      EXPECT_DOUBLE_EQ(w.scale * w.query * w.key, f) << name(rule);
      EXPECT_DOUBLE_EQ(w.scale * w.query_rope * w.key_rope, f) << name(rule);
      // What other heads read too stays as it is.
      EXPECT_TRUE(rule != WeightRule::gqa || w.key == 1);
      EXPECT_TRUE(rule != WeightRule::mla || w.key_rope == 1);
    }
  }
}

TEST(Advice, the_rule_follows_from_the_numbers_of_heads) {
  EXPECT_EQ(weight_rule(8, 8, false), WeightRule::mha);
  EXPECT_EQ(weight_rule(8, 0, false), WeightRule::mha);
  EXPECT_EQ(weight_rule(8, 2, false), WeightRule::gqa);
  EXPECT_EQ(weight_rule(8, 8, true), WeightRule::scale);
}

TEST(Advice, the_spread_factor_is_a_number_only_where_one_helps) {
  EXPECT_EQ(spread_factor(8, 2), 0.25);
  EXPECT_TRUE(std::isnan(spread_factor(0, 2)));
  EXPECT_TRUE(std::isnan(spread_factor(kNaN, 2)));
}

TEST(Advice, its_text_names_the_weights_and_the_numbers) {
  ScoreFacts facts;
  facts.scale = 0.125;
  facts.max_score = 400;
  facts.sigma = 8;
  facts.target_sigma = 2;
  EXPECT_EQ(to_text(advise(facts)),
            "Largest score 400, τ = 100: QK-clip, γ = 0.25: Wq and Wk of this head × 0.5 each. "
            "Spread σ 8: scale × 0.25 (0.125 → 0.0312) brings σ to 2, and so do Wq and Wk × 0.5 "
            "each.");
  facts.rule = WeightRule::mla;
  EXPECT_EQ(clip_text(advise(facts)),
            "QK-clip, γ = 0.25: no-position rows of Wq and Wk of this head × 0.5 each, its rotary "
            "rows of Wq × 0.25; the rotary key serves every head, so leave it");
  facts.max_score = 99;
  facts.sigma = 0;
  EXPECT_EQ(to_text(advise(facts)),
            "Largest score 99, τ = 100: nothing to clip. Spread σ 0: no scale changes it.");
  EXPECT_EQ(to_text(advise({})), "Nothing was measured.");
}

// ---- the copy ----

class Copy : public testing::Test {
 protected:
  // Writes the bytes, scales one tensor along one axis, and returns the bytes of the copy.
  std::string scaled(const std::string& bytes, const std::string& name, std::size_t axis,
                     std::vector<double> factors) {
    folder_.write("old", bytes);
    io::Checkpoint checkpoint;
    const Error opened = io::Checkpoint::open(folder_.path("old"), &checkpoint);
    EXPECT_FALSE(opened) << opened.message();
    const io::ListedTensor* tensor = checkpoint.find(name);
    EXPECT_NE(tensor, nullptr);
    const Error written =
        checkpoint.write_scaled(folder_.path("new"), {{tensor, axis, std::move(factors)}});
    EXPECT_FALSE(written) << written.message();
    return folder_.read("new");
  }

  TemporaryFolder folder_;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A checkpoint of one tensor [2, 65536]: every 16-bit pattern, twice.
std::string every_pattern(const std::string& dtype, std::size_t* data_at) {
  std::vector<std::uint16_t> patterns(2 << 16);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const std::string bytes = safetensors_bytes(
      R"({"w":{"dtype":")" + dtype + R"(","shape":[2,65536],"data_offsets":[0,262144]}})",
      bytes_of(patterns));
  *data_at = bytes.size() - 262144;
  return bytes;
}

TEST_F(Copy, sixteen_bit_elements_round_once_to_nearest_even) {
  for (const std::string dtype : {"F16", "BF16"}) {
    const auto widen = [&](std::uint16_t x) {
      return static_cast<double>(dtype == "F16" ? widen_f16(x) : widen_bf16(x));
    };
    for (const double factor : {0.5, 0.7071067811865476, 0.9999, 1.0 / 3, 0x1.004p-1, 1e-3}) {
      std::size_t at = 0;
      const std::string old_bytes = every_pattern(dtype, &at);
      const std::string new_bytes = scaled(old_bytes, "w", 0, {1, factor});
      // The row with factor 1 keeps every NaN as it is.
      ASSERT_EQ(new_bytes.compare(0, at + 131072, old_bytes, 0, at + 131072), 0);
      const auto results = values_of<std::uint16_t>(new_bytes.substr(at + 131072));
      for (std::size_t i = 0; i < results.size(); ++i) {
        const double exact = widen(static_cast<std::uint16_t>(i)) * factor;
        const std::uint16_t got = results[i];
        if (std::isnan(exact) || std::isinf(exact)) {
          ASSERT_EQ(std::isnan(exact), std::isnan(widen(got))) << dtype << " " << i;
          continue;
        }
        const double error = std::fabs(widen(got) - exact);
        ASSERT_EQ(std::signbit(widen(got)), std::signbit(exact)) << dtype << " " << i;
        for (const int step : {-1, 1}) {
          const auto next = static_cast<std::uint16_t>(got + step);
          if ((next ^ got) & 0x8000 || !std::isfinite(widen(next))) continue;
          const double other = std::fabs(widen(next) - exact);
          ASSERT_TRUE(error < other || (error == other && got % 2 == 0))
              << dtype << " pattern " << i << " times " << factor << " gave " << got;
        }
      }
    }
  }
}

TEST_F(Copy, wide_elements_are_the_rounded_product) {
  const std::vector<float> singles{1, -3.25f, 1e-40f, 0, 7e37f, 0.1f};
  const std::vector<double> doubles{1, -3.25, 1e-310, 0, 7e307, 0.1};
  const double factor = 0.7071067811865476;
  const std::string f32 =
      scaled(safetensors_bytes(R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}})",
                               bytes_of(singles)),
             "w", 0, std::vector<double>(6, factor));
  const std::string f64 =
      scaled(safetensors_bytes(R"({"w":{"dtype":"F64","shape":[6],"data_offsets":[0,48]}})",
                               bytes_of(doubles)),
             "w", 0, std::vector<double>(6, factor));
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(values_of<float>(f32.substr(f32.size() - 24))[i],
              static_cast<float>(static_cast<double>(singles[i]) * factor));
    EXPECT_EQ(values_of<double>(f64.substr(f64.size() - 48))[i], doubles[i] * factor);
  }
}

TEST_F(Copy, an_axis_in_the_middle_of_a_misaligned_tensor_between_others) {
  // 3 x 5 x 4 floats behind a header of odd length and a tensor of 3 bytes; more of both behind it.
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
  const std::string bytes = safetensors_bytes(
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"format":"pt"},)"
      R"("z":{"dtype":"I8","shape":[2],"data_offsets":[243,245]},)"
      R"("w":{"dtype":"F32","shape":[3,5,4],"data_offsets":[3,243]}} )",
      "abc" + bytes_of(values) + "yz");
  const std::string copy = scaled(bytes, "w", 1, {1, 0.5, 1, 1, 0.25});
  ASSERT_EQ(copy.size(), bytes.size());
  const std::size_t at = bytes.size() - 242;
  EXPECT_EQ(copy.substr(0, at), bytes.substr(0, at));
  EXPECT_EQ(copy.substr(copy.size() - 2), "yz");
  const auto scaled_values = values_of<float>(copy.substr(at, 240));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / 4 % 5;
    const float factor = row == 1 ? 0.5f : row == 4 ? 0.25f : 1.0f;
    EXPECT_EQ(scaled_values[i], values[i] * factor) << i;
  }
}

TEST_F(Copy, a_long_axis_crosses_the_ends_of_the_buffer) {
  // 3 x 70000 elements, the second axis scaled from 100 on: runs end inside and across buffers.
  const std::int64_t columns = 70000;
  Weights weights;
  weights["w"] = random_matrix(3, columns, 1, 3);
  write_weights(folder_.path("made"), weights);
  std::vector<double> factors(static_cast<std::size_t>(columns), 0.5);
  std::fill(factors.begin(), factors.begin() + 100, 1);
  folder_.write("again", scaled(folder_.read("made"), "w", 1, factors));
  const Weights copy = read_weights(folder_.path("again"));
  for (std::int64_t i = 0; i < 3 * columns; ++i)
    ASSERT_EQ(copy.at("w").at(i), weights["w"].at(i) * (i % columns < 100 ? 1 : 0.5)) << i;
}

// ---- maps and reports ----

std::string map_refusal(const std::string& text) {
  std::vector<io::MapLayer> layers(1);
  layers[0].label = "untouched";
  const Error error = io::read_clip_map(text, "map", &layers);
  EXPECT_EQ(layers.size() == 1 && layers[0].label == "untouched", static_cast<bool>(error));
  if (!error) return {};
  EXPECT_EQ(error.message().substr(0, 12), "[read] map: ");
  return error.message().substr(12);
}

std::string with_layer(const std::string& layer) {
  return R"({"schema":"poise.map","version":1,"layers":[)" + layer + "]}";
}

const std::string kSides =
    R"("query":{"weight":"q{}","layout":"out_in"},"key":{"weight":"k{}","layout":"in_out"})";

TEST(ClipMap, a_range_in_a_label_writes_its_layer_out) {
  std::vector<io::MapLayer> layers;
  const Error error = io::read_clip_map(
      with_layer(R"({"label":"layer {9..11}!","q_heads":4,"kv_heads":2,"head_dim":8,)" + kSides +
                 "}"),
      "map", &layers);
  ASSERT_FALSE(error) << error.message();
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[2].label, "layer 11!");
  EXPECT_EQ(layers[2].query.weight, "q11");
  EXPECT_EQ(layers[2].key.weight, "k11");
  EXPECT_FALSE(layers[2].query.in_out);
  EXPECT_TRUE(layers[2].key.in_out);
  EXPECT_EQ(layers[2].query.rows, 32);
  EXPECT_EQ(layers[2].key.rows, 16);
  EXPECT_EQ(layers[2].query.row_of(3), 24);
  EXPECT_EQ(layers[2].key.row_of(1), 8);
}

TEST(ClipMap, every_committed_map_is_read) {
  for (const std::string name : {"bert", "llama", "gpt2", "gpt_neox", "deepseek_v2_lite"}) {
    std::vector<io::MapLayer> layers;
    const Error error = io::read_clip_map(
        read_bytes(std::string(POISE_SOURCE_DIR) + "/data/maps/" + name + ".json"), name, &layers);
    EXPECT_FALSE(error) << error.message();
    EXPECT_GE(layers.size(), 6u) << name;
  }
}

TEST(ClipMap, what_is_no_map_is_refused_in_one_sentence) {
  const std::string one = R"({"label":"L0","q_heads":4,"head_dim":8,)";
  const std::string sides =
      R"("query":{"weight":"q","layout":"out_in"},"key":{"weight":"k","layout":"out_in"})";
  const std::string good = with_layer(one + sides + "}");
  ASSERT_EQ(map_refusal(good), "");
  const struct {
    std::string text, sentence;
  } table[] = {
      {"", "is not well-formed JSON"},
      {good.substr(0, good.size() - 1), "is not well-formed JSON"},
      {good + "x", "is not well-formed JSON"},
      {"[]", "the text is an array, expected an object"},
      {"7", "the text is 7, expected an object"},
      {std::string(100000, '['), "nests deeper than 8 levels"},
      {good + std::string(1, '\0'), "contains a NUL byte"},
      {"\xff" + good, "is not UTF-8"},
      {R"({"schema":"poise.map","schema":"poise.map"})",
       "has the key \"schema\" twice in one object"},
      {R"({"schema":"poise.map","version":2,"layers":[]})",
       "version is 2, expected a whole number from 1 to 1"},
      {R"({"schema":"poise.map","version":1,"layers":{}})",
       "layers is an object, expected an array"},
      {R"({"schema":"poise.map","version":1,"layers":[]})", "layers is empty"},
      {with_layer("{}"), "layers[0].label is missing"},
      {with_layer("null"), "layers[0] is null, expected an object"},
      {with_layer(one + sides + R"(,"heads":3})"), "layers[0] has the unknown key \"heads\""},
      {with_layer(R"({"label":"L0","q_heads":0,"head_dim":8,)" + sides + "}"),
       "layers[0].q_heads is 0, expected a whole number from 1 to 65536"},
      {with_layer(R"({"label":"L0","q_heads":18446744073709551615,"head_dim":8,)" + sides + "}"),
       "layers[0].q_heads is 18446744073709551615, expected a whole number from 1 to 65536"},
      {with_layer(R"({"label":"L0","q_heads":4.0,"head_dim":8,)" + sides + "}"),
       "layers[0].q_heads is 4.0, expected a whole number from 1 to 65536"},
      {with_layer(R"({"label":"L0","q_heads":4,"kv_heads":3,"head_dim":8,)" + sides + "}"),
       "layers[0].kv_heads is 3, which does not divide q_heads 4"},
      {with_layer(one + R"("query":{"weight":"q","layout":"out_in"}})"),
       "layers[0].key is missing"},
      {with_layer(one + R"("query":{"weight":"","layout":"out_in"}})"),
       "layers[0].query.weight is \"\", expected a string that is not empty"},
      {with_layer(one + R"("query":{"weight":"q","layout":"IO"}})"),
       "layers[0].query.layout is \"IO\", expected \"out_in\" or \"in_out\""},
      {with_layer(one + R"("qkv":{"weight":"q","layout":"out_in"}})"),
       "layers[0].fused is missing"},
      {with_layer(one + sides + R"(,"fused":"blocks"})"),
       "layers[0] has the unknown key \"fused\""},
      {with_layer(one + sides + "}," + one + sides + "}"), "layer \"L0\" is there twice"},
      {with_layer(R"({"label":"L{3..1}","q_heads":4,"head_dim":8,)" + sides + "}"),
       "layers[0].label is \"L{3..1}\", expected at most one range, as in \"L{0..5}\", of at most "
       "4096 layers"},
      {with_layer(R"({"label":"L{0..9999999999}","q_heads":4,"head_dim":8,)" + sides + "}"),
       "layers[0].label is \"L{0..9999999999}\", expected at most one range, as in \"L{0..5}\", of "
       "at most 4096 layers"},
      {with_layer(one + kSides + "}"),
       "layers[0].label is \"L0\" without a range, but its tensor name \"q{}\" has {}"},
      {with_layer(R"({"label":"L0","q_heads":4,"mla":{"nope_dim":8,"rope_dim":4,"value_dim":8},)" +
                  sides + R"(,"key_norm":{"weight":"g"}})"),
       "layers[0].mla goes with no query_norm and no key_norm"},
      {with_layer(R"({"label":"L0","q_heads":4,"kv_heads":1,)"
                  R"("mla":{"nope_dim":8,"rope_dim":4,"value_dim":8},)" +
                  sides + "}"),
       "layers[0].kv_heads differs from q_heads: with mla every head has keys of its own"},
  };
  for (const auto& row : table) EXPECT_EQ(map_refusal(row.text), row.sentence);
}

TEST(ClipMap, a_range_over_a_long_name_takes_no_memory_to_speak_of) {
  EXPECT_NE(
      map_refusal(with_layer(R"({"label":"L{0..4095}","q_heads":4,"head_dim":8,)"
                             R"("query":{"weight":")" +
                             std::string(1 << 20, 'q') +
                             R"(","layout":"out_in"},"key":{"weight":"k","layout":"out_in"}})"))
          .find("is too long"),
      std::string::npos);
}

TEST(ReportScores, are_read_from_what_the_report_writes) {
  std::vector<io::HeadScore> heads;
  const std::string json = read_bytes(POISE_SOURCE_DIR "/tests/golden/report.json");
  const Error error = io::read_report_scores(json, "report", &heads);
  ASSERT_FALSE(error) << error.message();
  ASSERT_EQ(heads.size(), 16u);
  EXPECT_EQ(heads[9].layer, "L11");
  EXPECT_EQ(heads[9].head, 1);
  EXPECT_GT(heads[9].max_score, 0);
}

TEST(ReportScores, what_is_no_report_is_refused_in_one_sentence) {
  const std::string start = R"({"schema":"poise.report","version":1,"heads":[)";
  const std::string head = R"({"layer":"L0","head":0,"nonfinite_rows":0,"readout":)";
  const struct {
    std::string text, sentence;
  } table[] = {
      {"{", "is not well-formed JSON"},
      {R"({"schema":"poise.report","version":1})", "heads is missing"},
      {R"({"schema":"poise.stats","version":1,"heads":[]})",
       "schema is not \"poise.report\": expected what poise report --json writes"},
      {start + head + "{}}]}", "heads[0].readout.max_score is missing"},
      {start + head + R"({"max_score":"hot"}}]})",
       "heads[0].readout.max_score is \"hot\", expected a number"},
      {start + head + R"({"max_score":1}},)" + head + R"({"max_score":1}}]})",
       "head 0 of layer \"L0\" is there twice"},
  };
  for (const auto& row : table) {
    std::vector<io::HeadScore> heads(1);
    const Error error = io::read_report_scores(row.text, "report", &heads);
    EXPECT_EQ(error.message(), "[read] report: " + row.sentence);
    EXPECT_EQ(heads.size(), 1u) << "changed by " << row.text;
  }
}

}  // namespace
}  // namespace poise::test
