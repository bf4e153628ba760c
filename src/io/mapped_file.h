// A file's bytes as read-only memory, without reading them.
//
// In: a path to a regular file. Out: a span that lives as long as the object. Pipes, devices and
// directories are refused, never waited for. A file that another program shortens while it is
// mapped makes the kernel raise SIGBUS on access: replace files by rename, as poise does.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <span>
#include <string>

namespace poise::io {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Maps the file. Errors: bad_file, with the path and the system's reason. Cost: no read; pages
  // come in when they are touched.
  static Error open(const std::string& path, MappedFile* file);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace poise::io
