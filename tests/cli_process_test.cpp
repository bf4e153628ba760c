// The command among processes: pipes that close, disks that are full, terminals, interrupts.
// ctest-labels: cli
//
// In: the built program with chosen standard streams, the script `do`. Out of scope: what the verbs
// say (cli_test.cpp).
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/command_files.h"

namespace poise::test {
namespace {

using Output = CommandSetup::Output;

CommandSetup output_to(Output output) {
  CommandSetup setup;
  setup.output = output;
  return setup;
}

// Colours, that is; a slow run also erases the line of its progress.
bool holds_escapes(const std::string& text) {
  // Escape, [, digits and semicolons, m.
  for (std::size_t at = text.find("\x1b["); at != std::string::npos;
       at = text.find("\x1b[", at + 2)) {
    const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
    if (end != std::string::npos && text[end] == 'm') return true;
  }
  return false;
}

TEST(Streams, a_full_disk_behind_standard_output_is_a_failure) {
  for (const char* word : {"report", "--help", "--version"}) {
    const auto result = run_poise({word}, output_to(Output::full_disk));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
  }
}

TEST(Streams, a_closed_standard_output_is_a_failure_and_no_file_takes_its_place) {
  const TemporaryFolder folder;
  const auto result =
      run_poise({"report", "--json", folder.path("r.json")}, output_to(Output::closed));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
  EXPECT_TRUE(nlohmann::json::accept(folder.read("r.json"))) << "the table went into the file";
}

TEST(Streams, a_reader_that_has_seen_enough_is_no_failure) {
  const TemporaryFolder folder;
  const auto result =
      run_poise({"report", "--html", folder.path("r.html")}, output_to(Output::broken_pipe));
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"r.html"});
}

TEST(Streams, colour_goes_to_terminals_only_and_obeys_no_color) {
  CommandSetup terminal = output_to(Output::terminal);
  terminal.environment.push_back({"TERM", "xterm"});
  EXPECT_TRUE(holds_escapes(run_poise({"report"}, terminal).out));
  EXPECT_FALSE(holds_escapes(run_poise({"report", "--color", "never"}, terminal).out));
  CommandSetup no_color = terminal;
  no_color.environment.push_back({"NO_COLOR", "1"});
  EXPECT_FALSE(holds_escapes(run_poise({"report"}, no_color).out));
  EXPECT_TRUE(holds_escapes(run_poise({"--color", "always", "report"}, no_color).out));
  CommandSetup dumb = output_to(Output::terminal);
  dumb.environment.push_back({"TERM", "dumb"});
  EXPECT_EQ(run_poise({"report"}, dumb).out.find('\x1b'), std::string::npos);
  EXPECT_FALSE(holds_escapes(run_poise({"report"}).out));
  EXPECT_EQ(run_poise({"report", "--color", "sometimes"}).exit_code, 2);
}

TEST(Streams, no_byte_of_a_file_or_a_path_commands_the_terminal) {
  const TemporaryFolder folder;
  const std::string title = "\x1b]0;pwned\x07", csi = "\xc2\x9b", broken = "\xff\n";
  const std::string named = folder.path("named.safetensors"),
                    recorded = folder.path("recorded.safetensors"), q = folder.path("q.npy");
  const TensorBuffer tensor = random_tensor({1, 2, 3, 4}, 1),
                     other = random_tensor({1, 2, 3, 5}, 1);
  write_npy_file(q, tensor);
  ASSERT_FALSE(
      io::write_safetensors(named, {{title, tensor.view()}, {title + csi, tensor.view()}}, {}));
  ASSERT_FALSE(io::write_safetensors(recorded,
                                     {{title + csi + ".query", tensor.view()},
                                      {title + csi + ".key", other.view()},
                                      {title + csi + ".value", tensor.view()}},
                                     {{"poise.recording", "1"}}));
  const std::string out = folder.path("o.npy"), evil = folder.path(title + csi + broken);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"attend", named, q, q, "--out", out},
           {"attend", named + ":" + title + broken, q, q, "--out", out},
           {"attend", evil, q, q, "--out", out},
           {"attend", q, q, q, "--out", evil + "/o.npy"},
           {"attend", q, q, q, "--out", out, "--scale", evil},
           {"attend", q, q, q, "--out", out, "--causal", title + csi + broken},
           {"report", named},
           {"report", recorded},
           {"inspect", evil},
           {"explain", "--shape", title + csi + broken},
           {title + csi + broken}}) {
    const auto result = run_poise(words);
    EXPECT_NE(result.exit_code, 0) << words.front();
    EXPECT_NE(result.err.find("\\x1b]0;pwned\\x07"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find_first_of("\x1b\x07\x9b\xff"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
  }
  std::filesystem::copy_file(q, evil);
  EXPECT_EQ(run_poise({"inspect", evil}).out.find_first_of("\x1b\x07\x9b\xff"), std::string::npos);
}

TEST(Files, devices_and_pipes_are_written_to_and_not_replaced) {
  EXPECT_EQ(run_poise({"report", "--json", "/dev/null"}).exit_code, 0);
  struct stat status {};
  ASSERT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  const auto result = run_poise({"report", "--json", "/dev/stdout"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.front(), '{');
  EXPECT_EQ(run_poise({"report", "--json", "/dev/full"}).exit_code, 1);
}

TEST(Files, a_symbolic_link_stays_one) {
  const TemporaryFolder folder;
  folder.write("real.json", "old");
  ASSERT_EQ(symlink("real.json", folder.path("link.json").c_str()), 0);
  ASSERT_EQ(run_poise({"report", "--json", folder.path("link.json")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link.json")));
  EXPECT_EQ(folder.read("real.json").front(), '{');
  // One that leads nowhere yet, through another in a folder of its own.
  std::filesystem::create_directory(folder.path("deep"));
  ASSERT_EQ(symlink("../new.json", folder.path("deep/middle.json").c_str()), 0);
  ASSERT_EQ(symlink("deep/middle.json", folder.path("first.json").c_str()), 0);
  ASSERT_EQ(run_poise({"report", "--json", folder.path("first.json")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("first.json")));
  EXPECT_EQ(folder.read("new.json").front(), '{');
}

TEST(Files, none_appears_when_one_of_them_cannot_be_written) {
  const TemporaryFolder folder;
  folder.write("old.html", "old");
  const auto result =
      run_poise({"report", "--html", folder.path("old.html"), "--json", "/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("--json"), std::string::npos) << result.err;
  EXPECT_EQ(folder.read("old.html"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"old.html"});
}

// A checkout whose programs are built: the script, and stand-ins for what it would install and
// build with.
class Script : public testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    fs::create_directories(checkout_.path("build/release/cli"));
    fs::create_directories(checkout_.path("tools"));
    fs::copy_file(std::string(POISE_SOURCE_DIR) + "/do", checkout_.path("do"));
    fs::create_symlink(poise_program(), checkout_.path("build/release/cli/poise"));
    add_tool("cmake", "exit 0");
    add_tool("dpkg-query", "echo install ok installed");
  }

  void add_tool(const std::string& name, const std::string& does) {
    checkout_.write("tools/" + name, "#!/bin/sh\n" + does + "\n");
    std::filesystem::permissions(checkout_.path("tools/" + name),
                                 std::filesystem::perms::owner_all);
  }

  // `./do` with these words, called from the caller's folder.
  CommandResult run(const std::string& words) {
    CommandSetup setup;
    setup.environment.push_back({"PATH", checkout_.path("tools") + ":/usr/bin:/bin"});
    return run_command(
        {"/bin/bash", "-c", "cd " + caller_.path("") + " && " + checkout_.path("do") + ' ' + words},
        setup);
  }

  TemporaryFolder checkout_, caller_;
};

TEST_F(Script, takes_the_paths_of_the_caller_as_the_caller_means_them) {
  write_recording(caller_.path("mine.safetensors"), 1, 1, {{"model", "mine"}});
  write_npy_file(caller_.path("scale.npy"), random_tensor({2}, 1));
  const auto pages =
      run("report mine.safetensors --html mine.html --json=mine.json --scale scale.npy");
  EXPECT_EQ(pages.exit_code, 0) << pages.err;
  EXPECT_EQ(caller_.names(),
            (std::vector<std::string>{"mine.html", "mine.json", "mine.safetensors", "scale.npy"}));
  const auto plain = run("report mine.safetensors");
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_NE(plain.out.find("mine"), std::string::npos) << plain.out;
  EXPECT_NE(checkout_.read("report.html"), "") << "the page of the checkout stays where it was";
  EXPECT_NE(plain.err.find(checkout_.path("report.html")), std::string::npos) << plain.err;
}

TEST(Interrupts, ending_a_long_run_leaves_nothing_behind) {
  const TemporaryFolder folder;
  // Seconds of work on one thread.
  write_npy_file(folder.path("q.npy"), random_tensor({1, 2, 32768, 64}, 1));
  const std::string q = folder.path("q.npy");
  CommandSetup setup;
  setup.meanwhile = [](pid_t child) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kill(child, SIGINT);
  };
  const auto result = run_poise({"attend", q, q, q, "--threads", "1", "--out", folder.path("o.npy"),
                                 "--stats", folder.path("s.json")},
                                setup);
  EXPECT_EQ(result.signal, SIGINT) << "exit code " << result.exit_code;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"q.npy"});
}

TEST(Interrupts, an_interrupt_between_two_files_leaves_neither) {
  const TemporaryFolder folder;
  // Nobody reads the pipe, so writing to it waits, with the first file already staged.
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  CommandSetup setup;
  setup.meanwhile = [&folder](pid_t child) {
    for (int i = 0; i < 500 && folder.names().size() < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(folder.names().size(), 2u) << "the first file should be staged by now";
    // On a busy machine the first may come before the pipe is opened, so it is repeated.
    for (int i = 0; i < 100; ++i) {
      kill(child, SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      siginfo_t ended{};
      if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT | WNOHANG) == 0 &&
          ended.si_pid == child)
        return;
    }
  };
  const auto result =
      run_poise({"report", "--html", folder.path("r.html"), "--json", folder.path("pipe")}, setup);
  EXPECT_EQ(result.signal, SIGTERM) << "exit code " << result.exit_code << ' ' << result.err;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"pipe"});
}

TEST(Progress, shows_on_a_terminal_and_never_in_a_pipe) {
  const TemporaryFolder folder;
  // More than a second of work: long enough to be worth a word.
  const std::string path = folder.path("r.safetensors");
  std::vector<io::NamedTensor> tensors;
  const TensorBuffer tensor = random_tensor({1, 2, 1024, 64}, 1);
  for (int layer = 0; layer < 12; ++layer)
    for (const char* part : {".q", ".k", ".v"})
      tensors.push_back({"layer." + std::to_string(layer) + part, tensor.view()});
  ASSERT_FALSE(io::write_safetensors(path, tensors, {}));
  CommandSetup terminal = output_to(Output::terminal);
  terminal.environment.push_back({"POISE_ISA", "scalar"});
  terminal.environment.push_back({"TERM", "xterm"});
  const auto shown = run_poise({"report", path, "--threads", "1"}, terminal);
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_NE(shown.out.find("measuring: step"), std::string::npos) << shown.out;
  EXPECT_EQ(run_poise({"report", path}).err, "");
}

}  // namespace
}  // namespace poise::test
