// A piece of a test in a forked child: what Python's DataLoader workers do to a library.
//
// In: a body that says what did not hold, in words. Out: those words, or why the child did not end
// by itself. The child leaves through exit(), so that handlers and static objects see their end, or
// at once through _exit(), as the workers of Python's multiprocessing do.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace poise::test {

// Seconds until a child that hangs is killed; the calls of most tests take milliseconds.
inline constexpr unsigned kChildSeconds = 60;

enum class Leaving { by_exit, at_once };

template <class Body>
std::string in_forked_child(const Body& body, unsigned seconds = kChildSeconds,
                            Leaving leaving = Leaving::by_exit) {
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) return "no pipe";
  std::fflush(nullptr);  // or the child prints what the parent has buffered
  const pid_t child = fork();
  if (child < 0) return "no child";
  if (child == 0) {
    alarm(seconds);
    const std::string broken = body();
    // A message longer than a pipe holds would wait for a reader that waits for the end.
    if (!broken.empty() &&
        write(pipe_ends[1], broken.data(), std::min<std::size_t>(broken.size(), 4096)) < 0)
      std::abort();
    if (leaving == Leaving::at_once) _exit(EXIT_SUCCESS);
    std::exit(EXIT_SUCCESS);
  }
  close(pipe_ends[1]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  std::array<char, 4096> text{};
  const ssize_t length = read(pipe_ends[0], text.data(), text.size());
  close(pipe_ends[0]);
  if (length > 0) return {text.data(), static_cast<std::size_t>(length)};
  if (WIFSIGNALED(status))
    return "the child was ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == EXIT_SUCCESS
             ? std::string()
             : "the child ended with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace poise::test
