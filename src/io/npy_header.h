// The header of a .npy file: magic, version, and a Python dict literal.
//
// In: bytes that start a .npy file (more may follow). Out: dtype, order, shape, where the data
// starts and how long it must be. The literal is read by a small grammar of exactly what NumPy
// writes; nothing is evaluated. The data itself is not looked at, so npz can ask for the header of
// a member that is still compressed.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/contents.h"

namespace poise::io {

// The longest header accepted, and the longest a version 1 file can have. NumPy itself refuses
// headers above 10 000 bytes unless told otherwise.
inline constexpr std::int64_t kMaxNpyHeader = 65535;
// Magic, version and the 4-byte length of versions 2 and 3; version 1 has 2 bytes less.
inline constexpr std::int64_t kNpyPreamble = 12;

struct NpyHeader {
  std::string descr;  // "<f4"
  StoredType type{};
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t data_offset = 0;  // from the start of the file
  std::int64_t data_bytes = 0;
};

// Errors: bad_file, the sentence starts with "[read] <source>: ".
Error parse_npy_header(std::span<const std::byte> bytes, const std::string& source,
                       NpyHeader* header);

}  // namespace poise::io
