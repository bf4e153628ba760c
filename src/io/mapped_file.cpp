// mmap behind MappedFile.
//
// The file is opened without blocking, so that a FIFO without a writer is refused instead of
// hanging the caller. An empty file has no mapping (mmap refuses length 0) and an empty span.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/message.h"

namespace poise::io {
namespace {

// An open file descriptor, closed on every way out.
class Descriptor {
 public:
  explicit Descriptor(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Error MappedFile::open(const std::string& path, MappedFile* file) {
  const Descriptor descriptor(path.c_str());
  struct stat status {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &status) != 0)
    return refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse(path, "is not a regular file");
  MappedFile mapped;
  if (status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
    if (address == MAP_FAILED)
      return refuse(path, std::string("cannot be mapped: ") + std::strerror(errno));
    mapped.data_ = static_cast<const std::byte*>(address);
    mapped.size_ = size;
  }
  *file = std::move(mapped);
  return {};
}

}  // namespace poise::io
