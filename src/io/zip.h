// The directory of a zip archive, checked, and the decoding of its members.
//
// In: the bytes of an archive. Out: members with name, checksum, sizes and their compressed bytes.
// The central directory must end the file and account for every byte before it: members may not
// overlap (the trick of quadratic zip bombs), leave holes, or repeat a name. Zip64 is read; archive
// comments, several disks, encryption and methods other than stored and deflate are refused.
// Source: APPNOTE.TXT 6.3, sections 4.3 to 4.5.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace poise::io {

struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc = 0;
  std::int64_t size_bytes = 0;      // decoded, as the directory claims
  std::int64_t begin = 0;           // of `data` in the archive
  std::span<const std::byte> data;  // as stored
};

// Members in the order of the central directory. Errors: bad_file, the sentence starts with
// "[read] <source>: ".
Error read_zip_directory(std::span<const std::byte> bytes, const std::string& source,
                         std::vector<ZipMember>* members);

// Decodes the first out.size() bytes of a deflated member. False when the stream is corrupt or
// shorter. Memory: zlib's window (about 40 KiB) only.
bool inflate_prefix(const ZipMember& member, std::span<std::byte> out);

// Decodes a whole deflated member; out.size() must be its size_bytes. False when the stream is
// corrupt, decodes to another length, or does not end where the member does.
bool inflate_member(const ZipMember& member, std::span<std::byte> out);

// The CRC-32 that zip uses.
std::uint32_t zip_crc(std::span<const std::byte> bytes);

}  // namespace poise::io
