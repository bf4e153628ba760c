// What README.md shows compiles and runs, from the public headers alone.
// ctest-labels: unit fast
//
// In: README.md, and between the two snippet marks below the same code. Out of scope: what the call
// computes, which every other test is about.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

// README.md's program is a main(): here it becomes a function and its output is caught.
#define main readme_program
// snippet begins
#include <poise/poise.h>

#include <iostream>
#include <random>
#include <vector>

int main() {
  const std::int64_t B = 1, Hq = 8, Hkv = 2, Lq = 5, Lk = 256, D = 64;
  std::vector<float> query(B * Hq * Lq * D), key(B * Hkv * Lk * D), value(key), result(query);
  std::mt19937 random;  // stands in for a model: independent elements of variance 1
  std::normal_distribution<float> normal;
  for (auto* tensor : {&query, &key, &value})
    for (float& element : *tensor) element = normal(random);
  // Views on your memory, any strides: q and out [B, Hq, Lq, D], k and v [B, Hkv, Lk, D].
  const auto q = poise::view(query.data(), {B, Hq, Lq, D});
  const auto k = poise::view(key.data(), {B, Hkv, Lk, D});
  const auto v = poise::view(value.data(), {B, Hkv, Lk, D});
  const auto out = poise::view(result.data(), {B, Hq, Lq, D});

  poise::Stats stats;
  poise::Extras extras{.stats = &stats};  // optional; changes no bit of out
  const auto causal = poise::Causal::bottom_right();
  if (auto error = poise::attention(q, k, v, out, {.causal = causal}, extras)) {
    std::cerr << error.message() << '\n';
    return 1;
  }
  std::cout << poise::to_text(poise::judge(stats));
  return 0;
}
// snippet ends
#undef main

namespace poise::test {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(POISE_SOURCE_DIR) + '/' + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t first = text.find(begin);
  if (first == std::string::npos) return "";
  const std::size_t start = first + begin.size();
  return text.substr(start, text.find(end, start) - start);
}

TEST(Readme, shows_the_program_that_is_compiled_here) {
  const std::string shown = between(read("README.md"), "```cpp\n", "```");
  ASSERT_NE(shown, "");
  EXPECT_EQ(shown,
            between(read("tests/public_test.cpp"), "// snippet begins\n", "// snippet ends"));
}

TEST(Readme, program_runs_and_judges_its_heads) {
  testing::internal::CaptureStdout();
  const int exit_code = readme_program();
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(exit_code, 0);
  EXPECT_NE(printed.find("8 heads: 8 healthy"), std::string::npos) << printed;
}

TEST(Readme, short_form_with_designated_members_works_as_written) {
  const std::vector<float> memory(2 * 4 * 8, 0.5f);
  std::vector<float> result(memory.size()), lse_memory(2 * 4);
  const auto q = view(memory.data(), {1, 2, 4, 8}), k = q, v = q;
  const auto out = view(result.data(), {1, 2, 4, 8});
  const auto lse = view(lse_memory.data(), {1, 2, 4});
  Stats stats;
  Extras extras{.stats = &stats, .lse = &lse};
  const Error error = attention(q, k, v, out, {.causal = Causal::bottom_right()}, extras);
  EXPECT_FALSE(error) << error.message();
  EXPECT_EQ(stats.heads.size(), 2u);
  EXPECT_EQ(result[0], 0.5f);
}

}  // namespace
}  // namespace poise::test
