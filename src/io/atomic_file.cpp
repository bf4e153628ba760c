// The temporary neighbour, its rename, its removal.
//
// The mode is 0666 less the umask, as for any new file (mkstemp's 0600 would surprise), so the
// unique name is made here: process id and a counter, created with O_EXCL.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace poise::io {

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  fd_ = -1;
  temporary_.clear();
}

Error AtomicFile::fail(const std::string& what) {
  const std::string reason = std::strerror(errno);
  discard();
  return {ErrorCode::bad_file, "[write] " + path_ + ": " + what + ": " + reason};
}

std::string behind_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as the kernel's
  std::error_code error;
  fs::path target = fs::absolute(path, error);
  for (int i = 0; !error && i < kMostLinks && fs::is_symlink(fs::symlink_status(target, error));
       ++i)
    target = target.parent_path() / fs::read_symlink(target, error);
  error.clear();
  target = fs::weakly_canonical(target, error);
  return error || target.empty() ? path : target.string();
}

Error AtomicFile::create(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  discard();
  path_ = path;
  std::error_code ignored;
  target_ = behind_links(path);
  const std::filesystem::file_status status = std::filesystem::status(target_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return {ErrorCode::bad_file, "[write] " + path + ": exists and is not a regular file"};
  std::string name;
  do {
    name = target_ + ".poise-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) return fail("cannot be created");
  temporary_ = name;
  return {};
}

Error AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Error AtomicFile::commit() {
  if (::fsync(fd_) != 0) return fail("cannot be flushed");
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) return fail("cannot be renamed");
  temporary_.clear();
  discard();
  return {};
}

Error write_file(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file;
  if (Error error = file.create(path)) return error;
  if (Error error = file.write(bytes)) return error;
  return file.commit();
}

}  // namespace poise::io
