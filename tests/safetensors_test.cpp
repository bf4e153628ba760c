// safetensors: what the Python package writes is read, what poise writes comes back, anything else
// is one sentence.
//
// In: files of tests/io (written by the safetensors package), files built byte by byte.
// ctest-labels: unit fast
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/command_runner.h"
#include "support/file_builder.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

using Shape = std::vector<std::int64_t>;

// One tensor "a" of shape [2], F32, with these fields.
std::string one_tensor(const std::string& fields, std::size_t data_bytes = 8) {
  return safetensors_bytes("{\"a\":{" + fields + "}}", std::string(data_bytes, '\0'));
}

std::string field(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, every_dtype_that_the_package_writes_is_read) {
  io::File file;
  const Error error = io::open(fixture("all_types.safetensors"), &file);
  ASSERT_FALSE(error) << error.message();
  EXPECT_EQ(file.format(), io::Format::safetensors);
  EXPECT_EQ(file.entries().size(), 11u);
  EXPECT_EQ(file.metadata().at("made"), "by safetensors");
  struct Row {
    const char* name;
    DType dtype;
  };
  for (const Row& row : {Row{"f16", DType::f16}, Row{"bf16", DType::bf16}, Row{"f32", DType::f32},
                         Row{"f64", DType::f64}, Row{"bool", DType::boolean},
                         Row{"i32", DType::i32}, Row{"i64", DType::i64}}) {
    SCOPED_TRACE(row.name);
    ConstTensor tensor;
    ASSERT_FALSE(file.tensor(row.name, &tensor));
    EXPECT_EQ(tensor.dtype, row.dtype);
    EXPECT_EQ(file.find(row.name)->shape, (Shape{2, 3}));
    EXPECT_EQ(elements(tensor), counting(6, row.dtype));
  }
  ConstTensor scalar, tensor;
  ASSERT_FALSE(file.tensor("scalar", &scalar));
  EXPECT_EQ(scalar.rank, 0);
  EXPECT_TRUE(scalar.given());
  EXPECT_EQ(elements(scalar), std::vector<double>{7});
  const std::string source = "[read] " + fixture("all_types.safetensors") + ": ";
  EXPECT_EQ(file.tensor("u8", &tensor).message(),
            source + "tensor \"u8\" has dtype U8, which poise does not compute with");
  EXPECT_EQ(file.tensor("rank5", &tensor).message(),
            source + "tensor \"rank5\" has rank 5, at most 4 can be used");
  EXPECT_EQ(file.tensor("f8", &tensor).message(), source + "has no tensor \"f8\"");
}

TEST(Safetensors, tensors_are_views_into_the_file_and_not_copies) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("all_types.safetensors"), &file));
  for (const char* name : {"f64", "f32", "bf16", "bool"}) {
    const io::Entry* entry = file.find(name);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry->tensor->data) % 4096,
              static_cast<std::uintptr_t>(entry->begin))
        << name;
  }
}

TEST(Safetensors, a_file_without_tensors_is_legal) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("no_tensors.safetensors"), &file));
  EXPECT_TRUE(file.entries().empty());
}

TEST(Safetensors, a_tensor_that_is_misaligned_in_memory_is_copied) {
  const std::string data = "x" + little_endian(0x40400000, 4);
  for (const std::string pad : {"", " ", "  ", "   "}) {
    const Opened opened(safetensors_bytes("{" + field("b", "U8", "[1]", "[0,1]") + "," +
                                              field("a", "F32", "[1]", "[1,5]") + "}" + pad,
                                          data));
    ASSERT_FALSE(opened.error) << opened.error.message();
    const ConstTensor tensor = *opened.file.find("a")->tensor;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 4, 0u);
    EXPECT_EQ(elements(tensor), std::vector<double>{3});
  }
}

TEST(Safetensors, hostile_layouts_are_refused_with_one_sentence) {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets, std::size_t data_bytes = 8) {
    return safetensors_bytes("{" + field("a", dtype, shape, offsets) + "}",
                             std::string(data_bytes, '\0'));
  };
  const auto two = [](const std::string& a, const std::string& b) {
    return safetensors_bytes(
        "{" + field("a", "F32", "[2]", a) + "," + field("b", "F32", "[2]", b) + "}",
        std::string(16, '\0'));
  };
  const std::string good = one("F32", "[2]", "[0,8]");
  ASSERT_EQ(refusal(good), "");
  ASSERT_EQ(refusal(two("[8,16]", "[0,8]")), "");
  const std::string unknown = "is none of npy, npz and safetensors, going by its first bytes";
  expect_refusals({
      {"length cut", good.substr(0, 7), unknown},
      {"no header", good.substr(0, 8), unknown},
      {"header cut", good.substr(0, 20), "header length 54 is past the end, 12 bytes are left"},
      {"header past the end", little_endian(1000, 8) + good.substr(8),
       "header length 1000 is past the end, 62 bytes are left"},
      {"header above the format's bound", little_endian(100'000'001, 8) + good.substr(8),
       "header length 100000001 is above 100000000"},
      {"header length 2^64 - 1", little_endian(UINT64_MAX, 8) + good.substr(8),
       "header length 18446744073709551615 is above 100000000"},
      {"header length 0", little_endian(0, 8) + good.substr(8), "the header does not start with {"},
      {"header starts with a blank", safetensors_bytes(" {}", ""), unknown},
      {"data cut", good.substr(0, good.size() - 1),
       "tensor \"a\" has the data_offsets [0, 8], past the end of the 7 bytes of data: truncated"},
      {"trailing", good + "xy", "has 2 trailing bytes after its last tensor"},
      {"trailing without tensors", safetensors_bytes("{}", "x"),
       "has 1 trailing bytes after its last tensor"},
      {"overlap", two("[0,8]", "[4,12]"), "tensor \"b\" overlaps the tensor before it"},
      {"same bytes", two("[0,8]", "[0,8]"), "tensor \"b\" overlaps the tensor before it"},
      {"hole", two("[0,8]", "[9,17]").append("x"), "has a hole of 1 bytes before tensor \"b\""},
      {"hole at the start", one("F32", "[1]", "[4,8]"),
       "has a hole of 4 bytes before tensor \"a\""},
      {"backwards", one("F32", "[2]", "[8,0]"),
       "tensor \"a\" has the data_offsets [8, 0], which run backwards"},
      {"size", one("F32", "[3]", "[0,8]"),
       "tensor \"a\" of shape [3] and dtype F32 needs 12 bytes, its data_offsets [0, 8] hold 8"},
      {"not whole elements", one("F32", "[2]", "[0,7]", 7),
       "tensor \"a\" of shape [2] and dtype F32 needs 8 bytes, its data_offsets [0, 7] hold 7"},
      {"product overflow", one("F32", "[4294967296,4294967296]", "[0,8]"),
       "tensor \"a\": the product of shape [4294967296, 4294967296] and the element size does not "
       "fit int64"},
      {"overflow hidden by 0", one("F32", "[0,4294967296,4294967296]", "[0,0]", 0),
       "tensor \"a\": the product of shape [0, 4294967296, 4294967296] and the element size does "
       "not fit int64"},
  });
}

TEST(Safetensors, hostile_headers_are_refused_with_one_sentence) {
  const std::string dtype = "\"dtype\":\"F32\"", shape = "\"shape\":[2]",
                    offsets = "\"data_offsets\":[0,8]";
  const auto json = [](const std::string& text) {
    return safetensors_bytes(text, std::string(8, '\0'));
  };
  const auto with_shape = [&](const std::string& text) {
    return one_tensor(dtype + ",\"shape\":" + text + "," + offsets);
  };
  const auto with_dtype = [&](const std::string& text) {
    return one_tensor("\"dtype\":" + text + "," + shape + "," + offsets);
  };
  const std::string extents = ", expected integers from 0 to 2^63 - 1";
  std::string bomb = "{\"a\":{\"shape\":" + std::string(1'000'000, '[');
  std::string object_bomb = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) object_bomb += "{\"a\":";
  expect_refusals({
      {"no JSON", json("{hello}"), "the header is not JSON at its byte 2"},
      {"unclosed", json("{\"a\":{"), "the header is not JSON at its byte 7"},
      {"something after it", json("{}x"), "the header is not JSON at its byte 3"},
      {"NUL and something after it", json(std::string("{}\0x", 4)),
       "the header contains a NUL byte"},
      {"not UTF-8", json("{\"\xff\":{}}"), "the header is not UTF-8"},
      {"overlong UTF-8", json("{\"\xc0\xaf\":{}}"), "the header is not UTF-8"},
      {"surrogate in UTF-8", json("{\"\xed\xa0\x80\":{}}"), "the header is not UTF-8"},
      {"NUL in a name", json("{\"a\\u0000b\":{}}"), "the name \"a\\x00b\" contains a NUL byte"},
      {"comment", json("{/**/}"), "the header is not JSON at its byte 2"},
      {"name twice",
       json("{\"a\":{" + dtype + "," + shape + "," + offsets + "},\"a\":{" + dtype + "}}"),
       "has the name \"a\" twice"},
      {"name twice by escape", json("{\"__metadata__\":{},\"__metad\\u0061ta__\":{}}"),
       "has the name \"__metadata__\" twice"},
      {"key twice", one_tensor(dtype + "," + dtype), "tensor \"a\" has the key \"dtype\" twice"},
      {"unknown key", one_tensor(dtype + ",\"strides\":[1]"),
       "tensor \"a\" has the unknown key \"strides\""},
      {"no dtype", one_tensor(shape + "," + offsets), "tensor \"a\" lacks dtype"},
      {"no shape", one_tensor(dtype + "," + offsets), "tensor \"a\" lacks shape"},
      {"no offsets", one_tensor(dtype + "," + shape), "tensor \"a\" lacks data_offsets"},
      {"unknown dtype", with_dtype("\"F31\""), "tensor \"a\" has the unknown dtype \"F31\""},
      {"dtype of the wrong kind", with_dtype("32"),
       "dtype of tensor \"a\" is a number, expected a string"},
      {"dtype array", with_dtype("[]"), "dtype of tensor \"a\" is an array, expected a string"},
      {"dtype null", with_dtype("null"), "dtype of tensor \"a\" is null, expected a string"},
      {"dtype object", with_dtype("{}"), "dtype of tensor \"a\" is an object, expected a string"},
      {"negative", with_shape("[-2]"), "shape of tensor \"a\" holds -2" + extents},
      {"float", with_shape("[2.0]"), "shape of tensor \"a\" holds \"2.0\"" + extents},
      {"exponent", with_shape("[2e0]"), "shape of tensor \"a\" holds \"2e0\"" + extents},
      {"2^63", with_shape("[9223372036854775808]"),
       "shape of tensor \"a\" holds 9223372036854775808" + extents},
      {"2^64", with_shape("[18446744073709551616]"),
       "shape of tensor \"a\" holds \"18446744073709551616\"" + extents},
      {"text extent", with_shape("[\"2\"]"),
       "shape of tensor \"a\" holds a string, expected integers"},
      {"true extent", with_shape("[true]"),
       "shape of tensor \"a\" holds a boolean, expected integers"},
      {"nested shape", with_shape("[[2]]"),
       "shape of tensor \"a\" holds an array, expected integers"},
      {"number shape", with_shape("2"), "shape of tensor \"a\" is a number, expected an array"},
      {"one offset", one_tensor(dtype + "," + shape + ",\"data_offsets\":[0]"),
       "tensor \"a\" has 1 data_offsets, expected 2"},
      {"three offsets", one_tensor(dtype + "," + shape + ",\"data_offsets\":[0,8,8]"),
       "tensor \"a\" has 3 data_offsets, expected 2"},
      {"negative offset", one_tensor(dtype + "," + shape + ",\"data_offsets\":[-1,8]"),
       "data_offsets of tensor \"a\" holds -1" + extents},
      {"number for a tensor", json("{\"a\":1}"), "\"a\" is a number, expected an object"},
      {"array for a tensor", json("{\"a\":[]}"), "\"a\" is an array, expected an object"},
      {"metadata number", json("{\"__metadata__\":{\"x\":1}}"),
       "__metadata__ value of \"x\" is a number, expected a string"},
      {"metadata object", json("{\"__metadata__\":{\"x\":{}}}"),
       "__metadata__ value of \"x\" is an object, expected a string"},
      {"metadata key twice", json("{\"__metadata__\":{\"x\":\"\",\"x\":\"\"}}"),
       "__metadata__ has the key \"x\" twice"},
      {"array bomb", json(bomb), "shape of tensor \"a\" holds an array, expected integers"},
      {"object bomb", json(object_bomb), "tensor \"a\" has the unknown key \"a\""},
  });
}

TEST(Safetensors, written_tensors_come_back_aligned_whatever_their_order_and_strides) {
  const TemporaryFolder folder;
  const std::vector<float> floats = {0, 1, 2, 3, 4, 5};
  const std::vector<double> doubles = {0, 1, 2};
  const std::vector<f16> halves = {{0x0000}, {0x3C00}, {0x4000}};
  const std::vector<bf16> brains = {{0x0000}, {0x3F80}, {0x4000}};
  const bool flags[] = {false, true, false};
  const std::vector<std::int64_t> longs = {0, 1, 2};
  const std::vector<io::NamedTensor> tensors = {
      {"flags", view(flags, {3})},
      {"transposed", view(floats.data(), {3, 2}, {1, 3})},
      {"halves \"quoted\" \xc3\xa9", view(halves.data(), {3})},
      {"brains", view(brains.data(), {3})},
      {"doubles", view(doubles.data(), {1, 1, 1, 3})},
      {"longs", view(longs.data(), {3})},
      {"empty", view(floats.data(), {0, 2})},
  };
  const std::string path = folder.path("a.safetensors");
  const Error error = io::write_safetensors(path, tensors, {{"key", "value\n\"\xc3\xa9\""}});
  ASSERT_FALSE(error) << error.message();
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.safetensors"});
  io::File file;
  const Error reread = io::open(path, &file);
  ASSERT_FALSE(reread) << reread.message();
  EXPECT_EQ(file.metadata().at("key"), "value\n\"\xc3\xa9\"");
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const io::NamedTensor& written : tensors) {
    ConstTensor read;
    ASSERT_FALSE(file.tensor(written.name, &read)) << written.name;
    EXPECT_EQ(read.extents, written.tensor.extents) << written.name;
    EXPECT_EQ(elements(read), elements(written.tensor)) << written.name;
    EXPECT_EQ(file.find(written.name)->begin % size_bytes(read.dtype), 0) << written.name;
  }
}

TEST(Safetensors, a_refused_write_leaves_nothing_behind) {
  const TemporaryFolder folder;
  const float value = 1;
  const ConstTensor good = view(&value, {1});
  const std::string path = folder.path("a.safetensors"), who = "[write] " + path + ": ";
  const auto message = [&](const std::vector<io::NamedTensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    return io::write_safetensors(path, tensors, metadata).message();
  };
  EXPECT_EQ(message({{"", good}}), who + "a tensor cannot be called \"\"");
  EXPECT_EQ(message({{"__metadata__", good}}), who + "a tensor cannot be called \"__metadata__\"");
  EXPECT_EQ(message({{"a", good}, {"a", good}}), who + "two tensors are called \"a\"");
  EXPECT_EQ(message({{"\xff", good}}), who + "the name \"\\xff\" is not UTF-8");
  EXPECT_EQ(message({{std::string("a\0", 2), good}}),
            who + "the name \"a\\x00\" contains a NUL byte");
  EXPECT_EQ(message({{"a", good}}, {{"x", "\xff"}}), who + "metadata \"x\" is not UTF-8");
  EXPECT_EQ(message({{"a", view(static_cast<const float*>(nullptr), {1})}}),
            who + "tensor \"a\": data is null");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace poise::test
