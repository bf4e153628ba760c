// One array: header, then exactly the bytes its shape asks for.
//
// Written files follow NumPy's own habit: version 1, the header padded with blanks so that the data
// starts at a multiple of 64 and ends in a newline.
#include "io/npy.h"

#include <string_view>
#include <utility>
#include <vector>

#include "io/atomic_file.h"
#include "io/elements.h"
#include "io/message.h"
#include "io/npy_header.h"

namespace poise::io {
namespace {

constexpr std::size_t kDataAlignment = 64;  // numpy.lib.format.ARRAY_ALIGN

// nullptr for bf16.
const char* npy_descr(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "<f2";
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::boolean:
      return "|b1";
    case DType::i32:
      return "<i4";
    case DType::i64:
      return "<i8";
    case DType::bf16:
      break;
  }
  return nullptr;
}

std::string header_bytes(const ConstTensor& tensor, const char* descr) {
  std::string dict = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (axis > 0) dict += ", ";
    dict += std::to_string(tensor.extent(axis));
  }
  dict += tensor.rank == 1 ? ",), }" : "), }";
  const std::size_t preamble = kNpyMagic.size() + 2 + 2;  // magic, version, length of 2 bytes
  const std::size_t unpadded = preamble + dict.size() + 1;
  dict.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  dict += '\n';
  std::string header(kNpyMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace

Error parse_npy(std::span<const std::byte> bytes, const std::string& source, Contents* contents) {
  NpyHeader header;
  if (Error error = parse_npy_header(bytes, source, &header)) return error;
  const std::int64_t left = static_cast<std::int64_t>(bytes.size()) - header.data_offset;
  if (left != header.data_bytes)
    return refuse(source, "shape " + shape_text(header.shape) + " of " + header.descr + " needs " +
                              std::to_string(header.data_bytes) + " bytes, the file has " +
                              std::to_string(left) +
                              (left < header.data_bytes ? ": truncated" : ": trailing bytes"));
  contents->format = Format::npy;
  Entry entry;
  entry.dtype = header.descr;
  entry.shape = header.shape;
  entry.size_bytes = header.data_bytes;
  entry.begin = header.data_offset;
  entry.end = header.data_offset + header.data_bytes;
  add_entry(std::move(entry), header.type.dtype, header.fortran_order,
            bytes.subspan(static_cast<std::size_t>(header.data_offset)), contents);
  return {};
}

Error write_npy(const std::string& path, const ConstTensor& tensor) {
  const char* descr = npy_descr(tensor.dtype);
  const std::string who = "[write] " + path + ": array";
  if (descr == nullptr)
    return {ErrorCode::bad_dtype, who + ": npy has no dtype " + name(tensor.dtype)};
  std::vector<std::byte> packed;
  if (Error error = pack(tensor, who, &packed)) return error;
  const std::string header = header_bytes(tensor, descr);
  AtomicFile file;
  if (Error error = file.create(path)) return error;
  if (Error error = file.write(std::as_bytes(std::span(header)))) return error;
  if (Error error = file.write(packed)) return error;
  return file.commit();
}

}  // namespace poise::io
