// The whole model: record, report, clip, and again, until the largest score of every head is at
// most τ. Clipping a layer changes what the next one reads, so one round is not enough.
// ctest-labels: cli
//
// In: the built program, made models of two attention layers with a residual stream. Out: the
// maxima of every round, printed. The model runs through the library's attention.
#include <gtest/gtest.h>
#include <poise/attention.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/clip_model.h"
#include "support/command_files.h"
#include "support/file_builder.h"

namespace poise::test {
namespace {

constexpr std::int64_t kHeads = 3, kDim = 8, kWidth = kHeads * kDim, kLength = 20;
constexpr int kLayers = 2;

std::string name_of(int layer, const std::string& part) {
  return "layers." + std::to_string(layer) + "." + part;
}

Weights made_weights(std::uint64_t seed) {
  Weights weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const std::string part : {"q", "k", "v", "o"})
      weights[name_of(layer, part)] =
          random_matrix(kWidth, kWidth, part == "o" ? 0.1 : 0.5, seed++);
    scale_rows(&weights[name_of(layer, "q")], 0, kDim * layer, kDim, 5);
  }
  return weights;
}

TensorBuffer heads_of(const TensorBuffer& x, const TensorBuffer& weight) {
  TensorBuffer heads(DType::f32, {1, kHeads, kLength, kDim});
  for (std::int64_t h = 0; h < kHeads; ++h)
    put_head(project(x, weight, false, {}, counted(h * kDim, kDim)), h, 0, &heads);
  return heads;
}

// Runs the model on a fixed text and writes what its attention layers were called with.
void record(const Weights& weights, const std::string& path) {
  TensorBuffer x = random_matrix(kLength, kWidth, 1, 77);
  std::vector<TensorBuffer> kept;
  std::vector<io::NamedTensor> tensors;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string label = "layer." + std::to_string(layer) + ".";
    const TensorBuffer q = heads_of(x, weights.at(name_of(layer, "q")));
    const TensorBuffer k = heads_of(x, weights.at(name_of(layer, "k")));
    const TensorBuffer v = heads_of(x, weights.at(name_of(layer, "v")));
    kept.insert(kept.end(), {q, k, v});
    tensors.push_back({label + "query", q.view()});
    tensors.push_back({label + "key", k.view()});
    tensors.push_back({label + "value", v.view()});
    TensorBuffer out(DType::f32, {1, kHeads, kLength, kDim}), joined(DType::f32, {kLength, kWidth});
    const Error error = attention(q.view(), k.view(), v.view(), out.view());
    ASSERT_FALSE(error) << error.message();
    for (std::int64_t l = 0; l < kLength; ++l)
      for (std::int64_t c = 0; c < kWidth; ++c)
        joined.set(joined.index({l, c}), out.at(out.index({0, c / kDim, l, c % kDim})));
    const TensorBuffer added =
        project(joined, weights.at(name_of(layer, "o")), false, {}, counted(0, kWidth));
    TensorBuffer next(DType::f32, {kLength, kWidth});
    for (std::int64_t i = 0; i < next.count(); ++i) next.set(i, x.at(i) + added.at(i));
    x = next;
  }
  const Error error = io::write_safetensors(path, tensors, {{"poise.recording", "1"}});
  ASSERT_FALSE(error) << error.message();
}

// The largest score of the model of that seed before each round, the last one at most τ.
std::vector<double> clip_until(double tau, std::uint64_t seed) {
  constexpr int kMaxRounds = 10;
  const TemporaryFolder folder;
  folder.write("map.json", R"({"schema": "poise.map", "version": 1, "layers": [
      {"label": "L{0..1}", "q_heads": 3, "head_dim": 8,
       "query": {"weight": "layers.{}.q", "layout": "out_in"},
       "key": {"weight": "layers.{}.k", "layout": "out_in"}}]})");
  std::string model = folder.path("model.safetensors");
  write_weights(model, made_weights(seed));
  std::vector<double> maxima;
  for (int round = 0; round < kMaxRounds; ++round) {
    record(read_weights(model), folder.path("recorded.safetensors"));
    const CommandResult report = run_poise(
        {"report", folder.path("recorded.safetensors"), "--json", folder.path("report.json")});
    EXPECT_EQ(report.exit_code, 0) << report.err;
    const auto json = nlohmann::json::parse(folder.read("report.json"));
    std::printf("model %d, round %d:", static_cast<int>(seed), round);
    double largest = 0;
    for (const auto& head : json["heads"]) {
      const double score = head["readout"]["max_score"].get<double>();
      std::printf("  %s %.4g", head["name"].get<std::string>().c_str(), score);
      largest = std::max(largest, score);
    }
    std::printf("\n");
    maxima.push_back(largest);
    if (largest <= tau) break;
    const std::string next = folder.path("model." + std::to_string(round) + ".safetensors");
    // A little below τ, so that the rounding of the weights does not leave a head just above it.
    const CommandResult clip =
        run_poise({"clip", model, "--from", folder.path("report.json"), "--map",
                   folder.path("map.json"), "--out", next, "--tau", std::to_string(0.999 * tau)});
    EXPECT_EQ(clip.exit_code, 0) << clip.err;
    model = next;
  }
  return maxima;
}

TEST(ClipLoop, record_and_clip_repeat_until_every_largest_score_is_at_most_tau) {
  constexpr double kTau = 12;
  std::size_t most_rounds = 0;
  for (const std::uint64_t seed : {1u, 11u, 21u, 31u}) {
    const std::vector<double> maxima = clip_until(kTau, seed);
    EXPECT_GT(maxima.front(), 2 * kTau);
    EXPECT_LE(maxima.back(), kTau);
    const std::size_t rounds = maxima.size() - 1;
    // A round settles at least the first layer that is not yet within τ.
    EXPECT_LE(rounds, static_cast<std::size_t>(kLayers));
    most_rounds = std::max(most_rounds, rounds);
  }
  EXPECT_GT(most_rounds, 1u) << "no model needed a second round";
}

}  // namespace
}  // namespace poise::test
