// The records of npy, zip and safetensors, written out.
//
// Sources: numpy.lib.format; APPNOTE.TXT 6.3 sections 4.3 to 4.5; RFC 1951 section 3.2.4.
#include "support/file_builder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace poise::test {
namespace {

// CRC-32 (ISO 3309), bit by bit.
std::uint32_t crc32_of(const std::string& content) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : content) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::string local_record(const ZipPart& part, int method, const std::string& data) {
  const std::string name = part.local_name.value_or(part.name);
  return "PK\x03\x04" + little_endian(20, 2) +
         little_endian(static_cast<std::uint64_t>(part.flags), 2) +
         little_endian(static_cast<std::uint64_t>(method), 2) + std::string(16, '\0') +
         little_endian(name.size(), 2) + little_endian(0, 2) + name + data;
}

std::string central_record(const ZipPart& part, int method, std::uint64_t stored,
                           std::uint64_t offset) {
  const std::uint64_t size = part.size.value_or(part.content.size());
  std::string extra;
  if (part.zip64)
    extra = little_endian(1, 2) + little_endian(24, 2) + little_endian(size, 8) +
            little_endian(stored, 8) + little_endian(offset, 8);
  const auto field = [&](std::uint64_t value) {
    return little_endian(part.zip64 ? 0xFFFFFFFFu : value, 4);
  };
  return "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) +
         little_endian(static_cast<std::uint64_t>(part.flags), 2) +
         little_endian(static_cast<std::uint64_t>(method), 2) + std::string(4, '\0') +
         little_endian(part.crc.value_or(crc32_of(part.content)), 4) + field(stored) + field(size) +
         little_endian(part.name.size(), 2) + little_endian(extra.size(), 2) +
         std::string(10, '\0') + field(offset) + part.name + extra;
}

}  // namespace

std::string little_endian(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i, value >>= 8) bytes += static_cast<char>(value & 0xFF);
  return bytes;
}

std::string npy_bytes(const std::string& dict, const std::string& data, int major) {
  return std::string("\x93NUMPY") + static_cast<char>(major) + '\0' +
         little_endian(dict.size(), major == 1 ? 2 : 4) + dict + data;
}

std::string npy_dict(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

std::string safetensors_bytes(const std::string& json, const std::string& data) {
  return little_endian(json.size(), 8) + json + data;
}

std::string stored_blocks(const std::string& content) {
  constexpr std::size_t kLongest = 65535;
  std::string stream;
  std::size_t at = 0;
  do {
    const std::string part = content.substr(at, kLongest);
    at += part.size();
    stream += at == content.size() ? '\x01' : '\x00';  // the last block is marked
    stream += little_endian(part.size(), 2) + little_endian(~part.size(), 2) + part;
  } while (at < content.size());
  return stream;
}

std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipEnd& end) {
  std::string bytes, directory;
  for (const ZipPart& part : parts) {
    bytes += part.gap;
    const int method = part.method.value_or(part.deflated ? 8 : 0);
    const std::string data =
        part.raw.value_or(part.deflated ? stored_blocks(part.content) : part.content);
    directory += central_record(part, method, part.stored.value_or(data.size()),
                                part.offset.value_or(bytes.size()));
    bytes += local_record(part, method, data);
  }
  bytes += end.gap;
  const std::uint64_t offset = bytes.size(), count = end.count.value_or(parts.size());
  const std::uint64_t size = end.directory_size.value_or(directory.size());
  bytes += directory;
  if (end.zip64) {
    const std::uint64_t at = bytes.size();
    bytes += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
             little_endian(0, 8) + little_endian(count, 8) + little_endian(count, 8) +
             little_endian(size, 8) + little_endian(offset, 8);
    bytes += "PK\x06\x07" + little_endian(0, 4) + little_endian(at, 8) + little_endian(1, 4);
  }
  const std::uint64_t short_count = end.zip64 ? 0xFFFF : count;
  return bytes + "PK\x05\x06" + little_endian(0, 4) + little_endian(short_count, 2) +
         little_endian(short_count, 2) + little_endian(end.zip64 ? 0xFFFFFFFFu : size, 4) +
         little_endian(end.zip64 ? 0xFFFFFFFFu : offset, 4) + little_endian(0, 2) + end.after;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace poise::test
