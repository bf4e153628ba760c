// poise clip on made checkpoints of every layout: with the layer's input held fixed, the largest
// score of a clipped head is τ, every other head keeps its bits, and so does every other byte.
// ctest-labels: cli
//
// In: the built program, checkpoints of support/clip_model.h. q and k are recomputed from the files
// before and after by plain loops. What is refused: cli_clip_refusal_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/open.h"
#include "support/clip_model.h"
#include "support/command_files.h"
#include "support/file_builder.h"

namespace poise::test {
namespace {

constexpr std::int64_t kLength = 20, kInputs = 24;

// Entries of one tensor that a head's clip may change.
struct Rows {
  std::string tensor;
  int axis;
  std::int64_t begin, count;
};

struct Model {
  std::string map;
  Weights weights;
  // q and k of every layer, as the weights make them.
  std::function<std::vector<LayerHeads>(const Weights&)> heads;
  // What belongs to head h of layer l.
  std::function<std::vector<Rows>(int layer, std::int64_t head)> rows;
};

std::string map_of(const std::string& layer) {
  return R"({"schema": "poise.map", "version": 1, "layers": [)" + layer + "]}";
}

double largest(const Stats& stats, std::size_t head) { return stats.heads[head].scores.max; }

class Clip : public testing::Test {
 protected:
  std::vector<Stats> measured(const Model& model, const std::string& file) const {
    std::vector<Stats> all;
    for (const LayerHeads& heads : model.heads(read_weights(folder_.path(file))))
      all.push_back(measure(heads));
    return all;
  }

  // Clips halfway between the heads that are hot and those that are not, and checks everything the
  // verb promises. `precision`: how near τ the clipped heads must come.
  void check(const Model& model, const std::set<std::pair<int, std::int64_t>>& hot,
             double precision = 0.01) {
    write_weights(folder_.path("old.safetensors"), model.weights);
    folder_.write("map.json", model.map);
    const std::vector<Stats> before = measured(model, "old.safetensors");
    double coldest = std::numeric_limits<double>::infinity(), warmest = 0;
    for (std::size_t l = 0; l < before.size(); ++l)
      for (std::size_t h = 0; h < before[l].heads.size(); ++h) {
        const double score = largest(before[l], h);
        const bool is_hot = hot.contains({static_cast<int>(l), static_cast<std::int64_t>(h)});
        if (is_hot)
          coldest = std::min(coldest, score);
        else
          warmest = std::max(warmest, score);
      }
    ASSERT_GT(coldest, 1.5 * warmest) << "the model has no clearly hot heads";
    const double tau = std::sqrt(coldest * warmest);
    folder_.write("report.json", report_json(before));
    const CommandResult result =
        run_poise({"clip", folder_.path("old.safetensors"), "--from", folder_.path("report.json"),
                   "--map", folder_.path("map.json"), "--out", folder_.path("new.safetensors"),
                   "--tau", std::to_string(tau)});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(std::to_string(hot.size()) + " of "), std::string::npos)
        << result.out;
    check_heads(model, before, hot, tau, precision);
    check_bytes(model, hot);
  }

  void check_heads(const Model& model, const std::vector<Stats>& before,
                   const std::set<std::pair<int, std::int64_t>>& hot, double tau,
                   double precision) const {
    const std::vector<Stats> after = measured(model, "new.safetensors");
    const auto old_heads = model.heads(read_weights(folder_.path("old.safetensors")));
    const auto new_heads = model.heads(read_weights(folder_.path("new.safetensors")));
    for (std::size_t l = 0; l < after.size(); ++l) {
      const std::int64_t group = old_heads[l].query.extent(1) / old_heads[l].key.extent(1);
      for (std::size_t h = 0; h < after[l].heads.size(); ++h) {
        const auto head = static_cast<std::int64_t>(h);
        const std::string where = "layer " + std::to_string(l) + " head " + std::to_string(h);
        if (hot.contains({static_cast<int>(l), head})) {
          EXPECT_NEAR(largest(after[l], h), tau, precision * tau) << where;
          continue;
        }
        EXPECT_EQ(after[l].heads[h], before[l].heads[h]) << where;
        EXPECT_EQ(first_difference(old_heads[l].query.sliced(1, head, 1),
                                   new_heads[l].query.sliced(1, head, 1)),
                  "")
            << where;
        EXPECT_EQ(first_difference(old_heads[l].key.sliced(1, head / group, 1),
                                   new_heads[l].key.sliced(1, head / group, 1)),
                  "")
            << where;
      }
    }
  }

  // Every byte but those of the hot heads' rows is the same; of those, every element moved.
  void check_bytes(const Model& model, const std::set<std::pair<int, std::int64_t>>& hot) const {
    const std::string before = read_bytes(folder_.path("old.safetensors"));
    const std::string after = read_bytes(folder_.path("new.safetensors"));
    ASSERT_EQ(before.size(), after.size());
    std::vector<bool> may_change(before.size(), false);
    io::File file;
    ASSERT_FALSE(io::open(folder_.path("old.safetensors"), &file));
    std::int64_t moved = 0, elements = 0;
    for (const auto& [layer, head] : hot) {
      for (const Rows& rows : model.rows(layer, head)) {
        const io::Entry* entry = file.find(rows.tensor);
        ASSERT_NE(entry, nullptr) << rows.tensor;
        const std::int64_t size = size_bytes(entry->tensor->dtype);
        const std::int64_t columns = entry->shape.size() == 1 ? 1 : entry->shape[1];
        for (std::int64_t i = 0; i < entry->size_bytes / size; ++i) {
          const std::int64_t at = rows.axis == 0 ? i / columns : i % columns;
          if (at < rows.begin || at >= rows.begin + rows.count) continue;
          const auto byte = static_cast<std::size_t>(entry->begin + i * size);
          for (std::size_t b = 0; b < static_cast<std::size_t>(size); ++b)
            may_change[byte + b] = true;
          ++elements;
          moved += before.compare(byte, static_cast<std::size_t>(size), after, byte,
                                  static_cast<std::size_t>(size)) != 0;
        }
      }
    }
    for (std::size_t i = 0; i < before.size(); ++i)
      ASSERT_TRUE(may_change[i] || before[i] == after[i]) << "byte " << i;
    EXPECT_EQ(moved, elements) << "a factor is missing from part of a head";
  }

  TemporaryFolder folder_;
};

TensorBuffer input(std::uint64_t seed, double size = 1) {
  return random_matrix(kLength, kInputs, size, seed);
}

// A vector of n normal numbers.
TensorBuffer random_vector(std::int64_t n, double size, std::uint64_t seed) {
  TensorBuffer vector(DType::f32, {n});
  Rng rng(seed);
  vector.fill([&] { return size * rng.normal(); });
  return vector;
}

// Query and key projections apart, [out, in], biases; heads 1 and 3 of 4 hot.
Model multi_head(DType dtype) {
  constexpr std::int64_t kHeads = 4, kDim = 8, kRows = kHeads * kDim;
  Model model;
  model.map = map_of(R"({"label": "L0", "q_heads": 4, "head_dim": 8,
      "query": {"weight": "q.weight", "bias": "q.bias", "layout": "out_in"},
      "key": {"weight": "k.weight", "bias": "k.bias", "layout": "out_in"}})");
  for (const std::string side : {"q", "k"}) {
    const std::uint64_t seed = side == "q" ? 1 : 2;
    TensorBuffer weight = random_matrix(kRows, kInputs, 0.3, seed);
    TensorBuffer bias = random_vector(kRows, 0.5, seed + 10);
    for (const std::int64_t head : {1, 3}) {
      scale_rows(&weight, 0, head * kDim, kDim, 2.5);
      scale_rows(&bias, 0, head * kDim, kDim, 2.5);
    }
    model.weights[side + ".weight"] = weight.copied_as(dtype);
    model.weights[side + ".bias"] = bias.copied_as(dtype);
  }
  model.weights["v.weight"] = random_matrix(kRows, kInputs, 1, 5).copied_as(dtype);
  model.weights["steps"] = TensorBuffer(DType::i64, {3});
  model.heads = [](const Weights& weights) {
    LayerHeads heads{TensorBuffer(DType::f32, {1, kHeads, kLength, kDim}),
                     TensorBuffer(DType::f32, {1, kHeads, kLength, kDim})};
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const auto rows = counted(h * kDim, kDim);
      put_head(project(input(7), weights.at("q.weight"), false, weights.at("q.bias"), rows), h, 0,
               &heads.query);
      put_head(project(input(7), weights.at("k.weight"), false, weights.at("k.bias"), rows), h, 0,
               &heads.key);
    }
    return std::vector{heads};
  };
  model.rows = [](int, std::int64_t head) {
    std::vector<Rows> rows;
    for (const char* name : {"q.weight", "q.bias", "k.weight", "k.bias"})
      rows.push_back({name, 0, head * kDim, kDim});
    return rows;
  };
  return model;
}

TEST_F(Clip, multi_head_weights_and_biases_in_every_dtype) {
  for (const DType dtype : {DType::f64, DType::f32}) check(multi_head(dtype), {{0, 1}, {0, 3}});
}

TEST_F(Clip, sixteen_bit_weights_come_within_a_percent_too) {
  // A factor near 1 may leave single elements of 16 bits as they are, so the heads are hot enough.
  for (const DType dtype : {DType::f16, DType::bf16}) check(multi_head(dtype), {{0, 1}, {0, 3}});
}

TEST_F(Clip, grouped_heads_are_clipped_in_their_own_query_rows_only) {
  constexpr std::int64_t kHeads = 6, kKeyHeads = 2, kDim = 8;
  Model model;
  model.map = map_of(R"({"label": "L0", "q_heads": 6, "kv_heads": 2, "head_dim": 8,
      "query": {"weight": "q", "layout": "in_out"}, "key": {"weight": "k", "layout": "in_out"}})");
  model.weights["q"] = random_matrix(kInputs, kHeads * kDim, 0.3, 1);
  model.weights["k"] = random_matrix(kInputs, kKeyHeads * kDim, 0.3, 2);
  for (const std::int64_t head : {1, 4}) scale_rows(&model.weights["q"], 1, head * kDim, kDim, 6);
  model.heads = [](const Weights& weights) {
    LayerHeads heads{TensorBuffer(DType::f32, {1, kHeads, kLength, kDim}),
                     TensorBuffer(DType::f32, {1, kKeyHeads, kLength, kDim})};
    for (std::int64_t h = 0; h < kHeads; ++h)
      put_head(project(input(7), weights.at("q"), true, {}, counted(h * kDim, kDim)), h, 0,
               &heads.query);
    for (std::int64_t h = 0; h < kKeyHeads; ++h)
      put_head(project(input(7), weights.at("k"), true, {}, counted(h * kDim, kDim)), h, 0,
               &heads.key);
    return std::vector{heads};
  };
  model.rows = [](int, std::int64_t head) {
    return std::vector<Rows>{{"q", 1, head * kDim, kDim}};
  };
  check(model, {{0, 1}, {0, 4}}, 1e-5);
}

TEST_F(Clip, latent_attention_leaves_the_rotary_key_that_all_heads_share) {
  constexpr std::int64_t kHeads = 3, kNope = 8, kRope = 4, kValue = 6, kLatent = 10;
  Model model;
  model.map = map_of(R"({"label": "L0", "q_heads": 3,
      "mla": {"nope_dim": 8, "rope_dim": 4, "value_dim": 6},
      "query": {"weight": "q", "layout": "out_in"},
      "key": {"weight": "kv_b", "layout": "out_in"}})");
  model.weights["q"] = random_matrix(kHeads * (kNope + kRope), kInputs, 0.3, 1);
  model.weights["kv_a"] = random_matrix(kLatent + kRope, kInputs, 0.3, 2);
  model.weights["kv_b"] = random_matrix(kHeads * (kNope + kValue), kLatent, 0.3, 3);
  scale_rows(&model.weights["q"], 0, 2 * (kNope + kRope), kNope + kRope, 6);
  model.heads = [](const Weights& weights) {
    LayerHeads heads{TensorBuffer(DType::f32, {1, kHeads, kLength, kNope + kRope}),
                     TensorBuffer(DType::f32, {1, kHeads, kLength, kNope + kRope})};
    const TensorBuffer latent =
        project(input(7), weights.at("kv_a"), false, {}, counted(0, kLatent));
    const TensorBuffer rotary =
        project(input(7), weights.at("kv_a"), false, {}, counted(kLatent, kRope));
    for (std::int64_t h = 0; h < kHeads; ++h) {
      put_head(project(input(7), weights.at("q"), false, {},
                       counted(h * (kNope + kRope), kNope + kRope)),
               h, 0, &heads.query);
      put_head(project(latent, weights.at("kv_b"), false, {}, counted(h * (kNope + kValue), kNope)),
               h, 0, &heads.key);
      put_head(rotary, h, kNope, &heads.key);
    }
    return std::vector{heads};
  };
  model.rows = [](int, std::int64_t head) {
    return std::vector<Rows>{{"q", 0, head * (kNope + kRope), kNope + kRope},
                             {"kv_b", 0, head * (kNope + kValue), kNope}};
  };
  check(model, {{0, 2}}, 1e-5);
}

// One tensor for q, k and v. q_rows(h) and k_rows(j): where head h, key head j begin.
Model fused(const std::string& map, std::int64_t q_heads, std::int64_t kv_heads, bool in_out,
            std::function<std::int64_t(std::int64_t)> q_row,
            std::function<std::int64_t(std::int64_t)> k_row) {
  constexpr std::int64_t kDim = 8;
  const std::int64_t rows = (q_heads + 2 * kv_heads) * kDim;
  const int axis = in_out ? 1 : 0;
  Model model;
  model.map = map_of(map);
  model.weights["qkv.weight"] =
      in_out ? random_matrix(kInputs, rows, 0.3, 1) : random_matrix(rows, kInputs, 0.3, 1);
  model.weights["qkv.bias"] = random_vector(rows, 0.5, 2);
  scale_rows(&model.weights["qkv.weight"], axis, q_row(1), kDim, 6);
  scale_rows(&model.weights["qkv.bias"], 0, q_row(1), kDim, 6);
  model.heads = [=](const Weights& weights) {
    LayerHeads heads{TensorBuffer(DType::f32, {1, q_heads, kLength, kDim}),
                     TensorBuffer(DType::f32, {1, kv_heads, kLength, kDim})};
    const auto head = [&](std::int64_t row) {
      return project(input(7), weights.at("qkv.weight"), in_out, weights.at("qkv.bias"),
                     counted(row, kDim));
    };
    for (std::int64_t h = 0; h < q_heads; ++h) put_head(head(q_row(h)), h, 0, &heads.query);
    for (std::int64_t h = 0; h < kv_heads; ++h) put_head(head(k_row(h)), h, 0, &heads.key);
    return std::vector{heads};
  };
  model.rows = [=](int, std::int64_t head) {
    std::vector<Rows> all{{"qkv.weight", axis, q_row(head), kDim},
                          {"qkv.bias", 0, q_row(head), kDim}};
    if (q_heads == kv_heads) {
      all.push_back({"qkv.weight", axis, k_row(head), kDim});
      all.push_back({"qkv.bias", 0, k_row(head), kDim});
    }
    return all;
  };
  return model;
}

TEST_F(Clip, one_tensor_of_all_queries_then_all_keys_then_all_values) {
  const std::string map = R"({"label": "L0", "q_heads": 3, "head_dim": 8, "fused": "blocks",
      "qkv": {"weight": "qkv.weight", "bias": "qkv.bias", "layout": "in_out"}})";
  check(fused(
            map, 3, 3, true, [](auto h) { return 8 * h; }, [](auto h) { return 24 + 8 * h; }),
        {{0, 1}}, 1e-5);
}

TEST_F(Clip, one_tensor_of_query_key_and_value_per_head) {
  const std::string map = R"({"label": "L0", "q_heads": 3, "head_dim": 8, "fused": "per_head",
      "qkv": {"weight": "qkv.weight", "bias": "qkv.bias", "layout": "out_in"}})";
  check(fused(
            map, 3, 3, false, [](auto h) { return 24 * h; }, [](auto h) { return 24 * h + 8; }),
        {{0, 1}}, 1e-5);
}

TEST_F(Clip, one_tensor_of_a_group_of_queries_its_key_and_its_value) {
  const std::string map =
      R"({"label": "L0", "q_heads": 6, "kv_heads": 2, "head_dim": 8, "fused": "per_head",
      "qkv": {"weight": "qkv.weight", "bias": "qkv.bias", "layout": "out_in"}})";
  check(fused(
            map, 6, 2, false, [](auto h) { return 40 * (h / 3) + 8 * (h % 3); },
            [](auto h) { return 40 * h + 24; }),
        {{0, 1}}, 1e-5);
}

// Divides each row of [L, D] by its root mean square and multiplies by the gain's entries.
TensorBuffer normalised(const TensorBuffer& x, const TensorBuffer& gain, std::int64_t first) {
  TensorBuffer y(DType::f32, {x.extent(0), x.extent(1)});
  for (std::int64_t l = 0; l < x.extent(0); ++l) {
    double squares = 0;
    for (std::int64_t d = 0; d < x.extent(1); ++d)
      squares += std::pow(x.at(l * x.extent(1) + d), 2);
    const double rms = std::sqrt(squares / static_cast<double>(x.extent(1)));
    for (std::int64_t d = 0; d < x.extent(1); ++d)
      y.set(l * x.extent(1) + d, x.at(l * x.extent(1) + d) / rms * gain.at(first + d));
  }
  return y;
}

TEST_F(Clip, normalised_queries_and_keys_are_clipped_in_their_gains) {
  constexpr std::int64_t kHeads = 3, kDim = 8;
  Model model;
  model.map = map_of(R"({"label": "L0", "q_heads": 3, "head_dim": 8,
      "query": {"weight": "q", "layout": "out_in"}, "query_norm": {"weight": "q_norm"},
      "key": {"weight": "k", "layout": "out_in"}, "key_norm": {"weight": "k_norm"}})");
  for (const std::string side : {"q", "k"}) {
    model.weights[side] = random_matrix(kHeads * kDim, kInputs, 0.3, side == "q" ? 1 : 2);
    // [heads, head_dim] for q, [heads * head_dim] for k: both are gains of a head's own.
    TensorBuffer gain = side == "q" ? TensorBuffer(DType::f32, {kHeads, kDim})
                                    : TensorBuffer(DType::f32, {kHeads * kDim});
    Rng rng(5);
    gain.fill([&] { return 1 + 0.2 * rng.normal(); });
    model.weights[side + "_norm"] = gain;
  }
  scale_rows(&model.weights["q_norm"], 0, 1, 1, 6);
  model.heads = [](const Weights& weights) {
    LayerHeads heads{TensorBuffer(DType::f32, {1, kHeads, kLength, kDim}),
                     TensorBuffer(DType::f32, {1, kHeads, kLength, kDim})};
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const auto rows = counted(h * kDim, kDim);
      put_head(normalised(project(input(7), weights.at("q"), false, {}, rows), weights.at("q_norm"),
                          h * kDim),
               h, 0, &heads.query);
      put_head(normalised(project(input(7), weights.at("k"), false, {}, rows), weights.at("k_norm"),
                          h * kDim),
               h, 0, &heads.key);
    }
    return std::vector{heads};
  };
  model.rows = [](int, std::int64_t head) {
    return std::vector<Rows>{{"q_norm", 0, head, 1}, {"k_norm", 0, head * kDim, kDim}};
  };
  check(model, {{0, 1}}, 1e-5);
}

TEST_F(Clip, layers_that_share_weights_take_the_smallest_factor) {
  Model model = multi_head(DType::f32);
  std::string map = model.map;
  map.replace(map.find("L0"), 2, "L{0..1}");
  write_weights(folder_.path("old.safetensors"), model.weights);
  folder_.write("map.json", map);
  // Layer 1 reads an input 1.3 times as large, so its scores are about 1.7 times as large.
  const auto layers = [](const Weights& weights) {
    std::vector<Stats> stats;
    for (const double size : {1.0, 1.3}) {
      LayerHeads heads{TensorBuffer(DType::f32, {1, 4, kLength, 8}),
                       TensorBuffer(DType::f32, {1, 4, kLength, 8})};
      for (std::int64_t h = 0; h < 4; ++h) {
        const auto rows = counted(8 * h, 8);
        put_head(project(input(7, size), weights.at("q.weight"), false, weights.at("q.bias"), rows),
                 h, 0, &heads.query);
        put_head(project(input(7, size), weights.at("k.weight"), false, weights.at("k.bias"), rows),
                 h, 0, &heads.key);
      }
      stats.push_back(measure(heads));
    }
    return stats;
  };
  const std::vector<Stats> before = layers(model.weights);
  const double tau = largest(before[0], 1) / 2;
  ASSERT_LT(largest(before[1], 2), tau) << "head 2 must stay as it is in both layers";
  folder_.write("report.json", report_json(before));
  const CommandResult result =
      run_poise({"clip", folder_.path("old.safetensors"), "--from", folder_.path("report.json"),
                 "--map", folder_.path("map.json"), "--out", folder_.path("new.safetensors"),
                 "--tau", std::to_string(tau)});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Stats> after = layers(read_weights(folder_.path("new.safetensors")));
  for (std::size_t h = 0; h < 4; ++h) {
    const std::string where = "head " + std::to_string(h);
    if (largest(before[1], h) <= tau) {
      EXPECT_EQ(after[0].heads[h], before[0].heads[h]) << where;
      EXPECT_EQ(after[1].heads[h], before[1].heads[h]) << where;
      continue;
    }
    const double gamma = tau / std::max(largest(before[0], h), largest(before[1], h));
    EXPECT_NEAR(largest(after[1], h), gamma * largest(before[1], h), 1e-4 * tau) << where;
    EXPECT_NEAR(largest(after[0], h), gamma * largest(before[0], h), 1e-4 * tau) << where;
  }
}

}  // namespace
}  // namespace poise::test
