// The command's verbs as a user runs them: what they print, what they write, what they refuse.
// ctest-labels: cli
//
// In: the built program, small random files. Out of scope: streams, signals and the disk
// (cli_process_test.cpp); numbers are compared with the reference.
#include <gtest/gtest.h>

#include <poise/report.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/open.h"
#include "reference.h"
#include "support/command_files.h"

namespace poise::test {
namespace {

// Query, key and value of 2 batches, 4 heads on 2, 5 queries, 9 keys, in files and in memory.
class Attend : public testing::Test {
 protected:
  void SetUp() override {
    write_npy_file(folder_.path("q.npy"), query_);
    write_npy_file(folder_.path("k.npy"), key_);
    write_npy_file(folder_.path("v.npy"), value_);
  }

  CommandResult attend(const std::vector<std::string>& options) {
    std::vector<std::string> words{"attend", folder_.path("q.npy"), folder_.path("k.npy"),
                                   folder_.path("v.npy")};
    words.insert(words.end(), options.begin(), options.end());
    return run_poise(words);
  }

  // Compares o.npy and, when it exists, lse.npy with the definition.
  void expect_reference(const Options& options) {
    const auto expected =
        reference_attention<double>(query_.view(), key_.view(), value_.view(), options);
    expect_near("o.npy", {2, 4, 5, 6}, expected.out);
    if (!folder_.read("lse.npy").empty()) expect_near("lse.npy", {2, 4, 5}, expected.lse);
  }

  void expect_near(const std::string& name, const std::vector<std::int64_t>& shape,
                   const std::vector<double>& expected) {
    io::File file;
    const Error error = io::open(folder_.path(name), &file);
    ASSERT_FALSE(error) << error.message();
    ASSERT_EQ(file.entries().front().shape, shape);
    ConstTensor tensor;
    ASSERT_FALSE(file.tensor("", &tensor));
    ASSERT_EQ(tensor.dtype, DType::f32);
    const auto* values = static_cast<const float*>(tensor.data);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::isinf(expected[i])) {
        EXPECT_EQ(values[i], static_cast<float>(expected[i])) << name << " element " << i;
      } else {
        EXPECT_NEAR(values[i], expected[i], 1e-5) << name << " element " << i;
      }
    }
  }

  void expect_refused(const std::vector<std::string>& options, int exit_code,
                      const std::string& part) {
    const auto before = folder_.names();
    const CommandResult result = attend(options);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos)
        << "expected '" << part << "' in '" << result.err << "'";
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder_.names(), before) << "nothing may be written";
  }

  TemporaryFolder folder_;
  const TensorBuffer query_ = random_tensor({2, 4, 5, 8}, 1);
  const TensorBuffer key_ = random_tensor({2, 2, 9, 8}, 2);
  const TensorBuffer value_ = random_tensor({2, 2, 9, 6}, 3);
};

TEST_F(Attend, writes_what_the_definition_says) {
  const auto result = attend({"--out", folder_.path("o.npy"), "--lse", folder_.path("lse.npy")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  expect_reference({});
  EXPECT_EQ(folder_.names(),
            (std::vector<std::string>{"k.npy", "lse.npy", "o.npy", "q.npy", "v.npy"}));
}

TEST_F(Attend, obeys_every_option_given_on_the_command_line) {
  const auto result = attend({"--causal",     "bottom_right",
                              "--scale",      "0.3",
                              "--softcap",    "2",
                              "--window",     "4,-1",
                              "--kv-lengths", "9,6",
                              "--q-lengths",  "4,5",
                              "--alibi",      "0.1,0.2,0.3,0.4",
                              "--sinks",      "0,-1,0.5,1",
                              "--out",        folder_.path("o.npy"),
                              "--lse",        folder_.path("lse.npy"),
                              "--threads",    "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::int64_t> kv_lengths{9, 6}, q_lengths{4, 5};
  const std::vector<float> alibi{0.1f, 0.2f, 0.3f, 0.4f}, sinks{0, -1, 0.5f, 1};
  Options options;
  options.causal = Causal::bottom_right();
  options.scale = 0.3;
  options.softcap = 2;
  options.window_left = 4;
  options.kv_lengths = view(kv_lengths.data(), {2});
  options.q_lengths = view(q_lengths.data(), {2});
  options.alibi_slopes = view(alibi.data(), {4});
  options.sinks = view(sinks.data(), {4});
  expect_reference(options);
}

TEST_F(Attend, reads_masks_biases_and_scales_from_files) {
  TensorBuffer mask(DType::boolean, {5, 9});
  for (std::int64_t i = 0; i < mask.count(); ++i) mask.set(i, i % 3 != 0);
  const TensorBuffer bias = random_tensor({4, 1, 9}, 4, DType::f64);
  const TensorBuffer scale = random_tensor({4}, 5, DType::f64);
  write_npy_file(folder_.path("mask.npy"), mask);
  write_npy_file(folder_.path("bias.npy"), bias);
  write_npy_file(folder_.path("scale.npy"), scale);
  const auto result =
      attend({"--mask", folder_.path("mask.npy"), "--bias", folder_.path("bias.npy"), "--scale",
              folder_.path("scale.npy"), "--diagonal", "3", "--causal=top_left", "--out",
              folder_.path("o.npy")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const TensorBuffer scale_f32 = scale.copied_as(DType::f32);
  Options options;
  options.causal = Causal::top_left();
  options.diagonal = 3;
  options.mask = mask.view();
  options.bias = bias.view();
  options.scale_per_head = scale_f32.view();
  expect_reference(options);
}

TEST_F(Attend, takes_a_negative_causal_offset_as_the_next_word) {
  const auto result = attend({"--causal", "-2", "--out", folder_.path("o.npy")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  Options options;
  options.causal = Causal::offset(-2);
  expect_reference(options);
}

TEST_F(Attend, writes_statistics_that_read_back) {
  const auto result = attend(
      {"--out", folder_.path("o.npy"), "--stats", folder_.path("s.json"), "--level", "full"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  Stats stats;
  const Error error = from_json(folder_.read("s.json"), stats);
  ASSERT_FALSE(error) << error.message();
  ASSERT_EQ(stats.heads.size(), 4u);
  EXPECT_EQ(stats.request.level, StatsLevel::full);
  EXPECT_EQ(stats.heads[0].rows, 10);
  EXPECT_EQ(stats.head_dim, 8);
}

TEST_F(Attend, reads_rank_3_and_named_tensors_of_a_safetensors_file) {
  const auto first = [](const TensorBuffer& tensor) {
    ConstTensor view = tensor.view();
    view.extents = {view.extent(1), view.extent(2), view.extent(3), 0};
    view.strides = {view.stride(1), view.stride(2), view.stride(3), 0};
    view.rank = 3;
    return view;
  };
  const std::string path = folder_.path("all.safetensors");
  ASSERT_FALSE(io::write_safetensors(
      path, {{"q", first(query_)}, {"k", first(key_)}, {"a:v", first(value_)}}, {}));
  const auto result = run_poise(
      {"attend", path + ":q", path + ":k", path + ":a:v", "--out", folder_.path("o.npy")});
  // The last colon separates, so a name that holds one cannot be reached and says so.
  EXPECT_EQ(result.exit_code, 1);
  ASSERT_FALSE(io::write_safetensors(
      path, {{"q", first(query_)}, {"k", first(key_)}, {"v", first(value_)}}, {}));
  const auto named =
      run_poise({"attend", path + ":q", path + ":k", path + ":v", "--out", folder_.path("o.npy")});
  ASSERT_EQ(named.exit_code, 0) << named.err;
  auto expected = reference_attention<double>(query_.view(), key_.view(), value_.view(), {}).out;
  expected.resize(expected.size() / 2);  // batch 0
  expect_near("o.npy", {1, 4, 5, 6}, expected);
}

TEST_F(Attend, widens_16_bit_inputs) {
  const TensorBuffer query = query_.copied_as(DType::f16), key = key_.copied_as(DType::f16),
                     value = value_.copied_as(DType::f16);
  write_npy_file(folder_.path("q.npy"), query);
  write_npy_file(folder_.path("k.npy"), key);
  write_npy_file(folder_.path("v.npy"), value);
  const auto result = attend({"--out", folder_.path("o.npy")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_near("o.npy", {2, 4, 5, 6},
              reference_attention<double>(query.view(), key.view(), value.view(), {}).out);
}

TEST_F(Attend, refuses_a_bare_causal_when_lengths_differ_and_names_the_choices) {
  const std::string out = folder_.path("o.npy");
  expect_refused({"--out", out, "--causal"}, 2, "top_left, bottom_right or a number");
  expect_refused({"--out", out, "--causal", "diagonal"}, 2, "'diagonal'");
}

TEST_F(Attend, allows_a_bare_causal_when_lengths_agree) {
  const TensorBuffer query = random_tensor({2, 4, 9, 8}, 6);
  write_npy_file(folder_.path("q.npy"), query);
  const auto result = attend({"--out", folder_.path("o.npy"), "--causal"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  Options options;
  options.causal = Causal::top_left();
  expect_near("o.npy", {2, 4, 9, 6},
              reference_attention<double>(query.view(), key_.view(), value_.view(), options).out);
}

TEST_F(Attend, refuses_a_wrong_command_line_with_2) {
  const std::string out = folder_.path("o.npy");
  expect_refused({}, 2, "--out");
  expect_refused({"--out", out, "--colour", "never"}, 2, "--colour");
  expect_refused({"--out", out, "--window", "3"}, 2, "--window: '3' is not of the form L,R");
  expect_refused({"--out", out, "--level", "most"}, 2, "--level");
  expect_refused({"--out", out, "--threads", "0"}, 2, "--threads");
  expect_refused({"--out", out, "--softcap", "much"}, 2, "--softcap");
  expect_refused({"--out", out, "--lse", out}, 2, "is also the file of --out");
  expect_refused({"--out", ""}, 2, "--out");
}

TEST_F(Attend, refuses_bad_input_with_1) {
  const std::string out = folder_.path("o.npy");
  expect_refused({"--out", out, "--scale", "nan"}, 1, "scale");
  expect_refused({"--out", out, "--softcap", "-1"}, 1, "softcap");
  expect_refused({"--out", out, "--window", "-2,0"}, 1, "window_left");
  expect_refused({"--out", out, "--kv-lengths", "9,10"}, 1, "kv_lengths");
  expect_refused({"--out", out, "--sinks", "1,2"}, 1, "sinks");
  expect_refused({"--out", out, "--mask", folder_.path("absent.npy")}, 1, "absent.npy");
  expect_refused({"--out", out, "--mask", folder_.path("q.npy")}, 1, "mask");
  expect_refused({"--out", out, "--alibi", "1,2,x,4"}, 1, "--alibi");
  expect_refused({"--out", folder_.path("q.npy")}, 1, "is an input of this run");
  expect_refused({"--out", folder_.path("")}, 1, "is a directory");
  expect_refused({"--out", folder_.path("none/o.npy")}, 1, "cannot write");
}

TEST_F(Attend, refuses_an_empty_value_of_every_option) {
  const std::string out = folder_.path("o.npy");
  for (const std::string name :
       {"--mask", "--bias", "--window", "--diagonal", "--kv-lengths", "--q-lengths", "--alibi",
        "--sinks", "--scale", "--causal", "--softcap", "--lse", "--stats", "--level", "--every",
        "--threads", "--color", "--out"}) {
    expect_refused({"--out", out, name, ""}, 2, "the word after '" + name + "' is empty");
    expect_refused({"--out", out, name + "="}, 2, "'" + name + "=' has no value");
  }
}

TEST_F(Attend, says_what_a_value_is_that_is_neither_numbers_nor_a_file) {
  const std::string out = folder_.path("o.npy"), long_name(300, 'x');
  for (const std::string name : {"--scale", "--alibi", "--sinks"})
    for (const std::string& value : {std::string("1e400"), std::string("0x10"), std::string("abc"),
                                     std::string("1,x"), long_name, long_name + ":x"})
      expect_refused({"--out", out, name, value}, 1,
                     name + ": '" + value + "' is neither a finite number, a list of them nor a");
  for (const std::string name : {"--diagonal", "--kv-lengths", "--q-lengths"})
    for (const std::string& value : {std::string("1.5"), std::string("x"), long_name})
      expect_refused({"--out", out, name, value}, 1,
                     name + ": '" + value + "' is neither a whole number, a list of them nor a");
}

TEST_F(Attend, says_why_an_output_cannot_be_written) {
  for (const std::string name : {"--out", "--lse", "--stats"}) {
    const auto refused = [&](const std::string& path, const std::string& reason) {
      std::vector<std::string> options{name, path};
      if (name != "--out") options.insert(options.end(), {"--out", folder_.path("o.npy")});
      expect_refused(options, 1, name + ": cannot write '" + path + "': " + reason);
    };
    refused(folder_.path(std::string(300, 'x')), "File name too long");
    refused(folder_.path("q.npy/o.npy"), "Not a directory");
    refused(folder_.path("q.npy/deeper/o.npy"), "Not a directory");
    refused(folder_.path("none/o.npy"), "No such file or directory");
  }
}

TEST_F(Attend, writes_a_file_with_the_longest_name_there_is) {
  const std::string name(255, 'n');
  const auto result = attend({"--out", folder_.path(name)});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(folder_.read(name), "");
}

TEST_F(Attend, is_done_at_once_when_a_huge_batch_holds_no_row) {
  const TensorBuffer none(DType::f32, {1, 1, 0, 4});
  ConstTensor tensor = none.view();
  tensor.extents = {std::int64_t{1} << 40, 1, 0, 4};
  ASSERT_FALSE(io::write_npy(folder_.path("q.npy"), tensor));
  const std::string q = folder_.path("q.npy");
  const auto result = run_poise({"attend", q, q, q, "--out", folder_.path("o.npy"), "--lse",
                                 folder_.path("lse.npy"), "--stats", folder_.path("s.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_FALSE(io::write_safetensors(folder_.path("r.safetensors"),
                                     {{"a.query", tensor}, {"a.key", tensor}, {"a.value", tensor}},
                                     {}));
  const auto report = run_poise({"report", folder_.path("r.safetensors")});
  EXPECT_EQ(report.exit_code, 0) << report.err;
}

TEST_F(Attend, refuses_files_that_are_no_tensors) {
  folder_.write("q.npy", "no tensor at all");
  expect_refused({"--out", folder_.path("o.npy")}, 1, "q.npy");
  write_npy_file(folder_.path("q.npy"), random_tensor({5, 8}, 7));
  expect_refused({"--out", folder_.path("o.npy")}, 1, "Q: rank 2");
  write_npy_file(folder_.path("q.npy"), random_tensor({2, 4, 5, 7}, 7));
  expect_refused({"--out", folder_.path("o.npy")}, 1, "[forward] key: head_dim 8");
}

TEST(Report, shows_the_built_in_recording_without_any_argument) {
  const auto result = run_poise({"report"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* part : {"rxnmapper 0.4.3", "12 layers", "8 heads", "L0 H3", "σ"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in\n" << result.out;
}

TEST(Report, speaks_ascii_when_told_or_when_the_locale_is_not_utf8) {
  CommandSetup plain_locale;
  plain_locale.environment = {{"LC_ALL", "C"}};
  for (const auto& result :
       {run_poise({"report", "--ascii"}), run_poise({"report"}, plain_locale)}) {
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const char c : result.out) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << result.out;
    EXPECT_NE(result.out.find("sigma"), std::string::npos);
  }
}

TEST(Report, prints_all_heads_and_all_rules_on_request) {
  const auto plain = run_poise({"report"}), all = run_poise({"report", "--all"}),
             rules = run_poise({"report", "--rules"});
  EXPECT_GT(all.out.size(), plain.out.size() + 80 * 80);
  EXPECT_NE(run_poise({"report", "--help"}).out.find("first five by verdict"), std::string::npos);
  EXPECT_EQ(plain.out.find("2309.14322"), std::string::npos);
  EXPECT_NE(rules.out.find("2309.14322"), std::string::npos) << rules.out;
}

TEST(Report, writes_html_and_json_of_a_given_recording) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 3, 1, {{"model", "tiny <model>"}});
  const auto result = run_poise({"report", folder.path("r.safetensors"), "--html",
                                 folder.path("r.html"), "--json", folder.path("r.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"r.html", "r.json", "r.safetensors"}));
  const std::string html = folder.read("r.html");
  EXPECT_EQ(html.find("<model>"), std::string::npos) << "names are escaped";
  EXPECT_NE(html.find("tiny &lt;model&gt;"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(folder.read("r.json")));
  EXPECT_NE(folder.read("r.json").find("L2"), std::string::npos);
}

TEST(Report, exits_with_1_on_bad_heads_only_when_asked) {
  const TemporaryFolder folder;
  const std::string path = folder.path("r.safetensors");
  write_recording(path, 1, 400);
  EXPECT_EQ(run_poise({"report", path}).exit_code, 0);
  EXPECT_EQ(run_poise({"report", path, "--fail-on", "bad"}).exit_code, 1);
  EXPECT_EQ(run_poise({"report", path, "--fail-on", "bad", "--scale", "0.001"}).exit_code, 0);
  EXPECT_EQ(run_poise({"report", path, "--fail-on", "worse"}).exit_code, 2);
}

TEST(Report, rows_with_nan_are_bad_and_their_heads_not_healthy) {
  const TemporaryFolder folder;
  const std::string path = folder.path("r.safetensors");
  write_recording(path, 1, std::numeric_limits<double>::quiet_NaN());
  const auto result = run_poise({"report", path});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("NAN OR INFINITY"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("2 healthy"), std::string::npos) << result.out;
  EXPECT_EQ(run_poise({"report", path, "--fail-on", "bad"}).exit_code, 1);
  EXPECT_EQ(run_poise({"report", path, "--fail-on", "critical"}).exit_code, 0);
}

TEST(Report, measures_far_scores_with_a_wider_histogram) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 1, 400);
  const auto result =
      run_poise({"report", folder.path("r.safetensors"), "--json", folder.path("r.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto heads = nlohmann::json::parse(folder.read("r.json")).at("heads");
  const auto& wide = heads.at(0).at("histogram");
  EXPECT_GE(wide.at("width").get<double>(), 16) << wide;
  EXPECT_EQ(wide.at("below").get<int>() + wide.at("above").get<int>(), 0) << wide;
}

TEST(Report, overrides_scale_and_mask) {
  const TemporaryFolder folder;
  const std::string path = folder.path("r.safetensors");
  write_recording(path, 1, 1);
  const auto causal = run_poise({"report", path, "--causal", "top_left"});
  EXPECT_NE(causal.out.find("causal top_left"), std::string::npos) << causal.out;
  EXPECT_NE(run_poise({"report", path}).out.find("no mask"), std::string::npos);
  const auto bare = run_poise({"report", path, "--causal"});
  EXPECT_EQ(bare.exit_code, 0) << bare.err;
  EXPECT_EQ(run_poise({"report", path, "--scale", "inf"}).exit_code, 1);
}

TEST(Report, refuses_files_that_are_no_recordings) {
  const TemporaryFolder folder;
  write_npy_file(folder.path("a.npy"), random_tensor({1, 2, 3, 4}, 1));
  const auto result = run_poise({"report", folder.path("a.npy"), "--html", folder.path("a.html")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("a.npy"), std::string::npos) << result.err;
  EXPECT_EQ(run_poise({"report", folder.path("none.safetensors")}).exit_code, 1);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.npy"});
}

TEST(Report, refuses_an_empty_value_instead_of_taking_the_next_word) {
  const TemporaryFolder folder;
  const std::string path = folder.path("r.safetensors");
  write_recording(path, 1, 1);
  const std::string before = folder.read("r.safetensors");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"--html", ""}, {"--json", ""}, {"--html="}, {"--json="}, {"--scale", ""}, {""}}) {
    std::vector<std::string> arguments{"report"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    arguments.push_back(path);
    EXPECT_EQ(run_poise(arguments).exit_code, 2) << words.front();
    EXPECT_EQ(folder.read("r.safetensors"), before) << words.front();
  }
}

TEST(Report, does_not_overwrite_its_recording) {
  const TemporaryFolder folder;
  const std::string path = folder.path("r.safetensors");
  write_recording(path, 1, 1);
  const std::string before = folder.read("r.safetensors");
  const auto result = run_poise({"report", path, "--json", path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(folder.read("r.safetensors"), before);
}

TEST(Explain, says_which_kernel_and_why_without_any_tensor) {
  const auto result =
      run_poise({"explain", "--shape", "1,32,8,4096,4096,128", "--causal", "bottom_right"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("4096"), std::string::npos) << result.out;
  EXPECT_GT(result.out.size(), 100u) << result.out;
}

TEST(Explain, refuses_shapes_that_are_none) {
  for (const char* shape : {"1,2,3", "1,2,2,4,5,6,7", "1,2,2,4,5,x", "1,2,2,4,5,-6", ""}) {
    const auto result = run_poise({"explain", "--shape", shape});
    EXPECT_EQ(result.exit_code, 2) << shape;
    EXPECT_NE(result.err.find("--shape"), std::string::npos) << result.err;
  }
  EXPECT_EQ(run_poise({"explain", "--shape", "1,3,2,4,4,8"}).exit_code, 1) << "3 heads on 2";
}

TEST(Inspect, lists_tensors_and_metadata) {
  const TemporaryFolder folder;
  write_recording(folder.path("r.safetensors"), 1, 1, {{"model", "esc\x1b[31mape"}});
  const auto result = run_poise({"inspect", folder.path("r.safetensors")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"safetensors", "3 tensors", "layer.0.query", "F32", "[1, 2, 24, 16]"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in\n" << result.out;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << "no escape reaches the terminal";
  EXPECT_EQ(run_poise({"inspect", folder.path("none.npy")}).exit_code, 1);
  EXPECT_EQ(run_poise({"inspect"}).exit_code, 2);
}

TEST(Command, helps_with_examples_for_every_verb) {
  for (const std::string verb : {"report", "attend", "explain", "inspect", "log", "bench"}) {
    const auto result = run_poise({verb, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Examples:\n  poise " + verb), std::string::npos) << result.out;
  }
  EXPECT_NE(run_poise({"--help"}).out.find("Exit codes"), std::string::npos);
}

TEST(Command, names_its_version) {
  const auto result = run_poise({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.rfind("poise 0.", 0), 0u) << result.out;
}

TEST(Command, exits_with_2_when_the_verb_is_missing_or_unknown) {
  for (const auto& words : std::vector<std::vector<std::string>>{{}, {"repport"}, {"--verbose"}}) {
    const auto result = run_poise(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err.rfind("poise: ", 0), 0u) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }
}

TEST(Command, refuses_an_unknown_instruction_set_by_name) {
  CommandSetup setup;
  setup.environment.push_back({"POISE_ISA", "mmx"});
  const auto result = run_poise({"report"}, setup);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("POISE_ISA"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace poise::test
