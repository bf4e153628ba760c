// Zip records by their offsets; every offset is checked against the file before it is followed.
//
// All numbers are little-endian. A 32-bit field of 0xffffffff (16-bit: 0xffff) says that the value
// is in the zip64 record; each is taken from there only then. The local header is used for its
// length and compared in what decides the reading: name, method, encryption.
#include "io/zip.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "io/message.h"

namespace poise::io {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50, kZip64EndMagic = 0x06064b50;
constexpr std::uint32_t kZip64LocatorMagic = 0x07064b50;
constexpr std::int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::int64_t kZip64LocatorBytes = 20, kZip64EndBytes = 56;
constexpr std::uint64_t kIn64 = 0xFFFFFFFF, kIn64Count = 0xFFFF;
constexpr std::uint64_t kZip64ExtraId = 1;
constexpr std::uint64_t kEncryptedFlag = 1, kDescriptorFlag = 8;
constexpr std::uint64_t kStored = 0, kDeflate = 8;

// Numbers and slices of the archive. Callers check contains() first.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  bool contains(std::int64_t at, std::int64_t length) const {
    return at >= 0 && length >= 0 && at <= size() && length <= size() - at;
  }
  std::span<const std::byte> slice(std::int64_t at, std::int64_t length) const {
    return bytes_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(length));
  }
  std::string text(std::int64_t at, std::int64_t length) const {
    const std::span<const std::byte> part = slice(at, length);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::uint64_t number(std::int64_t at, int width) const {
    std::uint64_t value = 0;
    for (int i = width; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint64_t>(bytes_[static_cast<std::size_t>(at + i)]);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  std::uint64_t count = 0, size = 0, offset = 0;
  std::int64_t end = 0;  // where the end records start
};

// The 64-bit values of one central record that its 32-bit fields point to, in the order of the
// specification. False when the extra field is malformed or lacks one of them.
bool read_zip64_extra(const Bytes& bytes, std::int64_t at, std::int64_t length,
                      std::initializer_list<std::uint64_t*> fields) {
  const auto wanted = [](const std::uint64_t* field) { return *field == kIn64; };
  if (std::none_of(fields.begin(), fields.end(), wanted)) return true;
  const std::int64_t end = at + length;
  while (end - at >= 4) {
    const std::uint64_t id = bytes.number(at, 2);
    std::int64_t left = static_cast<std::int64_t>(bytes.number(at + 2, 2));
    at += 4;
    if (left > end - at) return false;
    if (id != kZip64ExtraId) {
      at += left;
      continue;
    }
    for (std::uint64_t* field : fields) {
      if (!wanted(field)) continue;
      if (left < 8) return false;
      *field = bytes.number(at, 8);
      at += 8;
      left -= 8;
    }
    return true;
  }
  return false;
}

Error find_directory(const Bytes& bytes, const std::string& source, Directory* directory) {
  const std::int64_t at = bytes.size() - kEndBytes;
  if (at < 0 || bytes.number(at, 4) != kEndMagic || bytes.number(at + 20, 2) != 0)
    return refuse(source,
                  "the zip end record is not its last 22 bytes: truncated, or followed by "
                  "something");
  Directory found{bytes.number(at + 10, 2), bytes.number(at + 12, 4), bytes.number(at + 16, 4), at};
  std::uint64_t disks = bytes.number(at + 4, 4), count_here = bytes.number(at + 8, 2);
  const std::int64_t locator = at - kZip64LocatorBytes;
  if (locator >= 0 && bytes.number(locator, 4) == kZip64LocatorMagic) {
    const std::int64_t end64 = locator - kZip64EndBytes;
    if (end64 < 0 || bytes.number(locator + 8, 8) != static_cast<std::uint64_t>(end64) ||
        bytes.number(end64, 4) != kZip64EndMagic)
      return refuse(source, "the zip64 end record is not where its locator says");
    disks = bytes.number(end64 + 16, 8);
    count_here = bytes.number(end64 + 24, 8);
    found = {bytes.number(end64 + 32, 8), bytes.number(end64 + 40, 8), bytes.number(end64 + 48, 8),
             end64};
  } else if (found.count == kIn64Count || found.size == kIn64 || found.offset == kIn64) {
    return refuse(source, "its end record points to a zip64 record that is not there");
  }
  if (disks != 0 || count_here != found.count)
    return refuse(source, "is one part of an archive of several disks");
  const auto end = static_cast<std::uint64_t>(found.end);
  if (found.offset > end || found.size != end - found.offset)
    return refuse(source, "the zip directory (" + std::to_string(found.size) + " bytes at " +
                              std::to_string(found.offset) + ") does not end at its end record, " +
                              std::to_string(found.end));
  *directory = found;
  return {};
}

// A member and the part of the archive it occupies, local header to data.
struct Placed {
  ZipMember member;
  std::int64_t begin = 0, end = 0;
  bool descriptor = false;  // a data descriptor may follow
};

Error read_local(const Bytes& bytes, const std::string& source, std::uint64_t offset,
                 std::uint64_t compressed, std::uint64_t method, std::int64_t directory_at,
                 Placed* placed) {
  const std::string who = in_quotes(placed->member.name);
  const auto limit = static_cast<std::uint64_t>(directory_at);
  if (offset > limit || limit - offset < static_cast<std::uint64_t>(kLocalBytes))
    return refuse(source, "member " + who + " starts at " + std::to_string(offset) +
                              ", past the members' end " + std::to_string(limit));
  const auto at = static_cast<std::int64_t>(offset);
  const std::int64_t name_length = static_cast<std::int64_t>(bytes.number(at + 26, 2));
  const std::int64_t extra_length = static_cast<std::int64_t>(bytes.number(at + 28, 2));
  const std::int64_t data_at = at + kLocalBytes + name_length + extra_length;
  if (bytes.number(at, 4) != kLocalMagic || data_at > directory_at ||
      bytes.text(at + kLocalBytes, name_length) != placed->member.name ||
      bytes.number(at + 8, 2) != method || (bytes.number(at + 6, 2) & kEncryptedFlag) != 0)
    return refuse(source, "the local header of member " + who + " differs from the directory");
  if (compressed > static_cast<std::uint64_t>(directory_at - data_at))
    return refuse(source, "member " + who + " is truncated: " + std::to_string(compressed) +
                              " bytes claimed, " + std::to_string(directory_at - data_at) +
                              " are left");
  const auto length = static_cast<std::int64_t>(compressed);
  placed->member.begin = data_at;
  placed->member.data = bytes.slice(data_at, length);
  placed->begin = at;
  placed->end = data_at + length;
  return {};
}

// Reads the central record at *at and moves *at behind it.
Error read_central(const Bytes& bytes, const std::string& source, const Directory& directory,
                   std::int64_t* at, Placed* placed) {
  const std::int64_t left = directory.end - *at;
  if (left < kCentralBytes || bytes.number(*at, 4) != kCentralMagic)
    return refuse(source, "the zip directory is malformed at byte " + std::to_string(*at));
  const std::int64_t name_length = static_cast<std::int64_t>(bytes.number(*at + 28, 2));
  const std::int64_t extra_length = static_cast<std::int64_t>(bytes.number(*at + 30, 2));
  const std::int64_t comment_length = static_cast<std::int64_t>(bytes.number(*at + 32, 2));
  const std::int64_t length = kCentralBytes + name_length + extra_length + comment_length;
  if (left < length)
    return refuse(source, "the zip directory is malformed at byte " + std::to_string(*at));
  ZipMember& member = placed->member;
  member.name = bytes.text(*at + kCentralBytes, name_length);
  if (const std::string fault = name_fault(member.name); !fault.empty())
    return refuse(source, fault);
  const std::uint64_t flags = bytes.number(*at + 8, 2), method = bytes.number(*at + 10, 2);
  if ((flags & kEncryptedFlag) != 0)
    return refuse(source, "member " + in_quotes(member.name) + " is encrypted");
  if (method != kStored && method != kDeflate)
    return refuse(source, "member " + in_quotes(member.name) + " has compression method " +
                              std::to_string(method) + ", expected 0 (stored) or 8 (deflate)");
  std::uint64_t compressed = bytes.number(*at + 20, 4), size = bytes.number(*at + 24, 4);
  std::uint64_t offset = bytes.number(*at + 42, 4);
  if (!read_zip64_extra(bytes, *at + kCentralBytes + name_length, extra_length,
                        {&size, &compressed, &offset}))
    return refuse(source, "member " + in_quotes(member.name) + " lacks its zip64 sizes");
  if (size > static_cast<std::uint64_t>(INT64_MAX))
    return refuse(
        source, "member " + in_quotes(member.name) + " claims " + std::to_string(size) + " bytes");
  member.deflated = method == kDeflate;
  member.crc = static_cast<std::uint32_t>(bytes.number(*at + 16, 4));
  member.size_bytes = static_cast<std::int64_t>(size);
  placed->descriptor = (flags & kDescriptorFlag) != 0;
  const auto directory_at = static_cast<std::int64_t>(directory.offset);
  if (Error error = read_local(bytes, source, offset, compressed, method, directory_at, placed))
    return error;
  if (!member.deflated && compressed != size)
    return refuse(source, "stored member " + in_quotes(member.name) + " claims " +
                              std::to_string(size) + " bytes in " + std::to_string(compressed));
  *at += length;
  return {};
}

// Every byte before the directory belongs to exactly one member. After a member whose sizes were
// written behind it stands a descriptor: 3 or 4 fields of 4 bytes, two of them 8 in zip64.
Error check_cover(std::vector<const Placed*> order, std::int64_t directory_at,
                  const std::string& source) {
  std::sort(order.begin(), order.end(),
            [](const Placed* a, const Placed* b) { return a->begin < b->begin; });
  std::int64_t at = 0;
  bool descriptor = false;
  const auto check = [&](std::int64_t next, const std::string& who) {
    const std::int64_t gap = next - at;
    if (gap < 0) return refuse(source, who + " overlaps the member before it");
    const bool is_descriptor = gap == 12 || gap == 16 || gap == 20 || gap == 24;
    if (gap > 0 && !(descriptor && is_descriptor))
      return refuse(source, "has a hole of " + std::to_string(gap) + " bytes before " + who);
    return Error();
  };
  for (const Placed* placed : order) {
    if (Error error = check(placed->begin, "member " + in_quotes(placed->member.name)))
      return error;
    at = placed->end;
    descriptor = placed->descriptor;
  }
  return check(directory_at, "the zip directory");
}

}  // namespace

Error read_zip_directory(std::span<const std::byte> archive, const std::string& source,
                         std::vector<ZipMember>* members) {
  const Bytes bytes(archive);
  Directory directory;
  if (Error error = find_directory(bytes, source, &directory)) return error;
  std::vector<Placed> placed;
  std::set<std::string> names;
  const auto directory_at = static_cast<std::int64_t>(directory.offset);
  for (std::int64_t at = directory_at; at < directory.end;) {
    Placed& next = placed.emplace_back();
    if (Error error = read_central(bytes, source, directory, &at, &next)) return error;
    if (!names.insert(next.member.name).second)
      return refuse(source, "has two members called " + in_quotes(next.member.name));
  }
  if (placed.size() != directory.count)
    return refuse(source, "the zip directory has " + std::to_string(placed.size()) +
                              " members, its end record says " + std::to_string(directory.count));
  std::vector<const Placed*> order;
  for (const Placed& p : placed) order.push_back(&p);
  if (Error error = check_cover(std::move(order), directory_at, source)) return error;
  for (Placed& p : placed) members->push_back(std::move(p.member));
  return {};
}

}  // namespace poise::io
