// `poise bench` as a user runs it: consistent figures, a chart that is a picture, refusals.
// ctest-labels: cli
//
// In: the built program, tiny shapes, hundredths of a second. Out of scope: how fast anything is;
// a test on a loaded machine can only say that figures agree with one another.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/command_files.h"
#include "support/markup.h"

namespace poise::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> quick(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  words.insert(words.end(), {"--seconds", "0.005"});
  return words;
}

Json json_of(const std::vector<std::string>& words) {
  const TemporaryFolder folder;
  std::vector<std::string> all = quick(words);
  all.insert(all.end(), {"--json", folder.path("b.json")});
  const auto result = run_poise(all);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"b.json"});
  return Json::parse(folder.read("b.json"));
}

void expect_refused(const std::vector<std::string>& words, int exit_code, const std::string& part) {
  const TemporaryFolder folder;
  std::vector<std::string> all = quick(words);
  all.insert(all.end(), {"--json", folder.path("b.json"), "--svg", folder.path("b.svg")});
  const auto result = run_poise(all);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos)
      << "expected '" << part << "' in '" << result.err << "'";
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
  EXPECT_EQ(result.out, "") << "refused before anything is timed";
  EXPECT_EQ(folder.names(), std::vector<std::string>{}) << "nothing may be written";
}

TEST(Bench, its_json_names_machine_limits_and_every_shape_in_order) {
  const Json json = json_of({"--shape", "1,2,1,8,8,16", "--shape", "2,4,2,1,64,8"});
  EXPECT_EQ(json.at("format"), "poise.bench");
  EXPECT_GE(json.at("machine").at("cores").get<int>(), 1);
  EXPECT_EQ(json.at("machine").at("isa"), json.at("machine").at("isas").at(0));
  for (const char* member : {"poise_version", "compiler", "date", "command", "clock"})
    EXPECT_FALSE(json.at(member).get<std::string>().empty()) << member;
  const auto& peaks = json.at("limits").at("multiply_add");
  ASSERT_GE(peaks.size(), json.at("machine").at("isas").size());
  for (const auto& peak : peaks) {
    EXPECT_GT(peak.at("f32_gflops_per_s").get<double>(), 0) << peak;
    EXPECT_GT(peak.at("f64_gflops_per_s").get<double>(), 0) << peak;
  }
  for (const auto& stream : json.at("limits").at("stream"))
    EXPECT_GT(stream.at("gbytes_per_s").get<double>(), 0) << stream;
  ASSERT_EQ(json.at("shapes").size(), 2u);
  EXPECT_EQ(json.at("shapes").at(0).at("name"), "1,2,1,8,8,16 f32");
  EXPECT_EQ(json.at("shapes").at(1).at("name"), "2,4,2,1,64,8 f32");
}

TEST(Bench, its_figures_agree_with_one_another) {
  for (const char* threads : {"1", "2"}) {
    const Json json = json_of({"--shape", "1,2,1,40,40,16", "--shape", "1,2,2,1,3000,64",
                               "--threads", threads, "--stats"});
    for (const Json& shape : json.at("shapes")) {
      const double best = shape.at("best_ms"), median = shape.at("median_ms");
      EXPECT_GT(best, 0) << shape;
      EXPECT_LE(best, median) << shape;
      EXPECT_GE(shape.at("turns").get<int>(), 3) << shape;
      const auto check = [&](const char* limit, const std::string& unit, double needed) {
        const Json& share = shape.at(limit);
        const double rate = share.at("best_" + unit + "_per_s");
        EXPECT_NEAR(rate, needed / best / 1e6, 1e-6 * rate) << shape;
        EXPECT_NEAR(share.at("percent_of_limit_best").get<double>(),
                    100 * rate / share.at("limit_" + unit + "_per_s").get<double>(), 1e-6 * 100)
            << shape;
        return share.at("percent_of_limit_best").get<double>();
      };
      const double arithmetic = check("multiply_add", "gflops", shape.at("needed_flops"));
      const double stream = check("stream", "gbytes", shape.at("needed_kv_bytes"));
      EXPECT_EQ(shape.at("limit"), stream > arithmetic ? "stream" : "multiply_add") << shape;
      ASSERT_EQ(shape.at("statistics").size(), 3u);
      EXPECT_EQ(shape.at("statistics").at(2).at("level"), "full");
    }
    EXPECT_EQ(json.at("clock"), std::string(threads) == "1" ? "thread_cpu" : "wall");
  }
}

TEST(Bench, counts_only_what_masks_leave_visible) {
  const auto needs = [](const std::vector<std::string>& words) {
    const Json shape = json_of(words).at("shapes").at(0);
    return std::pair<double, double>(shape.at("needed_flops"), shape.at("needed_kv_bytes"));
  };
  using Needs = std::pair<double, double>;
  // 4 D flops a pair and query head; 2 D elements a key and kv head.
  EXPECT_EQ(needs({"--shape", "1,2,1,8,8,16"}), Needs(4 * 16 * 2 * 64, 2 * 16 * 8 * 4));
  EXPECT_EQ(needs({"--shape", "1,2,1,8,8,16", "--causal", "9223372036854775807"}),
            Needs(4 * 16 * 2 * 64, 2 * 16 * 8 * 4));
  EXPECT_EQ(needs({"--shape", "1,2,1,8,8,16", "--causal"}), Needs(4 * 16 * 2 * 36, 2 * 16 * 8 * 4));
  EXPECT_EQ(needs({"--shape", "1,2,1,4,10,16", "--causal", "top_left"}),
            Needs(4 * 16 * 2 * 10, 2 * 16 * 4 * 4));
  EXPECT_EQ(needs({"--shape", "1,2,1,4,10,16", "--causal", "bottom_right", "--dtype", "bf16"}),
            Needs(4 * 16 * 2 * 34, 2 * 16 * 10 * 2));
  // One query at the end of 10 keys, 3 of them in its window.
  EXPECT_EQ(needs({"--shape", "1,2,1,1,10,16", "--window", "3", "--dtype", "f64"}),
            Needs(4 * 16 * 2 * 3, 2 * 16 * 3 * 8));
  EXPECT_EQ(needs({"--shape", "1,2,1,8,8,16", "--window", "3", "--dtype", "f16"}),
            Needs(4 * 16 * 2 * 21, 2 * 16 * 8 * 2));
}

TEST(Bench, decode_goes_through_more_layers_than_the_caches_hold) {
  const Json json = json_of({"--shape", "1,8,8,1,4096,64", "--shape", "1,2,2,2,64,64"});
  double largest = 0;
  for (const Json& cache : json.at("machine").at("caches"))
    largest = std::max(largest, cache.at("bytes").get<double>());
  const Json &decode = json.at("shapes").at(0), &chunk = json.at("shapes").at(1);
  const double bytes = decode.at("needed_kv_bytes"), layers = decode.at("layers_in_turn");
  EXPECT_GE(layers, 1);
  EXPECT_TRUE(layers == 64 || layers * bytes >= 4 * largest) << decode;
  EXPECT_TRUE(layers == 1 || (layers - 1) * bytes < 4 * largest) << decode;
  EXPECT_EQ(chunk.at("layers_in_turn"), 1);
}

TEST(Bench, draws_a_picture_that_refers_to_nothing_outside_itself) {
  const TemporaryFolder folder;
  std::vector<std::string> words = quick({"--shape", "1,1,1,4,4,8", "--shape", "1,1,1,1,99,8"});
  words.insert(words.end(), {"--svg", folder.path("b.svg")});
  const auto result = run_poise(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string svg = folder.read("b.svg");
  EXPECT_EQ(markup_problem(svg), "");
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u) << svg.substr(0, 99);
  for (const char* part : {"1,1,1,4,4,8 f32</text>", "1,1,1,1,99,8 f32</text>", "100 % = limit",
                           "prefers-color-scheme: dark", "<title"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  for (const char* part : {"href", "url(", "@import", "<script", "nan", "inf"})
    EXPECT_EQ(svg.find(part), std::string::npos) << part;
}

TEST(Bench, prints_an_aligned_table_without_colour) {
  const auto result = run_poise(quick({"--shape", "1,2,1,8,8,16", "--shape", "64,12,12,1,7,8",
                                       "--causal", "bottom_right", "--color", "always"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  std::vector<std::string> lines;
  for (std::size_t at = result.out.find("B,Hq,Hkv"); lines.size() < 3;) {
    const std::size_t end = result.out.find('\n', at);
    ASSERT_NE(end, std::string::npos) << result.out;
    lines.push_back(result.out.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_EQ(lines[0].size(), lines[1].size()) << result.out;
  EXPECT_EQ(lines[1].size(), lines[2].size()) << result.out;
  EXPECT_EQ(lines[2].rfind("64,12,12,1,7,8 f32 causal bottom_right ", 0), 0u) << result.out;
}

TEST(Bench, refuses_what_it_cannot_time_before_it_times_anything) {
  for (const char* shape : {"1,2,3", "1,2,2,4,5,x", "1,2,2,4,5,-6", "1,2,2,4,5,6,7"})
    expect_refused({"--shape", shape}, 2, "six whole numbers");
  expect_refused({"--shape", "1,2,2,0,5,6"}, 2, "'1,2,2,0,5,6' has a 0");
  expect_refused({"--shape", "1,3,2,4,5,6"}, 1, "--shape: 1,3,2,4,5,6: ");
  expect_refused({"--shape", "1,2,2,4,5,6", "--shape", "1,3,2,4,5,6"}, 1, "1,3,2,4,5,6");
  expect_refused({"--shape", "1,1,1,1,1000000000000,128"}, 1, "GiB are free");
  expect_refused({"--shape", "1,1,1,4611686018427387904,4611686018427387904,128"}, 1, "--shape");
  expect_refused({"--shape", "1,2,2,4,5,6", "--causal"}, 2, "--causal: with 4 queries and 5 keys");
  expect_refused({"--causal"}, 2, "--causal: describes --shape");
  expect_refused({"--window", "4"}, 2, "--window: describes --shape");
  for (const char* window : {"0", "-1", "2.5", "99999999999999999999"})
    expect_refused({"--shape", "1,2,2,4,4,6", "--window", window}, 2,
                   std::string("--window: '") + window +
                       "' is not a whole number from 1 to 9223372036854775807");
  expect_refused({"--shape", "1,2,2,4,4,6", "--causal", "-4"}, 2, "with this --causal no query");
  expect_refused({"--shape", "1,2,2,4,4,6", "--causal", "9", "--window", "3"}, 2,
                 "with this --window no query");
  expect_refused({"--shape", "1,2,2,4,4,6", "--dtype", "i8"}, 2, "--dtype");
  expect_refused({"--shape", "1,2,2,4,4,6", "--threads", "0"}, 2, "--threads");
}

TEST(Bench, refuses_times_that_are_none_and_files_that_cannot_be) {
  for (const char* seconds : {"0", "-1", "nan", "inf", "soon"}) {
    const auto result = run_poise({"bench", "--shape", "1,1,1,1,1,1", "--seconds", seconds});
    EXPECT_EQ(result.exit_code, 2) << seconds;
    EXPECT_NE(result.err.find("--seconds"), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
  const TemporaryFolder folder;
  const std::string path = folder.path("b.json");
  expect_refused({"--shape", "1,1,1,1,1,1", "--json", path}, 2, "--json");
  const auto same = run_poise(quick({"--shape", "1,1,1,1,1,1", "--json", path, "--svg", path}));
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_EQ(same.out, "");
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(Bench, stops_at_an_interrupt_and_leaves_no_file) {
  const TemporaryFolder folder;
  CommandSetup setup;
  setup.meanwhile = [](pid_t child) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(child, SIGINT);
  };
  const auto result = run_poise({"bench", "--shape", "1,1,1,64,64,8", "--seconds", "600", "--json",
                                 folder.path("b.json"), "--svg", folder.path("b.svg")},
                                setup);
  EXPECT_EQ(result.signal, SIGINT) << "exit code " << result.exit_code;
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(Bench, runs_on_the_instruction_set_it_is_told) {
  CommandSetup setup;
  setup.environment.push_back({"POISE_ISA", "scalar"});
  const auto result = run_poise(quick({"--shape", "1,1,1,4,4,8"}), setup);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("scalar; poise"), std::string::npos) << result.out;
  setup.environment.back().second = "mmx";
  const auto refused = run_poise(quick({"--shape", "1,1,1,4,4,8"}), setup);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("POISE_ISA"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace poise::test
