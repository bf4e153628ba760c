// .npy: what NumPy writes is read, what poise writes comes back, anything else is one sentence.
//
// In: files of tests/io (written by NumPy), files built byte by byte. See also fuzz_smoke_test.
// ctest-labels: unit fast
#include "io/npy.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/command_runner.h"
#include "support/file_builder.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

using Shape = std::vector<std::int64_t>;

io::Entry only_entry(const io::File& file) {
  EXPECT_EQ(file.entries().size(), 1u);
  return file.entries().empty() ? io::Entry{} : file.entries().front();
}

TEST(Npy, every_dtype_and_version_that_numpy_writes_is_read) {
  struct Row {
    const char* name;
    DType dtype;
  };
  for (const Row& row :
       {Row{"f2.npy", DType::f16}, Row{"f4.npy", DType::f32}, Row{"f8.npy", DType::f64},
        Row{"b1.npy", DType::boolean}, Row{"i4.npy", DType::i32}, Row{"i8.npy", DType::i64},
        Row{"version2.npy", DType::f32}, Row{"version3.npy", DType::f32}}) {
    SCOPED_TRACE(row.name);
    io::File file;
    const Error error = io::open(fixture(row.name), &file);
    ASSERT_FALSE(error) << error.message();
    EXPECT_EQ(file.format(), io::Format::npy);
    const io::Entry entry = only_entry(file);
    EXPECT_EQ(entry.shape, (Shape{2, 3}));
    ASSERT_TRUE(entry.tensor);
    EXPECT_EQ(entry.tensor->dtype, row.dtype);
    EXPECT_EQ(elements(*entry.tensor), counting(6, row.dtype));
  }
}

TEST(Npy, fortran_order_becomes_strides) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("fortran.npy"), &file));
  const io::Entry entry = only_entry(file);
  ASSERT_TRUE(entry.tensor);
  EXPECT_EQ(entry.tensor->stride(0), 1);
  EXPECT_EQ(entry.tensor->stride(1), 2);
  EXPECT_EQ(entry.tensor->stride(2), 6);
  EXPECT_EQ(elements(*entry.tensor), counting(24));
}

TEST(Npy, scalars_empty_arrays_and_one_axis_are_read) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("scalar.npy"), &file));
  ASSERT_TRUE(only_entry(file).tensor);
  EXPECT_TRUE(only_entry(file).tensor->given());
  EXPECT_EQ(elements(*only_entry(file).tensor), std::vector<double>{7});
  ASSERT_FALSE(io::open(fixture("empty.npy"), &file));
  ASSERT_TRUE(only_entry(file).tensor);
  EXPECT_EQ(only_entry(file).shape, (Shape{0, 3}));
  EXPECT_TRUE(elements(*only_entry(file).tensor).empty());
  ASSERT_FALSE(io::open(fixture("one_axis.npy"), &file));
  EXPECT_EQ(elements(*only_entry(file).tensor), counting(5));
}

TEST(Npy, aligned_data_is_a_view_into_the_file_and_not_a_copy) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("f4.npy"), &file));
  const io::Entry entry = only_entry(file);
  EXPECT_EQ(entry.begin, 128);
  EXPECT_EQ(entry.end, 152);
  EXPECT_EQ(entry.size_bytes, 24);
  // The map starts on a page, so the offset in the file shows in the address.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.tensor->data) % 4096, 128u);
}

TEST(Npy, data_that_is_not_aligned_to_its_dtype_is_copied) {
  const std::string data = little_endian(0x40400000, 4);  // 3.0f
  for (std::size_t blanks = 0; blanks < 4; ++blanks) {
    const std::string dict = std::string(blanks, ' ') + npy_dict("<f4", "(1,)");
    const Opened opened(npy_bytes(dict, data));
    ASSERT_FALSE(opened.error) << opened.error.message();
    const ConstTensor tensor = *opened.file.entries().front().tensor;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 4, 0u);
    EXPECT_EQ(elements(tensor), std::vector<double>{3});
  }
}

TEST(Npy, what_poise_cannot_compute_with_is_listed_and_refused_by_name) {
  io::File file;
  ConstTensor tensor;
  ASSERT_FALSE(io::open(fixture("u2.npy"), &file));
  EXPECT_EQ(only_entry(file).dtype, "<u2");
  EXPECT_FALSE(only_entry(file).tensor);
  EXPECT_EQ(file.tensor("", &tensor).message(),
            "[read] " + fixture("u2.npy") +
                ": the array has dtype <u2, which poise does not compute with");
  ASSERT_FALSE(io::open(fixture("rank5.npy"), &file));
  EXPECT_EQ(only_entry(file).shape, (Shape{1, 2, 1, 3, 1}));
  EXPECT_EQ(file.tensor("", &tensor).message(),
            "[read] " + fixture("rank5.npy") + ": the array has rank 5, at most 4 can be used");
}

TEST(Npy, arrays_that_are_no_plain_little_endian_numbers_are_refused) {
  struct Row {
    const char* name;
    const char* sentence;
  };
  for (const Row& row :
       {Row{"big_endian.npy",
            "dtype \">f4\" is big-endian; save it again as little-endian, numpy: "
            "a.astype(a.dtype.newbyteorder('<'))"},
        Row{"objects.npy", "holds Python objects (dtype \"|O\"), which would have to be unpickled"},
        Row{"structured.npy", "dtype in the header is no string (structured array?)"},
        Row{"text.npy", "dtype \"<U2\" is no plain number type, such as <f4"}}) {
    io::File file;
    EXPECT_EQ(io::open(fixture(row.name), &file).message(),
              "[read] " + fixture(row.name) + ": " + row.sentence);
  }
}

TEST(Npy, hostile_files_are_refused_with_one_sentence) {
  const std::string dict = npy_dict("<f4", "(2,)"), data(8, 'x');
  const std::string good = npy_bytes(dict, data);
  const std::string no_dict = "the header is no dict as NumPy writes it";
  const std::string no_shape = "shape in the header is no tuple of integers from 0 to 2^63 - 1";
  ASSERT_EQ(refusal(good), "");
  const auto with_dict = [&](const std::string& text) { return npy_bytes(text, data); };
  const auto with_shape = [&](const std::string& text) {
    return npy_bytes(npy_dict("<f4", text), data);
  };
  std::string ranks = "(";
  for (int i = 0; i < 65; ++i) ranks += "1, ";
  expect_refusals({
      {"empty", "", "is empty"},
      {"magic only", good.substr(0, 6), "is truncated inside its preamble"},
      {"version cut", good.substr(0, 7), "is truncated inside its preamble"},
      {"length cut", good.substr(0, 9), "is truncated inside its preamble"},
      {"header cut", good.substr(0, 40), "header length 58 is past the end, 30 bytes are left"},
      {"data cut", good.substr(0, good.size() - 1),
       "shape [2] of <f4 needs 8 bytes, the file has 7: truncated"},
      {"trailing", good + "x", "shape [2] of <f4 needs 8 bytes, the file has 9: trailing bytes"},
      {"version 4", npy_bytes(dict, data, 4), "npy version 4.0 is none of 1.0, 2.0 and 3.0"},
      {"version 0", npy_bytes(dict, data, 0), "npy version 0.0 is none of 1.0, 2.0 and 3.0"},
      {"header past the end",
       std::string("\x93NUMPY\x01", 7) + '\0' + little_endian(60000, 2) + dict + data,
       "header length 60000 is past the end, 66 bytes are left"},
      {"header too large",
       std::string("\x93NUMPY\x02", 7) + '\0' + little_endian(0xFFFFFFFF, 4) + dict + data,
       "header length 4294967295 is above 65535"},
      {"no dict", with_dict("[]\n"), no_dict},
      {"unclosed dict", with_dict("{'descr': '<f4'"), no_dict},
      {"something after the dict", with_dict(dict + "x"), no_dict},
      {"no comma", with_dict("{'descr': '<f4' 'shape': (2,)}"), no_dict},
      {"escape", with_dict("{'de\\'scr': '<f4'}"), no_dict},
      {"key twice", with_dict("{'shape': (2,), 'shape': (2,)}"),
       "the header has the key \"shape\" twice"},
      {"unknown key", with_dict("{'shap': (2,)}"), "the header has the unknown key \"shap\""},
      {"lacking key", with_dict("{'descr': '<f4', 'shape': (2,)}"),
       "the header lacks the key \"fortran_order\""},
      {"order", with_dict("{'fortran_order': 1}"),
       "fortran_order in the header is neither True nor False"},
      {"dtype", npy_bytes(npy_dict("f4", "(2,)"), data),
       "dtype \"f4\" is no plain number type, such as <f4"},
      {"dtype of another size", npy_bytes(npy_dict("<f3", "(2,)"), data),
       "dtype \"<f3\" is no plain number type, such as <f4"},
      {"terminal escape in dtype", npy_bytes(npy_dict("\x1b[31m", "(2,)"), data),
       "dtype \"\\x1b[31m\" is no plain number type, such as <f4"},
      {"negative extent", with_shape("(-2,)"), no_shape},
      {"float extent", with_shape("(2.0,)"), no_shape},
      {"number, no tuple", with_shape("(2)"), no_shape},
      {"list", with_shape("[2]"), no_shape},
      {"comma only", with_shape("(,)"), no_shape},
      {"unclosed", with_shape("(2, "), no_shape},
      {"beyond int64", with_shape("(9223372036854775808,)"), no_shape},
      {"product overflow", with_shape("(4294967296, 4294967296)"),
       "the product of shape [4294967296, 4294967296] and the element size does not fit int64"},
      {"overflow hidden by 0", with_shape("(0, 4294967296, 4294967296)"),
       "the product of shape [0, 4294967296, 4294967296] and the element size does not fit int64"},
      {"deep tuple", with_shape(std::string(60000, '(')), no_shape},
      {"too many extents", with_shape(ranks + ")"), "shape in the header has more than 64 extents"},
  });
}

TEST(Npy, headers_in_other_spellings_that_numpy_accepts_are_read) {
  const std::string data(8, '\0');
  for (const char* dict : {"{\"shape\": (1L, 2L), \"descr\": \"<f4\", \"fortran_order\": True}",
                           "{ 'fortran_order' : False , 'descr' : '<f4' , 'shape' : (1, 2,) , }\n"})
    EXPECT_EQ(refusal(npy_bytes(dict, data)), "") << dict;
}

TEST(Npy, written_arrays_come_back_whatever_their_strides) {
  const TemporaryFolder folder;
  const std::vector<float> memory = {0, 1, 2, 3, 4, 5};
  const ConstTensor plain = view(memory.data(), {2, 3});
  const ConstTensor transposed = view(memory.data(), {3, 2}, {1, 3});
  const ConstTensor backwards = view(memory.data() + 5, {6}, {-1});
  const ConstTensor repeated = view(memory.data() + 1, {2, 2}, {0, 1});
  const ConstTensor empty = view(memory.data(), {3, 0});
  for (const ConstTensor& tensor : {plain, transposed, backwards, repeated, empty}) {
    const std::string path = folder.path("a.npy");
    const Error error = io::write_npy(path, tensor);
    ASSERT_FALSE(error) << error.message();
    io::File file;
    ASSERT_FALSE(io::open(path, &file));
    EXPECT_EQ(elements(*only_entry(file).tensor), elements(tensor));
    EXPECT_EQ(only_entry(file).begin % 64, 0);
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.npy"});
}

TEST(Npy, written_files_are_byte_for_byte_what_numpy_writes) {
  const TemporaryFolder folder;
  for (const char* name : {"f2.npy", "f4.npy", "f8.npy", "b1.npy", "i4.npy", "i8.npy", "scalar.npy",
                           "one_axis.npy", "empty.npy"}) {
    io::File file;
    ASSERT_FALSE(io::open(fixture(name), &file));
    const std::string path = folder.path(name);
    ASSERT_FALSE(io::write_npy(path, *only_entry(file).tensor));
    EXPECT_EQ(folder.read(name), read_bytes(fixture(name))) << name;
  }
}

TEST(Npy, a_refused_write_leaves_nothing_behind) {
  const TemporaryFolder folder;
  const float value = 1;
  const bf16 half{0x3F80};
  const std::string path = folder.path("a.npy");
  EXPECT_EQ(io::write_npy(path, view(&half, {1})).message(),
            "[write] " + path + ": array: npy has no dtype bf16");
  EXPECT_EQ(io::write_npy(path, view(&value, {-1})).message(),
            "[write] " + path + ": array: extent -1 of axis 0 is negative");
  EXPECT_EQ(io::write_npy(path, view(static_cast<const float*>(nullptr), {1})).message(),
            "[write] " + path + ": array: data is null");
  EXPECT_EQ(io::write_npy(path, view(&value, {INT64_MAX, 2})).message(),
            "[write] " + path + ": array: the product of its extents does not fit int64");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace poise::test
