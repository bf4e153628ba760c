// Run logs: lines that keep every bit, merging that does not depend on order, what a crash leaves
// behind, and the refusal of what is no log.
// ctest-labels: fast unit
#include <poise/run_log.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/made_run.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::head_of_spread;
using test::input_of;
using test::layer_of;
using test::MadeRun;
using test::sample_input;

Error add(const std::string& text) {
  RunLog log;
  return log.add(text, "run.jsonl");
}

std::string small_line(std::int64_t step = 3, const std::string& layer = "L0") {
  return log_line(step, layer, layer_of({head_of_spread(1), head_of_spread(2)}).stats);
}

// The statistics of a log of one line.
Stats read_back(const std::string& line) {
  RunLog log;
  EXPECT_FALSE(log.add(line, "run.jsonl"));
  Stats stats;
  EXPECT_FALSE(log.for_each([&](std::int64_t, const std::string&, const Stats& one) {
    stats = one;
    return Error();
  }));
  return stats;
}

TEST(run_log, a_line_keeps_every_bit_of_its_statistics) {
  for (const LayerInput& layer : sample_input().layers) {
    const std::string line = log_line(7, layer.label, layer.stats, "rank 0");
    EXPECT_EQ(to_json(read_back(line)), to_json(layer.stats));
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    EXPECT_EQ(line.back(), '\n');
  }
  Stats awkward = layer_of({head_of_spread(1), HeadStats{}}).stats;
  awkward.request.level = StatsLevel::max;
  HeadStats& head = awkward.heads[1];
  head.sum_kl = -0.0;
  head.sum_top1 = std::numeric_limits<double>::denorm_min();
  head.scores.max = std::numeric_limits<double>::quiet_NaN();
  head.max_dot = std::numeric_limits<double>::infinity();
  head.histogram.counts[kHistogramBins - 1] = 2;
  head.argmax_offset = {{-4, 1}};
  head.gradient.measured_rows = 3;
  EXPECT_EQ(to_json(read_back(log_line(0, "x", awkward))), to_json(awkward));
}

TEST(run_log, a_line_is_small_where_little_was_measured) {
  const Stats whole = MadeRun(1).measure(0, 0);
  EXPECT_LT(log_line(0, "L0", whole).size(), to_json(whole).size() * 3 / 4);
  Stats core = layer_of({head_of_spread(1)}).stats;
  core.request.level = StatsLevel::core;
  core.heads[0].histogram = {};
  core.heads[0].argmax_column = core.heads[0].argmax_offset = {};
  core.heads[0].gain = {};
  EXPECT_LT(log_line(0, "L0", core).size(), 1200u) << log_line(0, "L0", core);
}

TEST(run_log, names_that_a_line_cannot_hold_are_made_to_fit) {
  RunLog log;
  const Stats stats = layer_of({head_of_spread(1)}).stats;
  ASSERT_FALSE(log.add(log_line(-5, "", stats), "a"));
  ASSERT_FALSE(log.add(log_line(std::numeric_limits<std::int64_t>::max(),
                                "\xff\n\"" + std::string(5000, 'x'), stats),
                       "a"));
  EXPECT_EQ(log.first_step(), 0);
  EXPECT_EQ(log.last_step(), kMaxLogStep);
  EXPECT_EQ(log.layers(), 2u);
}

TEST(run_log, layers_whose_long_names_differ_at_the_end_stay_apart) {
  RunLog log;
  const Stats stats = layer_of({head_of_spread(1)}).stats;
  const std::string common = "encoder.transformer.blocks.with.a.long.name.of.its.own.attention.";
  for (const std::string& first : {common, common + common + common + common + "é."})
    for (const char* last : {"self", "cross"})
      ASSERT_FALSE(log.add(log_line(1, first + last, stats), "a"));
  EXPECT_EQ(log.layers(), 4u);
}

TEST(run_log, logs_of_several_processes_give_the_same_bits_in_any_order_and_any_number_of_files) {
  const std::vector<std::string> logs = MadeRun(1.35).logs();
  const std::string whole = to_json(build_report(input_of(logs)));
  std::vector<std::string> lines;
  for (const std::string& log : logs) {
    for (std::size_t at = 0; at < log.size();) {
      const std::size_t end = log.find('\n', at) + 1;
      lines.push_back(log.substr(at, end - at));
      at = end;
    }
  }
  ASSERT_EQ(lines.size(), std::size_t{MadeRun::kSteps * MadeRun::kLayers * MadeRun::kProcesses});
  RunLog parts;
  for (const std::string& log : logs) ASSERT_FALSE(parts.add(log, "part"));
  std::mt19937 random(11);
  for (int trial = 0; trial < 8; ++trial) {
    std::shuffle(lines.begin(), lines.end(), random);
    std::vector<std::string> files(1 + random() % 4);
    for (const std::string& line : lines) files[random() % files.size()] += line;
    RunLog log;
    for (const std::string& file : files) ASSERT_FALSE(log.add(file, "file"));
    EXPECT_EQ(log.text(), parts.text()) << "trial " << trial;
    EXPECT_EQ(to_json(build_report(input_of(files))), whole) << "trial " << trial;
  }
  // A merged log merges on as its parts would.
  RunLog first, all;
  ASSERT_FALSE(first.add(logs[2], "c"));
  ASSERT_FALSE(first.add(logs[0], "a"));
  ASSERT_FALSE(all.add(first.text(), "ac"));
  ASSERT_FALSE(all.add(logs[1], "b"));
  EXPECT_EQ(all.text(), parts.text());
}

TEST(run_log, the_shares_of_three_processes_are_the_whole_batch) {
  const MadeRun run(1.35);
  RunLog parts;
  for (const std::string& log : run.logs()) ASSERT_FALSE(parts.add(log, "part"));
  int visited = 0;
  ASSERT_FALSE(parts.for_each([&](std::int64_t step, const std::string& label, const Stats& part) {
    const int i = static_cast<int>(step / MadeRun::kStride);
    const Stats whole = run.measure(label == "L0" ? 0 : 1, i);
    for (std::size_t h = 0; h < whole.heads.size(); ++h) {
      const HeadStats &a = part.heads[h], &b = whole.heads[h];
      // Counts, extremes and sketches add without rounding.
      EXPECT_EQ(a.rows, b.rows);
      EXPECT_EQ(a.rows_above_99, b.rows_above_99);
      EXPECT_EQ(a.scores.max, b.scores.max);
      EXPECT_EQ(a.scores.sigma, b.scores.sigma);
      EXPECT_EQ(a.gain, b.gain);
      EXPECT_EQ(a.histogram, b.histogram);
      EXPECT_EQ(a.argmax_column, b.argmax_column);
      EXPECT_NEAR(a.sum_entropy, b.sum_entropy, 1e-12 * b.sum_entropy);
    }
    ++visited;
    return Error();
  }));
  EXPECT_EQ(visited, MadeRun::kSteps * MadeRun::kLayers);
}

TEST(run_log, layers_are_ordered_by_the_numbers_in_their_names) {
  const std::vector<std::string> expected = {"L1",   "L01",         "L2",          "L10",
                                             "L10b", "encoder.2.x", "encoder.10.a"};
  std::string text;
  for (auto label = expected.rbegin(); label != expected.rend(); ++label)
    text += small_line(0, *label);
  const ReportInput input = input_of({text});
  std::vector<std::string> labels;
  for (const LayerInput& layer : input.layers) labels.push_back(layer.label);
  EXPECT_EQ(labels.size(), expected.size());
  const auto place = [&](const std::string& label) {
    return std::find(labels.begin(), labels.end(), label) - labels.begin();
  };
  EXPECT_LT(place("L1"), place("L2"));
  EXPECT_LT(place("L2"), place("L10"));
  EXPECT_LT(place("L10"), place("L10b"));
  EXPECT_LT(place("encoder.2.x"), place("encoder.10.a"));
}

TEST(run_log, a_report_shows_each_layer_as_it_was_last_measured) {
  const ReportInput input = input_of({log_line(1, "L0", layer_of({head_of_spread(1)}).stats) +
                                      log_line(2, "L0", layer_of({head_of_spread(2)}).stats) +
                                      log_line(1, "L1", layer_of({head_of_spread(3)}).stats)});
  ASSERT_EQ(input.layers.size(), 2u);
  EXPECT_EQ(input.layers[0].stats.heads[0], head_of_spread(2));
  EXPECT_EQ(input.layers[1].stats.heads[0], head_of_spread(3));
  EXPECT_EQ(input.series[0].points.size(), 2u);
}

TEST(run_log, a_line_that_a_crash_cut_off_is_left_out_and_told) {
  const std::string good = small_line(1), torn = small_line(2);
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{9}, std::size_t{60}, torn.size() / 2, torn.size() - 2}) {
    RunLog log;
    ASSERT_FALSE(log.add(good + torn.substr(0, length), "run.jsonl")) << length;
    EXPECT_EQ(log.lines(), 1u);
    ASSERT_EQ(log.cut_off().size(), 1u) << length;
    EXPECT_EQ(log.cut_off()[0], "run.jsonl: line 2 is cut off and was left out");
    // A run that goes on ends it with a line end first.
    RunLog resumed;
    ASSERT_FALSE(resumed.add(good + torn.substr(0, length) + "\n\n" + small_line(4), "run.jsonl"));
    EXPECT_EQ(resumed.lines(), 2u);
    EXPECT_EQ(resumed.cut_off().size(), 1u);
  }
  // Whole, only without its line end.
  RunLog log;
  ASSERT_FALSE(log.add(good + torn.substr(0, torn.size() - 1), "run.jsonl"));
  EXPECT_EQ(log.lines(), 2u);
  EXPECT_TRUE(log.cut_off().empty());
}

TEST(run_log, what_is_no_record_is_refused_with_its_line_and_adds_nothing) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string line = small_line();
    const std::size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return line.replace(at, from.size(), to);
  };
  const struct {
    std::string line, problem;
  } cases[] = {
      {"hello\n", "not well-formed JSON"},
      {"{\"schema\":\"poise.log\",}\n", "not well-formed JSON"},
      {small_line().substr(0, 40) + small_line(), "not well-formed JSON"},
      {"[]\n", "not an object"},
      {"[1\n", "not well-formed JSON"},
      {"{}\n", "schema is not \"poise.log\""},
      {to_json(layer_of({head_of_spread(1)}).stats) + "\n", "schema is not \"poise.log\""},
      {changed("\"version\":1", "\"version\":2"), "version is 2, expected 1"},
      {changed("\"version\":1", "\"version\":[[1]]"), "version is an array, expected 1"},
      {changed("\"step\":3", "\"step\":-1"), "step is -1, expected an integer from 0 to 2^50"},
      {changed("\"step\":3", "\"step\":3.5"), "step is 3.5, expected an integer from 0 to 2^50"},
      {changed("\"step\":3", "\"stop\":3"), "step is missing, expected an integer from 0 to 2^50"},
      {changed("\"layer\":\"L0\"", "\"layer\":0"), "layer is 0, expected text of 1 to 200 bytes"},
      {changed("\"layer\":\"L0\"", "\"layer\":\"\""),
       "layer is \"\", expected text of 1 to 200 bytes"},
      {changed("\"layer\":\"L0\"", "\"layer\":\"L0\",\"process\":1"),
       "process is 1, expected text of 1 to 200 bytes"},
      {changed("\"stats\":", "\"state\":"), "stats is missing"},
      {changed("\"stats\":{", "\"stats\":1,\"x\":{"), "stats: stats is not an object"},
      {changed("\"rows\":64", "\"rows\":-64"), "stats: heads[0].rows: a count of rows is negative"},
      {changed("\"rows\":64", "\"rows\":\"64\""),
       "stats: heads[0].rows is not an integer of at most 2^50"},
      {changed("\"sigma\":[0,0,64]", "\"sigma\":[0,2147483647,64]"),
       "stats: heads[0].scores.sigma[1] is not a bin of a sketch"},
      {changed("\"sigma\":[0,0,64]", "\"sigma\":[0,0,-9999]"),
       "stats: heads[0].scores.sigma is not an array of as few bins"},
      {changed("\"sigma\":[0,0,64]", "\"sigma\":[0]"),
       "stats: heads[0].scores.sigma is not an array of zeros, first bin and counts"},
      {changed("\"sigma\":[0,0,64]", "\"sigma\":[1125899906842624,0,64]"),
       "stats: heads[0].scores.sigma is not a sketch of at most 2^50 rows"},
      {changed("\"counts\":[-32,", "\"counts\":[-31,"),
       "stats: heads[0].histogram.counts is not an array of 64 counts"},
  };
  for (const auto& c : cases) {
    RunLog log;
    ASSERT_FALSE(log.add(small_line(1), "good"));
    const Error error = log.add(small_line(2) + "\n" + c.line + small_line(5), "b/run.jsonl");
    EXPECT_EQ(error.code(), ErrorCode::bad_file) << c.line;
    EXPECT_EQ(error.message(), "[run_log] b/run.jsonl: line 3: " + c.problem);
    EXPECT_EQ(log.lines(), 1u) << c.problem;
  }
}

TEST(run_log, deep_nesting_is_refused_and_overflows_no_stack) {
  const std::string deep(400000, '['), close(400000, ']');
  EXPECT_TRUE(add("{\"schema\":" + deep + close + "}\n"));
  EXPECT_TRUE(add("{\"schema\":\"poise.log\",\"version\":" + deep + close + "}\n"));
  EXPECT_TRUE(add("{\"schema\":\"poise.log\",\"version\":1,\"step\":" + deep + close + "}\n"));
  Stats stats;
  EXPECT_TRUE(from_json("{\"schema\":\"poise.stats\",\"version\":" + deep + close + "}", stats));
}

TEST(run_log, records_that_do_not_belong_together_are_refused_where_they_meet) {
  Stats narrow = layer_of({head_of_spread(1)}, 32).stats,
        wide = layer_of({head_of_spread(1)}).stats;
  RunLog log;
  ASSERT_FALSE(log.add(log_line(4, "L7", narrow) + log_line(4, "L7", wide), "run.jsonl"));
  ReportInput input;
  input.title = "as before";
  const Error error = read_run(log, input);
  EXPECT_EQ(error.code(), ErrorCode::bad_file);
  EXPECT_NE(error.message().find("step 4, layer L7: [merge] other: head_dim"), std::string::npos)
      << error.message();
  EXPECT_TRUE(input.layers.empty());
  EXPECT_EQ(read_run(RunLog(), input).code(), ErrorCode::bad_value);
}

TEST(run_log, counts_of_many_records_overflow_nothing) {
  Stats huge = layer_of({head_of_spread(1)}).stats;
  huge.heads[0].rows = std::int64_t{1} << 50;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += log_line(0, "L0", huge);
  RunLog many, two;
  ASSERT_FALSE(many.add(text, "many"));
  ReportInput input;
  EXPECT_NE(read_run(many, input).message().find("5000 records, at most 4096 merge"),
            std::string::npos);
  ASSERT_FALSE(two.add(log_line(0, "L0", huge) + log_line(0, "L0", huge), "two"));
  EXPECT_NE(read_run(two, input).message().find("rows is not an integer of at most 2^50"),
            std::string::npos)
      << read_run(two, input).message();
}

}  // namespace
}  // namespace poise
