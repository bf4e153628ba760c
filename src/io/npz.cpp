// From zip members to arrays.
//
// A deflated member is decoded twice: once as far as an npy header can reach, to learn the size
// that the array must have, and once whole, into a buffer of exactly that size.
#include "io/npz.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "io/message.h"
#include "io/npy.h"
#include "io/npy_header.h"
#include "io/zip.h"

namespace poise::io {
namespace {

constexpr std::string_view kSuffix = ".npy";

// Checks, without allocating it, that the member's npy header asks for the size the directory
// claims.
Error check_size(const ZipMember& member, const std::string& source) {
  const auto stored = static_cast<std::int64_t>(member.data.size());
  if (member.size_bytes / kMaxInflation > stored)
    return refuse(source, "claims " + std::to_string(member.size_bytes) + " bytes, more than " +
                              std::to_string(stored) + " deflated bytes can hold");
  std::vector<std::byte> prefix(
      static_cast<std::size_t>(std::min(member.size_bytes, kNpyPreamble + kMaxNpyHeader)));
  if (!inflate_prefix(member, prefix)) return refuse(source, "its deflate stream is corrupt");
  NpyHeader header;
  if (Error error = parse_npy_header(prefix, source, &header)) return error;
  // Both sides are below 2^63 and the offset below 2^17: compare without adding.
  if (header.data_bytes != member.size_bytes - header.data_offset)
    return refuse(source, "shape " + shape_text(header.shape) + " of " + header.descr + " needs " +
                              std::to_string(header.data_bytes) + " bytes, the archive claims " +
                              std::to_string(member.size_bytes - header.data_offset));
  return {};
}

Error add_member(const ZipMember& member, const std::string& archive, Contents* contents) {
  const std::string source = archive + ": member " + in_quotes(member.name);
  if (!std::string_view(member.name).ends_with(kSuffix))
    return refuse(source, "is no array, its name does not end in .npy");
  std::span<const std::byte> bytes = member.data;
  Contents one;
  if (member.deflated) {
    if (Error error = check_size(member, source)) return error;
    std::vector<std::byte>& decoded =
        one.buffers.emplace_back(static_cast<std::size_t>(member.size_bytes));
    if (!inflate_member(member, decoded)) return refuse(source, "its deflate stream is corrupt");
    bytes = decoded;
  }
  if (zip_crc(bytes) != member.crc) return refuse(source, "its checksum is wrong");
  if (Error error = parse_npy(bytes, source, &one)) return error;

  Entry& entry = one.entries.front();
  entry.name = member.name.substr(0, member.name.size() - kSuffix.size());
  entry.deflated = member.deflated;
  entry.begin = member.begin + (member.deflated ? 0 : entry.begin);
  entry.end = member.begin + static_cast<std::int64_t>(member.data.size());
  contents->entries.push_back(std::move(entry));
  for (std::vector<std::byte>& buffer : one.buffers) contents->buffers.push_back(std::move(buffer));
  return {};
}

}  // namespace

Error parse_npz(std::span<const std::byte> bytes, const std::string& source, Contents* contents) {
  std::vector<ZipMember> members;
  if (Error error = read_zip_directory(bytes, source, &members)) return error;
  contents->format = Format::npz;
  for (const ZipMember& member : members)
    if (Error error = add_member(member, source, contents)) return error;
  return {};
}

}  // namespace poise::io
