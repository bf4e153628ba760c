// Writing a file so that it is there whole or not at all.
//
// Bytes go to a temporary neighbour (<name>.poise-<pid>-<n>), which commit() renames over the
// target; an AtomicFile that dies before commit() removes it. Used for every file poise writes.
// What must not happen here: a half-written target, a left-over temporary, a device replaced.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <span>
#include <string>

namespace poise::io {

// The file that a path leads to, whether or not it is there yet: where a rename must go so that a
// symbolic link stays one. The path itself where that cannot be told.
std::string behind_links(const std::string& path);

class AtomicFile {
 public:
  AtomicFile() = default;
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Creates the temporary beside `path` (a symbolic link is followed). Errors, all bad_file with
  // the path and the system's reason: the target exists and is no regular file, the folder is
  // missing or not writable.
  Error create(const std::string& path);
  // Appends. Errors: bad_file (disk full, ...).
  Error write(std::span<const std::byte> bytes);
  // Flushes to the disk and renames over the target. Errors: bad_file; the target is then as
  // before.
  Error commit();

 private:
  Error fail(const std::string& what);
  void discard();

  std::string path_, target_, temporary_;
  int fd_ = -1;
};

// The whole of create, write, commit.
Error write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace poise::io
