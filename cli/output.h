// Everything the command writes: files that appear together or not at all, standard output that is
// checked, colour and progress that only a terminal sees.
//
// In: finished bytes and tensors. Out: files, standard output, standard error. All files of a verb
// are written beside their destinations after the last computation, then moved into place; an
// interrupt that arrives meanwhile waits. Must not happen here: anything about attention.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace poise::cli {

// The files one verb writes. check() before long work, add what came out, commit().
class OutputFiles {
 public:
  // Names a file that must not be overwritten because the verb reads it.
  void protect(const std::string& input_path);

  // Whether `path` may be an output at all: no directory, no protected input, no other output, in a
  // folder that can be written. `option` names it in the Failure's sentence: "--out".
  void check(const std::string& option, const std::string& path);

  // Keeps text, or the view of a tensor whose memory outlives commit(), for a path that check() has
  // seen. Text may go to a device or pipe, which is written to directly; a tensor becomes a .npy.
  void add_text(const std::string& option, const std::string& path, std::string text);
  void add_npy(const std::string& option, const std::string& path, const ConstTensor& tensor);

  // Keeps a writer of a file that is written whole or not at all; what it uses outlives commit().
  void add_file(const std::string& option, const std::string& path,
                std::function<Error(const std::string& path)> write);

  // Writes every file, then moves all into place. Throws Failure, and then no file has changed and
  // none is left behind.
  void commit();

 private:
  struct File {
    std::string option, path;
    std::function<Error(const std::string& path)> write;
  };
  std::vector<std::string> inputs_;
  std::vector<File> checked_;  // without write
  std::vector<File> files_;
};

// Sets up the process: a write to a closed pipe becomes an error code instead of a signal, and
// closed standard descriptors cannot be taken by files opened later.
void prepare_process();

// Writes all of `text` to standard output. A reader that has closed the pipe has seen enough and is
// no error; anything else (a full disk) throws Failure.
void print(std::string_view text);

enum class ColourChoice : std::uint8_t { automatic, always, never };

// Whether standard output takes colour: the choice, else a terminal without NO_COLOR and TERM=dumb.
bool use_colour(ColourChoice choice);

// Columns of the terminal on standard output, 100 when it is none.
int output_width();

// Whether the locale's characters are UTF-8.
bool locale_is_utf8();

// A line on standard error that says how far long work is: only on a terminal, only after half a
// second, and erased at the end.
class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance();

 private:
  std::string what_;
  std::int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_;
  bool terminal_, shown_ = false;
};

}  // namespace poise::cli
