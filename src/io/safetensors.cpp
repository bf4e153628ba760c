// The layout of a safetensors file: 8-byte header length, header, data.
//
// Reading: ranges are sorted and must follow one another without gap from 0 to the end of the file.
// Writing: the same rules from the other side, through AtomicFile.
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "io/atomic_file.h"
#include "io/elements.h"
#include "io/message.h"
#include "io/safetensors_header.h"

namespace poise::io {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDataAlignment = 8;  // the widest dtype

std::uint64_t header_length(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return length;
}

std::array<std::byte, kLengthBytes> length_bytes(std::uint64_t length) {
  std::array<std::byte, kLengthBytes> bytes;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(length & 0xFF);
    length >>= 8;
  }
  return bytes;
}

// Sorts the tensors by their data and checks that they cover it exactly.
Error check_cover(std::vector<DescribedTensor>* tensors, std::int64_t data_bytes,
                  const std::string& source) {
  std::stable_sort(tensors->begin(), tensors->end(),
                   [](const DescribedTensor& a, const DescribedTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  std::int64_t at = 0;
  for (const DescribedTensor& tensor : *tensors) {
    const std::string who = "tensor " + in_quotes(tensor.name);
    const std::string range =
        "[" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + "]";
    if (tensor.begin > tensor.end)
      return refuse(source, who + " has the data_offsets " + range + ", which run backwards");
    if (tensor.end > data_bytes)
      return refuse(source, who + " has the data_offsets " + range + ", past the end of the " +
                                std::to_string(data_bytes) + " bytes of data: truncated");
    const std::optional<std::int64_t> size = array_bytes(tensor.shape, tensor.type.size_bytes);
    if (!size)
      return refuse(source, who + ": the product of shape " + shape_text(tensor.shape) +
                                " and the element size does not fit int64");
    if (*size != tensor.end - tensor.begin)
      return refuse(source, who + " of shape " + shape_text(tensor.shape) + " and dtype " +
                                tensor.type.spelling + " needs " + std::to_string(*size) +
                                " bytes, its data_offsets " + range + " hold " +
                                std::to_string(tensor.end - tensor.begin));
    if (tensor.begin < at) return refuse(source, who + " overlaps the tensor before it");
    if (tensor.begin > at)
      return refuse(source,
                    "has a hole of " + std::to_string(tensor.begin - at) + " bytes before " + who);
    at = tensor.end;
  }
  if (at != data_bytes)
    return refuse(
        source, "has " + std::to_string(data_bytes - at) + " trailing bytes after its last tensor");
  return {};
}

Error check_names(const std::string& path, const std::vector<NamedTensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  const auto bad = [&](const std::string& why) {
    return Error(ErrorCode::bad_value, "[write] " + path + ": " + why);
  };
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__")
      return bad("a tensor cannot be called " + in_quotes(tensor.name));
    if (const std::string fault = name_fault(tensor.name); !fault.empty()) return bad(fault);
    if (!names.insert(tensor.name).second)
      return bad("two tensors are called " + in_quotes(tensor.name));
  }
  for (const auto& [key, value] : metadata)
    if (!is_utf8(key) || !is_utf8(value))
      return bad("metadata " + in_quotes(key) + " is not UTF-8");
  return {};
}

}  // namespace

Error list_safetensors(std::span<const std::byte> bytes, const std::string& source,
                       std::vector<ListedTensor>* tensors,
                       std::map<std::string, std::string>* metadata) {
  if (bytes.size() < kLengthBytes) return refuse(source, "is truncated inside the header length");
  const std::uint64_t length = header_length(bytes);
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader))
    return refuse(source, "header length " + std::to_string(length) + " is above " +
                              std::to_string(kMaxSafetensorsHeader));
  const std::span<const std::byte> rest = bytes.subspan(kLengthBytes);
  if (length > rest.size())
    return refuse(source, "header length " + std::to_string(length) + " is past the end, " +
                              std::to_string(rest.size()) + " bytes are left");
  const auto header_bytes = static_cast<std::size_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  if (!text.starts_with('{')) return refuse(source, "the header does not start with {");
  SafetensorsHeader header;
  if (Error error = parse_safetensors_header(text, source, &header)) return error;
  const std::span<const std::byte> data = rest.subspan(header_bytes);
  if (Error error = check_cover(&header.tensors, static_cast<std::int64_t>(data.size()), source))
    return error;

  *metadata = std::move(header.metadata);
  const auto data_at = static_cast<std::int64_t>(kLengthBytes + header_bytes);
  for (DescribedTensor& tensor : header.tensors) {
    Entry entry;
    entry.name = std::move(tensor.name);
    entry.dtype = tensor.type.spelling;
    entry.shape = std::move(tensor.shape);
    entry.size_bytes = tensor.end - tensor.begin;
    entry.begin = data_at + tensor.begin;
    entry.end = data_at + tensor.end;
    tensors->push_back({std::move(entry), tensor.type.dtype});
  }
  return {};
}

Error parse_safetensors(std::span<const std::byte> bytes, const std::string& source,
                        Contents* contents) {
  std::vector<ListedTensor> tensors;
  if (Error error = list_safetensors(bytes, source, &tensors, &contents->metadata)) return error;
  contents->format = Format::safetensors;
  for (ListedTensor& tensor : tensors) {
    const std::span<const std::byte> elements =
        bytes.subspan(static_cast<std::size_t>(tensor.entry.begin),
                      static_cast<std::size_t>(tensor.entry.size_bytes));
    add_entry(std::move(tensor.entry), tensor.dtype, false, elements, contents);
  }
  return {};
}

Error write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  if (Error error = check_names(path, tensors, metadata)) return error;
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::int64_t size_a = size_bytes(a->tensor.dtype), size_b = size_bytes(b->tensor.dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });

  std::vector<std::vector<std::byte>> data;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const NamedTensor* named : order) {
    const ConstTensor& tensor = named->tensor;
    const std::string who = "[write] " + path + ": tensor " + in_quotes(named->name);
    if (Error error = pack(tensor, who, &data.emplace_back())) return error;
    const std::size_t end = at + data.back().size();
    nlohmann::ordered_json& entry = header[named->name];
    entry["dtype"] = safetensors_spelling(tensor.dtype);
    entry["shape"] =
        std::vector<std::int64_t>(tensor.extents.begin(), tensor.extents.begin() + tensor.rank);
    entry["data_offsets"] = {at, end};
    at = end;
  }
  std::string text = header.dump();
  text.append((kDataAlignment - text.size() % kDataAlignment) % kDataAlignment, ' ');

  AtomicFile file;
  if (Error error = file.create(path)) return error;
  if (Error error = file.write(length_bytes(text.size()))) return error;
  if (Error error = file.write(std::as_bytes(std::span(text)))) return error;
  for (const std::vector<std::byte>& elements : data)
    if (Error error = file.write(elements)) return error;
  return file.commit();
}

}  // namespace poise::io
