// How a verb of the command says no: one sentence and an exit code.
//
// The library returns poise::Error; the command turns it into a Failure where the verb ends, and
// main() alone catches it, prints it and exits. Exit codes: 0 done, 1 the input is bad or the run
// failed, 2 the command line is wrong.
#pragma once

#include <poise/error.h>

#include <stdexcept>
#include <string>

namespace poise::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& sentence, int exit_code = kExitFailed)
      : std::runtime_error(sentence), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

inline Failure usage_failure(const std::string& sentence) { return Failure(sentence, kExitUsage); }

inline void throw_if(const Error& error) {
  if (error) throw Failure(error.message());
}

}  // namespace poise::cli
