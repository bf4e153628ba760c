// Recordings: layers in order, options per layer, every fault one sentence; the committed recording
// is what its README says.
//
// In: safetensors files built here, data/rxnmapper.safetensors.
// ctest-labels: unit fast
#include "io/recording.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/file_builder.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

using Metadata = std::map<std::string, std::string>;

struct Stored {
  std::string name;
  std::string dtype = "F32";
  std::string shape = "[1,1,1,1]";
};

// A file of these tensors, all with one element of 8 or fewer zero bytes (or none).
std::string file_of(const std::vector<Stored>& tensors, const Metadata& metadata = {}) {
  const std::map<std::string, std::size_t> sizes = {{"F16", 2}, {"BF16", 2}, {"F32", 4},
                                                    {"F64", 8}, {"BOOL", 1}, {"I32", 4}};
  std::string json = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    json += (json.back() == '{' ? "\"" : ",\"") + key + "\":\"" + value + "\"";
  json += "}";
  std::size_t at = 0;
  for (const Stored& tensor : tensors) {
    const std::size_t end = at + sizes.at(tensor.dtype);
    json += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
            "\",\"shape\":" + tensor.shape + ",\"data_offsets\":[" + std::to_string(at) + "," +
            std::to_string(end) + "]}";
    at = end;
  }
  return safetensors_bytes(json + "}", std::string(at, '\0'));
}

std::vector<Stored> layer_named(const std::string& label) {
  return {{label + ".query"}, {label + ".key"}, {label + ".value"}};
}

struct Read {
  explicit Read(const std::string& bytes) : opened(bytes) {
    EXPECT_FALSE(opened.error) << opened.error.message();
    error = io::read_recording(opened.file, &recording);
  }
  Opened opened;
  io::Recording recording;
  Error error;
};

TEST(Recording, the_committed_recording_has_the_layers_that_its_readme_names) {
  io::File file;
  ASSERT_FALSE(io::open(std::string(POISE_SOURCE_DIR) + "/data/rxnmapper.safetensors", &file));
  EXPECT_LE(file.size_bytes(), 2'000'000);
  io::Recording recording;
  const Error error = io::read_recording(file, &recording);
  ASSERT_FALSE(error) << error.message();
  ASSERT_EQ(recording.layers.size(), 12u);
  EXPECT_EQ(recording.tokens.size(), 56u);
  EXPECT_EQ(recording.tokens.front(), "[CLS]");
  EXPECT_EQ(recording.metadata.at("model"), "rxnmapper 0.4.3");
  EXPECT_EQ(recording.metadata.at("licence"), "MIT, Copyright 2020 RXN4Chemistry team");
  for (std::size_t i = 0; i < recording.layers.size(); ++i) {
    const io::Layer& layer = recording.layers[i];
    EXPECT_EQ(layer.label, "layer." + std::to_string(i));
    for (const ConstTensor& tensor : {layer.query, layer.key, layer.value}) {
      EXPECT_EQ(tensor.dtype, DType::f16);
      EXPECT_EQ(tensor.extents, (std::array<std::int64_t, 4>{1, 8, 56, 32}));
    }
    EXPECT_DOUBLE_EQ(layer.scale.value(), 0.17677669529663689);  // 1/sqrt(32)
    EXPECT_EQ(layer.causal, "none");
    EXPECT_FALSE(layer.mask.given());
    EXPECT_FALSE(layer.bias.given());
  }
}

// Within-row variance of q . k, in float64, averaged over the rows of one head.
double within_row_variance(const io::Layer& layer, std::size_t head) {
  std::vector<float> q, k;
  EXPECT_FALSE(io::widen(layer.query, &q));
  EXPECT_FALSE(io::widen(layer.key, &k));
  const auto length = static_cast<std::size_t>(layer.query.extent(2));
  const auto width = static_cast<std::size_t>(layer.query.extent(3));
  double sum = 0;
  for (std::size_t i = 0; i < length; ++i) {
    double s1 = 0, s2 = 0;
    for (std::size_t j = 0; j < length; ++j) {
      double dot = 0;
      for (std::size_t d = 0; d < width; ++d)
        dot += static_cast<double>(q[(head * length + i) * width + d]) *
               static_cast<double>(k[(head * length + j) * width + d]);
      s1 += dot;
      s2 += dot * dot;
    }
    const double n = static_cast<double>(length);
    sum += s2 / n - (s1 / n) * (s1 / n);
  }
  return sum / static_cast<double>(length);
}

TEST(Recording, trained_heads_are_far_wider_than_iid_theory) {
  io::File file;
  ASSERT_FALSE(io::open(std::string(POISE_SOURCE_DIR) + "/data/rxnmapper.safetensors", &file));
  io::Recording recording;
  ASSERT_FALSE(io::read_recording(file, &recording));
  // From the unrounded float32 model, in float64 (NumPy); float16 storage moves them by < 1e-4.
  EXPECT_NEAR(within_row_variance(recording.layers[0], 0) / 1284.436, 1, 1e-4);
  EXPECT_NEAR(within_row_variance(recording.layers[0], 3) / 7196.611, 1, 1e-4);
}

TEST(Recording, layers_are_ordered_by_number_and_parts_may_be_short) {
  std::vector<Stored> tensors;
  for (const char* label : {"layer.10", "layer.9", "encoder.2", "layer.9a", "x", "layer.09"})
    for (const char* part : {"q", "k", "v"}) tensors.push_back({std::string(label) + "." + part});
  const Read read(file_of(tensors));
  ASSERT_FALSE(read.error) << read.error.message();
  std::vector<std::string> labels;
  for (const io::Layer& layer : read.recording.layers) labels.push_back(layer.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"encoder.2", "layer.09", "layer.9", "layer.9a",
                                              "layer.10", "x"}));
}

TEST(Recording, a_part_of_rank_3_gets_a_batch_of_1) {
  const Read read(file_of({{"a.q", "F16", "[1,1,1]"}, {"a.k", "F64"}, {"a.v", "BF16"}}));
  ASSERT_FALSE(read.error) << read.error.message();
  EXPECT_EQ(read.recording.layers[0].query.rank, 4);
  EXPECT_EQ(read.recording.layers[0].query.extents, (std::array<std::int64_t, 4>{1, 1, 1, 1}));
}

TEST(Recording, a_layers_own_scale_and_causal_beat_those_of_the_file) {
  std::vector<Stored> tensors = layer_named("layer.0");
  for (const Stored& tensor : layer_named("layer.1")) tensors.push_back(tensor);
  tensors.push_back({"layer.1.mask", "BOOL", "[1]"});
  tensors.push_back({"layer.1.bias", "F16", "[1,1]"});
  const Read read(file_of(tensors, {{"scale", "0.5"},
                                    {"causal", "top_left"},
                                    {"layer.1.scale", "-2e-3"},
                                    {"layer.1.causal", "-7"},
                                    {"poise.recording", "1"}}));
  ASSERT_FALSE(read.error) << read.error.message();
  const io::Layer &first = read.recording.layers[0], &second = read.recording.layers[1];
  EXPECT_EQ(first.scale, 0.5);
  EXPECT_EQ(first.causal, "top_left");
  EXPECT_FALSE(first.mask.given());
  EXPECT_EQ(second.scale, -2e-3);
  EXPECT_EQ(second.causal, "-7");
  EXPECT_EQ(second.mask.dtype, DType::boolean);
  EXPECT_EQ(second.bias.rank, 2);
  const Read plain(file_of(layer_named("a")));
  EXPECT_FALSE(plain.recording.layers[0].scale);
  EXPECT_EQ(plain.recording.layers[0].causal, "none");
}

TEST(Recording, faults_are_refused_with_one_sentence) {
  struct Row {
    std::string bytes;
    std::string sentence;
  };
  const auto with = [](const std::string& key, const std::string& value) {
    return file_of(layer_named("a"), {{key, value}});
  };
  const auto among = [](const Stored& extra) {
    std::vector<Stored> tensors = layer_named("a");
    tensors.push_back(extra);
    return file_of(tensors);
  };
  const std::string no_number = ", expected a finite number";
  const std::string no_causal = ", expected none, top_left, bottom_right or an integer";
  const std::string no_tokens = "metadata \"tokens\" is no JSON list of strings";
  const std::string not_called = " is not called <layer>.query, .key, .value, .mask or .bias";
  for (const Row& row : std::vector<Row>{
           {file_of({}), "has no layers"},
           {read_bytes(fixture("stored.npz")), "is an npz file, a recording is a safetensors file"},
           {with("poise.recording", "2"),
            "is a recording of version \"2\", this build reads version \"1\""},
           {file_of({{"a.query"}, {"a.value"}}), "layer \"a\" has no key"},
           {file_of({{"a.query"}, {"a.key"}}), "layer \"a\" has no value"},
           {file_of({{"a.bias"}}), "layer \"a\" has no query"},
           {among({"a.q"}), "layer \"a\" has its query twice"},
           {among({"a.out"}), "tensor \"a.out\"" + not_called},
           {among({"query"}), "tensor \"query\"" + not_called},
           {among({".query"}), "tensor \".query\"" + not_called},
           {file_of({{"a.query", "F32", "[1,1]"}}),
            "tensor \"a.query\" has shape [1, 1], expected [B, H, L, D] or [H, L, D]"},
           {file_of({{"a.query", "F32", "[1,1,1,1,1]"}}),
            "tensor \"a.query\" has rank 5, at most 4 can be used"},
           {file_of({{"a.query", "I32"}}),
            "tensor \"a.query\" has dtype I32, expected F16, BF16, F32 or F64"},
           {among({"a.mask", "F32"}), "tensor \"a.mask\" has dtype F32, expected BOOL"},
           {among({"a.bias", "BOOL"}),
            "tensor \"a.bias\" has dtype BOOL, expected F16, BF16, F32 or F64"},
           {with("scale", ""), "metadata \"scale\" is \"\"" + no_number},
           {with("scale", "1/8"), "metadata \"scale\" is \"1/8\"" + no_number},
           {with("scale", "nan"), "metadata \"scale\" is \"nan\"" + no_number},
           {with("a.scale", "1e999"), "metadata \"a.scale\" is \"1e999\"" + no_number},
           {with("causal", "left"), "metadata \"causal\" is \"left\"" + no_causal},
           {with("a.causal", "9223372036854775808"),
            "metadata \"a.causal\" is \"9223372036854775808\"" + no_causal},
           {with("tokens", "hello"), no_tokens},
           {with("tokens", "{}"), no_tokens},
           {with("tokens", "[1]"), no_tokens},
           {with("tokens", "[[]]"), no_tokens},
           {with("tokens", "[[1]]"), no_tokens},
           {with("tokens", "[{}]"), no_tokens},
           {with("tokens", std::string(100'000, '[')), no_tokens},
       }) {
    const Read read(row.bytes);
    EXPECT_EQ(read.error.message(), "[read] bytes: " + row.sentence);
    EXPECT_TRUE(read.recording.layers.empty());
  }
}

}  // namespace
}  // namespace poise::test
