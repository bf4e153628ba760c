// Run logs on the disk. In: paths and lines. Out: records, or a longer file. A log may be read
// while it is written: reading takes no lock, and a half-written last line is one that is cut off.
// Must not happen here: the form of a line.
#include "log_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "failure.h"
#include "io/message.h"

namespace poise::cli {
namespace {

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Failure cannot(const char* what, const std::string& path, int error_number) {
  return Failure(std::string("cannot ") + what + " '" + path + "': " + std::strerror(error_number));
}

// At most `limit` bytes from the front of a file.
std::string read_front(const std::string& path, std::size_t limit) {
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) throw cannot("read", path, errno);
  std::string bytes;
  char buffer[1 << 16];
  while (bytes.size() < limit) {
    const ssize_t count = read(file.get(), buffer, std::min(sizeof buffer, limit - bytes.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw cannot("read", path, errno);
    if (count == 0) break;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
  return bytes;
}

// A safetensors file begins with the length of its header, whose eighth byte is always 0.
bool begins_as_log(std::string_view front) {
  const std::size_t begin = front.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && front[begin] == '{' &&
         front.find('\0') == std::string_view::npos;
}

constexpr std::size_t kFront = 64, kChecked = std::size_t{1} << 20;  // bytes

}  // namespace

bool is_run_log(const std::string& path) {
  if (std::filesystem::path(path).extension() == ".jsonl") return true;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && begins_as_log(read_front(path, kFront));
}

RunLog read_run_logs(const std::vector<std::string>& paths) {
  RunLog log;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::error_code error;
      if (std::filesystem::equivalent(paths[i], paths[j], error))
        throw Failure("'" + paths[i] + "' is given twice; its records would count twice");
    }
    throw_if(log.add(read_front(paths[i], std::string::npos), paths[i]));
  }
  for (const std::string& sentence : log.cut_off())
    std::fprintf(stderr, "poise: %s\n", io::on_one_line(sentence).c_str());
  if (log.empty()) throw Failure("'" + paths.front() + "' holds no record of a run log");
  return log;
}

void check_run_log(const std::string& option, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (access(path.c_str(), R_OK | W_OK) != 0)
    throw Failure(option + ": cannot append to '" + path + "': " + std::strerror(errno));
  // What begins like JSON may be a report: the lines at the front must be records. A line that is
  // not finished may be, by a process that was killed.
  std::string front = read_front(path, kChecked);
  if (front.size() == kChecked) front.resize(std::min(front.rfind('\n'), kChecked - 1) + 1);
  RunLog records;
  if (front.find_first_not_of(" \t\r\n") != std::string::npos &&
      (!begins_as_log(front) || records.add(front, path)))
    throw Failure(option + ": '" + path + "' is not a run log and is not appended to");
}

void append_to_run_log(const std::string& option, const std::string& path,
                       const std::string& lines) {
  const auto fail = [&](int error_number) {
    return Failure(option + ": cannot append to '" + path + "': " + std::strerror(error_number));
  };
  const Descriptor file(path, O_RDWR | O_APPEND | O_CREAT);
  if (file.get() < 0) throw fail(errno);
  while (flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) throw fail(errno);
  char last = '\n';
  const off_t size = lseek(file.get(), 0, SEEK_END);  // -1 for a pipe, which has no last line
  if (size > 0 && pread(file.get(), &last, 1, size - 1) != 1) throw fail(errno);
  const std::string whole = last == '\n' ? lines : '\n' + lines;
  for (std::string_view rest = whole; !rest.empty();) {
    const ssize_t written = write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw fail(errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace poise::cli
