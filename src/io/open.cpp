// Telling the formats apart and calling the reader.
//
// npy starts with "\x93NUMPY", zip archives with "PK\x03\x04" (with "PK\x05\x06" when empty), and a
// safetensors header with "{" after its 8-byte length. Extensions are not looked at.
#include "io/open.h"

#include <algorithm>
#include <new>
#include <utility>

#include "io/message.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"

namespace poise::io {
namespace {

constexpr std::size_t kSafetensorsBrace = 8;

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](char c, std::byte b) { return static_cast<std::byte>(c) == b; });
}

Error parse(std::span<const std::byte> bytes, const std::string& source, Contents* contents) {
  if (bytes.empty()) return refuse(source, "is empty");
  if (starts_with(bytes, kNpyMagic)) return parse_npy(bytes, source, contents);
  if (starts_with(bytes, "PK\x03\x04") || starts_with(bytes, "PK\x05\x06"))
    return parse_npz(bytes, source, contents);
  if (bytes.size() > kSafetensorsBrace && bytes[kSafetensorsBrace] == std::byte{'{'})
    return parse_safetensors(bytes, source, contents);
  return refuse(source, "is none of npy, npz and safetensors, going by its first bytes");
}

}  // namespace

const Entry* File::find(std::string_view name) const {
  const auto it = std::find_if(entries().begin(), entries().end(),
                               [&](const Entry& entry) { return entry.name == name; });
  return it == entries().end() ? nullptr : &*it;
}

Error File::tensor(std::string_view name, ConstTensor* tensor) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return refuse(source_, "has no tensor " + in_quotes(name));
  return this->tensor(*entry, tensor);
}

Error File::tensor(const Entry& entry, ConstTensor* tensor) const {
  if (entry.tensor) {
    *tensor = *entry.tensor;
    return {};
  }
  const std::string which = entry.name.empty() ? "the array" : "tensor " + in_quotes(entry.name);
  if (entry.shape.size() > static_cast<std::size_t>(kMaxRank))
    return refuse(source_, which + " has rank " + std::to_string(entry.shape.size()) +
                               ", at most " + std::to_string(kMaxRank) + " can be used");
  return refuse(source_,
                which + " has dtype " + entry.dtype + ", which poise does not compute with");
}

Error open_memory(std::span<const std::byte> bytes, const std::string& label, File* file) {
  try {
    File opened;
    opened.source_ = label;
    opened.size_bytes_ = static_cast<std::int64_t>(bytes.size());
    if (Error error = parse(bytes, label, &opened.contents_)) return error;
    *file = std::move(opened);
    return {};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "[read] " + label + ": not enough memory to decode it"};
  }
}

Error open(const std::string& path, File* file) {
  MappedFile map;
  if (Error error = MappedFile::open(path, &map)) return error;
  if (Error error = open_memory(map.bytes(), path, file)) return error;
  file->map_ = std::move(map);
  return {};
}

}  // namespace poise::io
