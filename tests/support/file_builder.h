// Tensor files built byte by byte, right ones and wrong ones.
//
// In: the parts of a file, each of which a test may falsify. Out: the bytes, as a std::string. The
// readers under test take no part in it: checksums and deflate blocks are made here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace poise::test {

// `value` as `width` little-endian bytes.
std::string little_endian(std::uint64_t value, int width);

// A .npy file: preamble of that version, the dict as given, the data as given.
std::string npy_bytes(const std::string& dict, const std::string& data, int major = 1);

// "{'descr': '<descr>', 'fortran_order': False, 'shape': <shape>, }\n".
std::string npy_dict(const std::string& descr, const std::string& shape);

// A safetensors file: 8-byte length, the JSON as given, the data as given.
std::string safetensors_bytes(const std::string& json, const std::string& data);

// What a zip member says of itself; an absent value is the true one.
struct ZipPart {
  std::string name;
  std::string content;
  bool deflated = false;  // as stored_blocks() of it
  std::string gap = {};   // bytes before the local header that belong to no member
  std::optional<std::string> local_name = {};
  std::optional<std::string> raw = {};  // the data as stored, in place of the encoded content
  std::optional<std::uint32_t> crc = {};
  std::optional<std::uint64_t> size = {};    // decoded
  std::optional<std::uint64_t> stored = {};  // compressed
  std::optional<std::uint64_t> offset = {};  // of the local header
  std::optional<int> method = {};
  int flags = 0;
  bool zip64 = false;  // sizes and offset in the zip64 extra field
};

struct ZipEnd {
  std::string gap = {};  // bytes between the last member and the directory
  std::optional<std::uint64_t> count = {}, directory_size = {};
  bool zip64 = false;  // an end record that points to a zip64 record
  std::string after = {};
};

std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipEnd& end = {});

// Content as a raw deflate stream of blocks of kind "stored": valid, and longer than the content.
std::string stored_blocks(const std::string& content);

// The whole file; fails the test when it cannot be read.
std::string read_bytes(const std::string& path);

}  // namespace poise::test
