// Files that appear together or not at all, checked standard output, colour and progress.
//
// In: finished bytes, tensors and paths. Out: files, standard output, standard error. poise_io
// writes each file whole; the step added here is that all files of a run are first written under a
// staging name beside their destination and renamed only when the last of them is on the disk.
// Must not happen here: anything about attention.
#include "output.h"

#include "failure.h"
#include "io/atomic_file.h"
#include "io/npy.h"

#include <fcntl.h>
#include <langinfo.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

namespace poise::cli {
namespace {

// Whether a descriptor is a terminal that obeys escape sequences.
bool obeys_escapes(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

// While it lives, SIGINT, SIGTERM and SIGHUP wait: their effect comes when it ends. Handlers are
// used rather than a signal mask because a mask would not cover the library's threads.
class InterruptsWait {
 public:
  InterruptsWait() {
    arrived_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int number) { arrived_ = number; };
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      // What the parent ignores (nohup) stays ignored.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~InterruptsWait() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    if (arrived_ != 0) raise(arrived_);
  }
  InterruptsWait(const InterruptsWait&) = delete;
  InterruptsWait& operator=(const InterruptsWait&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  static inline volatile sig_atomic_t arrived_ = 0;
  std::array<struct sigaction, kSignals.size()> before_{};
};

// Files under staging names; what has not been moved into place is removed.
class StagedFiles {
 public:
  StagedFiles() = default;
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;
  ~StagedFiles() {
    for (const Staged& file : files_) unlink(file.staging.c_str());
  }

  // The staging name for a destination: in its folder, and short, so that every name the file
  // system takes can be staged.
  const std::string& add(const std::string& destination) {
    const std::string name =
        ".poise-staged-" + std::to_string(getpid()) + '-' + std::to_string(files_.size());
    const auto staging = std::filesystem::path(destination).replace_filename(name);
    files_.push_back({staging.string(), destination});
    return files_.back().staging;
  }

  // Moves every file into place; false with errno set when the system refuses.
  bool move_all() {
    while (!files_.empty()) {
      const Staged& file = files_.back();
      if (rename(file.staging.c_str(), file.destination.c_str()) != 0) return false;
      files_.pop_back();
    }
    return true;
  }

 private:
  struct Staged {
    std::string staging, destination;
  };
  std::vector<Staged> files_;
};

// 0, or the errno of the write that failed.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

Failure cannot_write(const std::string& option, const std::string& path, int error_number) {
  return Failure(option + ": cannot write '" + path + "': " + std::strerror(error_number));
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat status_a {
  }, status_b{};
  return stat(a.c_str(), &status_a) == 0 && stat(b.c_str(), &status_b) == 0 &&
         status_a.st_dev == status_b.st_dev && status_a.st_ino == status_b.st_ino;
}

// A terminal, /dev/null, a pipe: written to, never replaced.
bool is_device(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

Error write_device(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const int error_number = fd < 0 ? errno : write_all(fd, text);
  if (fd >= 0) close(fd);
  if (error_number == 0 || error_number == EPIPE) return {};
  return {ErrorCode::bad_file, std::strerror(error_number)};
}

}  // namespace

void OutputFiles::protect(const std::string& input_path) { inputs_.push_back(input_path); }

void OutputFiles::check(const std::string& option, const std::string& path) {
  if (path.empty()) throw usage_failure(option + ": the file name is empty");
  struct stat status {};
  // A new file is what is usually wanted; names too long and folders that are files end here.
  if (stat(path.c_str(), &status) != 0 && errno != ENOENT) throw cannot_write(option, path, errno);
  if (S_ISDIR(status.st_mode)) throw Failure(option + ": '" + path + "' is a directory");
  for (const std::string& input : inputs_)
    if (same_file(path, input))
      throw Failure(option + ": '" + path + "' is an input of this run and is not overwritten");
  if (is_device(path)) return;
  for (const File& other : checked_)
    if (io::behind_links(other.path) == io::behind_links(path))
      throw usage_failure(option + ": '" + path + "' is also the file of " + other.option);
  const std::string folder = std::filesystem::path(io::behind_links(path)).parent_path().string();
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw cannot_write(option, path, errno);
  checked_.push_back({option, path, {}});
}

void OutputFiles::add_text(const std::string& option, const std::string& path, std::string text) {
  files_.push_back({option, path, [text = std::move(text)](const std::string& where) {
                      if (is_device(where)) return write_device(where, text);
                      return io::write_file(where, std::as_bytes(std::span(text)));
                    }});
}

void OutputFiles::add_npy(const std::string& option, const std::string& path,
                          const ConstTensor& tensor) {
  files_.push_back(
      {option, path, [tensor](const std::string& where) { return io::write_npy(where, tensor); }});
}

void OutputFiles::add_file(const std::string& option, const std::string& path,
                           std::function<Error(const std::string& path)> write) {
  files_.push_back({option, path, std::move(write)});
}

void OutputFiles::commit() {
  const InterruptsWait interrupts_wait;
  StagedFiles staged;
  for (const File& file : files_) {
    const std::string where =
        is_device(file.path) ? file.path : staged.add(io::behind_links(file.path));
    if (const Error error = file.write(where))
      throw Failure(file.option + ": cannot write '" + file.path + "': " + error.message());
  }
  if (!staged.move_all()) throw Failure(std::string("cannot move a file: ") + strerror(errno));
  files_.clear();
}

void prepare_process() {
  // Opened the wrong way round on purpose: reading from standard output or writing to standard
  // input still fails, as it would on the closed descriptor.
  for (const int fd : {0, 1, 2})
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF &&
        open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
      std::_Exit(kExitFailed);
  signal(SIGPIPE, SIG_IGN);
}

void print(std::string_view text) {
  const int error_number = write_all(STDOUT_FILENO, text);
  if (error_number != 0 && error_number != EPIPE)
    throw Failure(std::string("cannot write to standard output: ") + std::strerror(error_number));
}

bool use_colour(ColourChoice choice) {
  if (choice != ColourChoice::automatic) return choice == ColourChoice::always;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return obeys_escapes(STDOUT_FILENO);
}

int output_width() {
  constexpr int kDefaultColumns = 100;
  winsize size{};
  const bool known =
      isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

bool locale_is_utf8() {
  std::setlocale(LC_CTYPE, "");
  return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      terminal_(obeys_escapes(STDERR_FILENO)) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::advance() {
  ++done_;
  constexpr std::chrono::milliseconds kPatience{500};
  if (!terminal_ || std::chrono::steady_clock::now() - start_ < kPatience) return;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%s %lld of %lld", what_.c_str(), static_cast<long long>(done_),
               static_cast<long long>(total_));
  std::fflush(stderr);
}

}  // namespace poise::cli
