// Opening built files and looking at tensors, for the tests of src/io.
//
// In: bytes or the name of a file in tests/io. Out: an open File or its refusal; elements as
// doubles. Header-only, so that the support library does not depend on poise_io.
#pragma once

#include <gtest/gtest.h>
#include <poise/tensor.h>

#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "io/elements.h"
#include "io/open.h"

namespace poise::test {

// A File on bytes in memory, which it keeps.
struct Opened {
  explicit Opened(std::string content) : bytes(std::move(content)) {
    error = io::open_memory(std::as_bytes(std::span(bytes)), "bytes", &file);
  }
  std::string bytes;
  io::File file;
  Error error;
};

// The sentence that refuses the bytes, without its "[read] bytes: "; empty when they are accepted.
inline std::string refusal(const std::string& bytes) {
  const Opened opened(bytes);
  if (!opened.error) return {};
  EXPECT_EQ(opened.error.code(), ErrorCode::bad_file);
  const std::string prefix = "[read] bytes: ";
  EXPECT_EQ(opened.error.message().substr(0, prefix.size()), prefix);
  return opened.error.message().substr(prefix.size());
}

struct Refused {
  std::string kind;
  std::string bytes;
  std::string sentence;
};

inline void expect_refusals(const std::vector<Refused>& table) {
  for (const Refused& row : table) EXPECT_EQ(refusal(row.bytes), row.sentence) << row.kind;
}

inline std::string fixture(const std::string& name) {
  return std::string(POISE_SOURCE_DIR) + "/tests/io/" + name;
}

template <class T>
std::vector<double> packed_as(const std::vector<std::byte>& packed) {
  std::vector<double> values;
  for (std::size_t at = 0; at < packed.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, packed.data() + at, sizeof(T));
    values.push_back(static_cast<double>(value));
  }
  return values;
}

// The elements in row-major order.
inline std::vector<double> elements(const ConstTensor& tensor) {
  std::vector<std::byte> packed;
  const Error error = io::pack(tensor, "tensor", &packed);
  EXPECT_FALSE(error) << error.message();
  switch (tensor.dtype) {
    case DType::f64:
      return packed_as<double>(packed);
    case DType::i32:
      return packed_as<std::int32_t>(packed);
    case DType::i64:
      return packed_as<std::int64_t>(packed);
    case DType::boolean:
      return packed_as<std::uint8_t>(packed);
    case DType::f16:
    case DType::bf16:
    case DType::f32:
      break;
  }
  std::vector<float> widened;
  const Error widen_error = io::widen(tensor, &widened);
  EXPECT_FALSE(widen_error) << widen_error.message();
  return {widened.begin(), widened.end()};
}

// 0, 1, 2, ...; for booleans i odd.
inline std::vector<double> counting(std::size_t count, DType dtype = DType::f32) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  if (dtype == DType::boolean)
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i % 2);
  return values;
}

}  // namespace poise::test
