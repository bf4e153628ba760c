// The fuzz seeds, mutated the same way in every run, through the readers: no crash, no hang, no
// broken promise. A few thousand inputs where libFuzzer tries millions (tests/fuzz).
//
// In: tests/fuzz/seeds. Out: nothing but the checks of fuzz/check_contents.h.
// ctest-labels: unit fast
#include <gtest/gtest.h>
#include <poise/run_log.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "fuzz/check_contents.h"
#include "fuzz/check_map.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/recording.h"
#include "io/safetensors.h"
#include "support/file_builder.h"
#include "support/markup.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

constexpr int kMutationsPerSeed = 1500;

std::vector<std::string> seeds(const std::string& kind) {
  std::vector<std::string> paths, contents;
  const std::string folder = std::string(POISE_SOURCE_DIR) + "/tests/fuzz/seeds/" + kind;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) contents.push_back(read_bytes(path));
  EXPECT_FALSE(contents.empty()) << folder;
  return contents;
}

// Bytes that mean something to a parser, beside random ones.
std::string token(std::mt19937& random) {
  static const std::vector<std::string> kTokens = {std::string(1, '\0'),
                                                   "\xff",
                                                   "\xff\xff\xff\xff",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "(",
                                                   ")",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "'",
                                                   "-",
                                                   "9",
                                                   "e9",
                                                   ".",
                                                   "\\u0000",
                                                   "18446744073709551615",
                                                   "9223372036854775807",
                                                   "__metadata__",
                                                   "\"dtype\":\"F64\"",
                                                   "\"shape\":[",
                                                   "{0..9}",
                                                   "\"kv_heads\":",
                                                   "PK\x01\x02",
                                                   "PK\x05\x06",
                                                   "PK\x06\x07",
                                                   "<f8",
                                                   ">f4",
                                                   "|O",
                                                   "L"};
  return kTokens[random() % kTokens.size()];
}

std::string mutated(std::string bytes, std::mt19937& random) {
  for (auto edits = 1 + random() % 4; edits-- > 0;) {
    const std::size_t at = random() % (bytes.size() + 1);
    const std::size_t length = std::min<std::size_t>(random() % 9, bytes.size() - at);
    switch (random() % 6) {
      case 0:  // one byte
        if (at < bytes.size()) bytes[at] = static_cast<char>(random() & 0xFF);
        break;
      case 1:  // one bit
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random() % (bytes.size() + 1), 16));
        break;
      case 4:
        bytes.replace(at, length, token(random));
        break;
      case 5:
        if (random() % 4 == 0) bytes.resize(at);
        break;
    }
  }
  return bytes;
}

// Calls check(bytes) on every seed and its mutations; check says whether the reader accepted them.
template <class Check>
void smoke(const std::string& kind, Check check) {
  std::mt19937 random(20261130);
  int accepted = 0, refused = 0;
  for (const std::string& seed : seeds(kind)) {
    EXPECT_TRUE(check(seed));
    for (int i = 0; i < kMutationsPerSeed; ++i)
      ++(check(mutated(seed, random)) ? accepted : refused);
  }
  // Both ways must have been walked, or the mutations are too weak or too strong to test anything.
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, kMutationsPerSeed / 2);
}

TEST(FuzzSmoke, mutated_npy_files_are_read_or_refused) {
  smoke("npy", [](const std::string& content) {
    const auto bytes = std::as_bytes(std::span(content));
    io::Contents contents;
    if (io::parse_npy(bytes, "seed", &contents)) return false;
    check_contents(bytes, contents, 1);
    return true;
  });
}

TEST(FuzzSmoke, mutated_npz_archives_are_read_or_refused) {
  smoke("npz", [](const std::string& content) {
    const auto bytes = std::as_bytes(std::span(content));
    io::Contents contents;
    if (io::parse_npz(bytes, "seed", &contents)) return false;
    check_npz_contents(bytes, contents);
    return true;
  });
}

TEST(FuzzSmoke, mutated_safetensors_files_are_read_or_refused) {
  smoke("safetensors", [](const std::string& content) {
    const auto bytes = std::as_bytes(std::span(content));
    io::Contents contents;
    if (io::parse_safetensors(bytes, "seed", &contents)) return false;
    check_contents(bytes, contents, 1);
    return true;
  });
}

TEST(FuzzSmoke, mutated_maps_are_read_or_refused) {
  smoke("clip_map", [](const std::string& content) { return check_map(content); });
}

TEST(FuzzSmoke, mutated_recordings_are_read_or_refused) {
  smoke("recording", [](const std::string& content) {
    const Opened opened(content);
    io::Recording recording;
    return !opened.error && !io::read_recording(opened.file, &recording);
  });
}

TEST(FuzzSmoke, mutated_run_logs_are_read_or_refused) {
  smoke("run_log", [](const std::string& content) {
    RunLog log;
    if (log.add(content, "seed")) return false;
    ReportInput input;
    if (read_run(log, input)) return false;
    const Report report = build_report(input);
    EXPECT_FALSE(to_text(report).empty());
    EXPECT_EQ(markup_problem(to_html(report)), "");
    return true;
  });
}

}  // namespace
}  // namespace poise::test
