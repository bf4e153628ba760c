// Processes with chosen standard streams, and temporary folders.
//
// In: a CommandSetup. Out: a CommandResult. Both streams are read until the program ends, so that a
// talkative program cannot block on a full pipe.
#include "support/command_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace poise::test {
namespace {

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

// Reads both descriptors to their ends; -1 = none.
void drain(std::array<int, 2> descriptors, std::array<std::string*, 2> texts) {
  while (descriptors[0] >= 0 || descriptors[1] >= 0) {
    std::array<pollfd, 2> waiting{{{descriptors[0], POLLIN, 0}, {descriptors[1], POLLIN, 0}}};
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (descriptors[i] < 0 || waiting[i].revents == 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t count = read(descriptors[i], bytes.data(), bytes.size());
      if (count > 0) {
        texts[i]->append(bytes.data(), static_cast<std::size_t>(count));
      } else if (count == 0 || errno != EINTR) {  // a terminal reports its end as EIO
        close(descriptors[i]);
        descriptors[i] = -1;
      }
    }
  }
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const CommandSetup& setup) {
  clearenv();
  setenv("PATH", "/usr/bin:/bin", 1);
  for (const auto& [name, value] : setup.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments, const CommandSetup& setup) {
  using Output = CommandSetup::Output;
  std::array<int, 2> out{-1, -1}, err{-1, -1};
  if (setup.output == Output::terminal) {
    require(openpty(out.data(), out.data() + 1, nullptr, nullptr, nullptr) == 0, "openpty failed");
  } else {
    require(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0, "pipe failed");
  }
  if (setup.output == Output::broken_pipe) close(out[0]);

  const pid_t child = fork();
  require(child >= 0, "fork failed");
  if (child == 0) {
    if (setup.output == Output::full_disk) out[1] = open("/dev/full", O_WRONLY);
    dup2(out[1], STDOUT_FILENO);
    dup2(setup.output == Output::terminal ? out[1] : err[1], STDERR_FILENO);
    if (setup.output == Output::closed) close(STDOUT_FILENO);
    become(arguments, setup);
  }
  close(out[1]);
  if (err[1] >= 0) close(err[1]);
  if (setup.output == Output::broken_pipe) out[0] = -1;
  if (setup.meanwhile) setup.meanwhile(child);

  CommandResult result;
  drain({out[0], err[0]}, {&result.out, &result.err});
  int status = 0;
  while (waitpid(child, &status, 0) < 0) require(errno == EINTR, "waitpid failed");
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "poise-test-XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr, "mkdtemp failed");
  folder_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string TemporaryFolder::read(const std::string& name) const {
  std::ifstream file(folder_ / name, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_ / name, std::ios::binary) << text;
}

}  // namespace poise::test
