// Runs a program as a user's shell would and keeps what it said.
//
// In: arguments, environment, where standard output leads. Out: exit code or signal, standard
// output and error. Also a folder that vanishes with the test and lists what is in it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace poise::test {

struct CommandResult {
  int exit_code = -1;  // -1 when a signal ended the program
  int signal = 0;
  std::string out, err;
};

struct CommandSetup {
  enum class Output {
    captured,
    closed,       // no descriptor 1 at all
    broken_pipe,  // a pipe nobody reads
    full_disk,    // /dev/full
    terminal,     // a pseudo-terminal; standard error is one too, and out holds both
  };
  Output output = Output::captured;
  // Added to an environment of PATH alone.
  std::vector<std::pair<std::string, std::string>> environment{{"LC_ALL", "C.UTF-8"}};
  // Called in the parent while the program runs.
  std::function<void(pid_t child)> meanwhile;
};

CommandResult run_command(const std::vector<std::string>& arguments,
                          const CommandSetup& setup = {});

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> names() const;  // of everything in it, sorted
  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace poise::test
