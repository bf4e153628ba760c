// ctest-labels: fast golden unit
// The words of the report and its terminal face: golden text, grammar for any number of heads,
// width, ASCII, colours, hostile names.
#include <poise/report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "report/encoding.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::compare_with_golden;
using test::head_of_spread;
using test::layer_of;
using test::sample_input;

constexpr double kWide = 30;  // a spread at which head_of_spread() is saturated
const std::string kHostile =
    "</title><script>x</script>\x1b[2J\x1b]0;owned\x07\"'&\x80\xff\r\n\xc2\x9b 1m";

Report report_of(std::vector<LayerInput> layers, std::vector<std::string> tokens = {}) {
  ReportInput input;
  input.layers = std::move(layers);
  input.tokens = std::move(tokens);
  return build_report(input);
}

std::string headline(const Report& report) { return report.headline_alarm + report.headline_rest; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<HeadStats> heads(int saturated, int healthy) {
  std::vector<HeadStats> all(static_cast<std::size_t>(saturated), head_of_spread(kWide));
  all.insert(all.end(), static_cast<std::size_t>(healthy), head_of_spread(1));
  return all;
}

TEST(report_text, measuring_that_more_than_doubles_the_time_is_told_in_milliseconds) {
  ReportInput input = sample_input();
  input.attention_ms = 2;
  input.measuring_percent = 99;
  EXPECT_TRUE(contains(to_text(build_report(input), {}), "attention 2 ms, measuring + 99 %"));
  input.measuring_percent = 250;
  EXPECT_TRUE(contains(to_text(build_report(input), {}), "attention 2 ms, measuring + 5 ms"));
}

TEST(report_text, the_terminal_page_of_the_sample_equals_its_golden_file) {
  TextStyle style;
  EXPECT_EQ(compare_with_golden("report.txt", to_text(build_report(sample_input()), style)), "");
}

TEST(report_text, the_ascii_page_with_all_heads_and_rules_equals_its_golden_file) {
  TextStyle style;
  style.unicode = false;
  style.all_heads = style.rules = true;
  style.width = 120;
  EXPECT_EQ(compare_with_golden("report_ascii.txt", to_text(build_report(sample_input()), style)),
            "");
}

TEST(report_text, the_headline_agrees_with_the_number_of_heads) {
  const struct {
    int saturated, healthy;
    const char* expected;
  } cases[] = {
      {0, 1, "The one head is healthy: gradient passes, and nothing overflows."},
      {0, 2, "Both heads are healthy: gradient passes, and nothing overflows."},
      {0, 3, "All 3 heads are healthy: gradient passes, and nothing overflows."},
      {1, 0, "The one head is saturated. Nothing overflows."},
      {2, 0, "Both heads are saturated. Nothing overflows."},
      {3, 0, "All 3 heads are saturated. Nothing overflows."},
      {1, 1,
       "1 of 2 heads is saturated, L0 H0. The other one passes gradient, and nothing "
       "overflows."},
      {1, 2, "1 of 3 heads is saturated, L0 H0. The other 2 pass gradient, and nothing overflows."},
      {2, 2, "2 of 4 heads are saturated. The other 2 pass gradient, and nothing overflows."},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(headline(report_of({layer_of(heads(c.saturated, c.healthy))})), c.expected);
  }
}

TEST(report_text, the_headline_says_in_which_layers) {
  const LayerInput calm = layer_of(heads(0, 2));
  EXPECT_TRUE(contains(headline(report_of({calm, layer_of(heads(2, 0)), calm})), "both in L1."));
  EXPECT_TRUE(contains(headline(report_of({calm, layer_of(heads(3, 1))})), "all in L1."));
  EXPECT_TRUE(contains(headline(report_of({calm, layer_of(heads(1, 1)), layer_of(heads(1, 1))})),
                       "in 2 of 3 layers."));
  EXPECT_TRUE(contains(headline(report_of({layer_of(heads(1, 1)), layer_of(heads(1, 1))})),
                       "in every layer."));
}

TEST(report_text, what_could_not_be_measured_is_said) {
  EXPECT_EQ(headline(report_of({})), "Nothing was measured: there are no heads to judge.");
  EXPECT_EQ(headline(report_of({layer_of({HeadStats{}})})),
            "Nothing to judge: no row sees two keys or more.");
  std::vector<HeadStats> broken = heads(0, 2);
  broken[1].nonfinite_rows = 1;
  const Report one = report_of({layer_of(broken)});
  EXPECT_EQ(one.headline_alarm, "1 row holds NaN or infinity.");
  EXPECT_EQ(one.findings.front().claim, "1 row holds NaN or infinity.");
  EXPECT_TRUE(contains(one.findings.front().numbers, "L0 H1"));
  broken[0] = head_of_spread(kWide);
  broken[1].nonfinite_rows = 7;
  EXPECT_EQ(headline(report_of({layer_of(broken)})),
            "7 rows hold NaN or infinity, and 1 of 2 heads is saturated, L0 H0.");
}

TEST(report_text, findings_name_up_to_three_heads_and_count_the_rest) {
  const auto claim = [](int saturated) {
    return report_of({layer_of(heads(saturated, 1))}).findings.front().claim;
  };
  EXPECT_EQ(claim(1), "L0 H0 is one-hot.");
  EXPECT_EQ(claim(2), "L0 H0 and L0 H1 are one-hot.");
  EXPECT_EQ(claim(3), "L0 H0, L0 H1 and L0 H2 are one-hot.");
  EXPECT_EQ(claim(9), "L0 H0, L0 H1 and 7 others are one-hot.");
}

TEST(report_text, the_sample_names_its_heads_the_reason_and_the_factor) {
  const Report report = build_report(sample_input());
  ASSERT_GE(report.findings.size(), 3u);
  const Finding& first = report.findings[0];
  EXPECT_TRUE(contains(first.claim, "L0 H3 and L0 H4 are one-hot"));
  EXPECT_TRUE(contains(first.numbers, "They watch the previous and the next token"));
  EXPECT_TRUE(contains(first.remedy, "scale ×\u00A00.131 and ×\u00A00.134"));
  const auto why = std::find_if(report.findings.begin(), report.findings.end(),
                                [](const Finding& f) { return f.section == "variance"; });
  ASSERT_NE(why, report.findings.end());
  EXPECT_EQ(why->claim, "Norms first, alignment second.");
  EXPECT_TRUE(contains(why->numbers, "Var(q·k) is 7197 in L0 H3 where the textbook has 32"));
}

// The last column of the table, the factor, in the line of this head.
std::string last_column(const std::string& page, const std::string& head) {
  std::string last;  // findings come before the table
  for (const std::string& line : lines_of(page))
    if (contains(line, head + " ")) last = line.substr(line.find_last_of(' ') + 1);
  return last;
}

TEST(report_text, the_spread_of_a_saturated_head_with_a_sink_is_that_without_it) {
  HeadStats head = head_of_spread(kWide);
  TrackedKey& sink = head.tracked[0];
  sink.sum_weight = 32;
  sink.rows_without = sink.above_99_without = 64;
  sink.trace_without.add(1e-6, 64);
  sink.sigma_without.add(12, 64);
  const Finding finding = report_of({layer_of({head})}).findings[0];
  EXPECT_TRUE(contains(finding.numbers, "Spread σ 12.")) << finding.numbers;
  EXPECT_TRUE(contains(finding.remedy, "scale ×\u00A00.16")) << finding.remedy;  // 2.02 / 12.1
}

TEST(report_text, a_head_without_measured_rows_is_not_called_healthy) {
  HeadStats masked;
  masked.rows = masked.empty_rows = 64;
  const Report report = report_of({layer_of({head_of_spread(1), masked})});
  EXPECT_EQ(headline(report), "None of the 2 heads is in trouble, and nothing overflows.");
  EXPECT_EQ(report.counts[0], 1);
  const std::string page = to_text(report, {});
  EXPECT_TRUE(contains(page, "\n1 healthy   1 not measured\n")) << page;
  EXPECT_TRUE(contains(to_html(report), "<b>1</b> not measured</li>"));
}

TEST(report_text, layers_of_different_numbers_of_heads_are_counted_together) {
  const HeadStats head = head_of_spread(1);
  EXPECT_TRUE(contains(to_text(report_of({layer_of({head, head}), layer_of({head})}), {}),
                       "3 heads in 2 layers"));
  EXPECT_TRUE(contains(to_text(report_of({layer_of({head, head}), layer_of({head, head})}), {}),
                       "2 layers × 2 heads"));
}

TEST(report_text, of_an_undivided_product_the_division_comes_first) {
  HeadStats head = head_of_spread(kWide);
  head.scale = 1;
  head.inputs.q_rows = head.inputs.k_rows = 64;
  head.inputs.q_second_moment = head.inputs.k_variance_centred = 1;
  head.inputs.alignment = 14;
  const auto remedy = [](const HeadStats& shown) {
    for (const Finding& finding : report_of({layer_of({shown})}).findings)
      if (finding.section == "variance") return finding.remedy;
    return std::string();
  };
  EXPECT_EQ(remedy(head), "first the scale 1/√64 = 0.125, then measure again");
  head.scale = 0.125;
  EXPECT_EQ(remedy(head), "when training on: scale by 1/D instead of 1/√D, or learn a temperature");
}

TEST(report_text, long_names_of_layers_show_what_differs_and_json_has_them_whole) {
  const auto layer = [](const std::string& number) {
    LayerInput one = layer_of({head_of_spread(kWide)});
    one.label = "model.language_model.transformer.layers." + number + ".self_attention";
    return one;
  };
  const Report report = report_of({layer("0"), layer("17")});
  EXPECT_EQ(report.heads[1].name, "…layers.17.self_attention H0");
  for (const int width : {60, 100}) {
    TextStyle style;
    style.width = width;
    const std::string page = to_text(report, style);
    for (const char* number : {"0", "17"}) {
      const std::string end = std::string(number) + ".self_attention";
      EXPECT_TRUE(contains(page, end + " ■")) << page;     // the grid
      EXPECT_TRUE(contains(page, end + " H0  ")) << page;  // the table
    }
  }
  const std::string json = to_json(report);
  EXPECT_TRUE(
      contains(json, "\"layer\": \"model.language_model.transformer.layers.17.self_attention\""));
  EXPECT_TRUE(contains(to_html(report), " named\""));
  EXPECT_FALSE(contains(to_html(report_of({layer_of({head_of_spread(1)})})), " named\""));
}

TEST(report_text, the_heading_of_the_grid_is_whole_in_ascii) {
  TextStyle style;
  style.unicode = false;
  EXPECT_TRUE(contains(to_text(report_of({layer_of({head_of_spread(1)})}), style), "spread sigma"));
}

TEST(report_text, the_factor_of_the_table_is_one_of_the_scale_for_hot_heads_too) {
  HeadStats wide = head_of_spread(kWide), hot = head_of_spread(1);
  wide.scores.max = hot.scores.max = 400;
  const Report report = report_of({layer_of({wide, hot})});
  const HeadAdvice& advice = report.heads[0].health.advice;
  ASSERT_EQ(advice.facts.rule, WeightRule::mha);  // Wq and Wk share the factor: its root for each
  const std::string page = to_text(report, {});
  EXPECT_EQ(last_column(page, "L0 H0"), "0.067") << page;  // σ* / σ, which makes it cool as well
  EXPECT_NEAR(advice.spread_factor, 0.067, 5e-4);
  EXPECT_EQ(last_column(page, "L0 H1"), "0.25") << page;  // 100 / 400
}

HeadStats with_transmission(HeadStats head, double measured, double expected) {
  const auto rows = static_cast<double>(head.measured_rows);
  head.gradient.measured_rows = head.measured_rows;
  head.gradient.sum_transmission_squared = rows * measured * measured;
  head.sum_expected_transmission_squared = rows * expected * expected;
  return head;
}

TEST(report_text, measured_transmission_stands_beside_the_expected) {
  TextStyle style;
  style.width = 120;
  const std::string page =
      to_text(report_of({layer_of({with_transmission(head_of_spread(1), 0.021, 0.032)})}), style);
  EXPECT_TRUE(contains(page, "passes  expected")) << page;
  EXPECT_TRUE(contains(page, "0.021     0.032")) << page;
  const std::string without = to_text(report_of({layer_of({head_of_spread(1)})}), style);
  EXPECT_FALSE(contains(without, "expected")) << without;
}

TEST(report_text, a_head_that_passes_less_than_its_softmax_would_is_a_finding) {
  const Report report = report_of(
      {layer_of({head_of_spread(1), with_transmission(head_of_spread(1), 0.001, 0.032)})});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].claim, "L0 H1 passes almost no gradient.");
  EXPECT_EQ(report.findings[0].numbers,
            "Of the gradients sent to the weights 0.001 arrived at the scores, where 0.032 is "
            "expected of independent ones.");
  EXPECT_TRUE(contains(report.findings[0].remedy, "no scale changes that"));
}

TEST(report_text, layers_that_share_weights_get_advice_on_the_scale_only) {
  ReportInput input;
  input.layers = {layer_of(heads(1, 1)), layer_of(heads(0, 2))};
  EXPECT_TRUE(contains(build_report(input).findings[0].remedy, "or Wq and Wk of the head"));
  input.context.layers_share_weights = true;
  const std::string remedy = build_report(input).findings[0].remedy;
  EXPECT_TRUE(contains(remedy, "both layers share their weights, so change the scale"));
  EXPECT_FALSE(contains(remedy, "or Wq and Wk of the head"));
}

TEST(report_text, heads_of_a_group_get_advice_on_their_own_wq_only) {
  ReportInput input;
  input.layers = {layer_of(heads(1, 1))};
  input.layers[0].stats.kv_heads = 1;
  const std::string remedy = build_report(input).findings[0].remedy;
  EXPECT_TRUE(contains(remedy, "or Wq of the head")) << remedy;
  EXPECT_FALSE(contains(remedy, "Wk")) << remedy;
}

TEST(report_text, a_forgotten_division_is_called_by_its_name) {
  std::vector<HeadStats> wide = heads(1, 1);
  for (HeadStats& head : wide) head.scale = 1;
  const Finding finding = report_of({layer_of(wide)}).findings.front();
  EXPECT_TRUE(contains(finding.numbers, "the division by √64 was forgotten"));
  EXPECT_EQ(finding.remedy, "scale 1/√64 = 0.125, then measure again");
}

TEST(report_text, there_are_at_most_five_findings_and_trouble_comes_first) {
  std::vector<HeadStats> all = heads(2, 2);
  all[0].scores.max = 2e4;        // hot and exploding
  all[2] = head_of_spread(0.01);  // diffuse
  all[3].tracked[0].sum_weight = 0.6 * static_cast<double>(all[3].rows);
  all[3].nonfinite_rows = 1;
  const Report report = report_of({layer_of(all)}, {"[CLS]"});
  EXPECT_EQ(report.findings.size(), 5u);
  EXPECT_GE(report.findings[0].severity, Severity::bad);
  for (const Finding& finding : report.findings) {
    EXPECT_FALSE(finding.claim.empty());
    EXPECT_TRUE(finding.claim.back() == '.') << finding.claim;
    EXPECT_TRUE(finding.numbers.back() == '.') << finding.numbers;
    EXPECT_FALSE(finding.section.empty());
  }
}

TEST(report_text, a_sink_is_called_by_its_token_and_said_to_be_normal) {
  std::vector<HeadStats> all = heads(0, 3);
  for (HeadStats& head : all) {
    head.tracked[0].sum_weight = 0.45 * static_cast<double>(head.rows);
    head.tracked[0].rows_without = head.rows;
    head.tracked[0].sigma_without.add(1, head.rows);
    head.tracked[0].trace_without.add(0.9, head.rows);
  }
  const auto sink = [](const Report& report) {
    for (const Finding& finding : report.findings) {
      if (contains(finding.claim, "sink")) return finding;
    }
    return Finding{};
  };
  EXPECT_EQ(sink(report_of({layer_of(all)}, {"[CLS]"})).claim, "Token [CLS] is a sink in 3 heads.");
  EXPECT_EQ(sink(report_of({layer_of(all)}, {"c"})).claim, "Token c is a sink in 3 heads.")
      << "in SMILES c and C are different atoms";
  const Finding unnamed = sink(report_of({layer_of(all)}));
  EXPECT_EQ(unnamed.claim, "Key 0 is a sink in 3 heads.");
  EXPECT_TRUE(contains(unnamed.numbers, "That is normal."));
}

TEST(report_text, the_place_that_heads_watch_is_named_for_any_offset_and_as_the_token_is_spelled) {
  std::vector<HeadStats> all = heads(1, 1);
  const auto numbers = [&all](std::int64_t column, std::int64_t offset, bool at_column) {
    all[0].argmax_column = {{column, at_column ? all[0].rows : 1}};
    all[0].argmax_offset = {{offset, at_column ? 1 : all[0].rows}};
    return report_of({layer_of(all)}, {"[CLS]", "c"}).findings.front().numbers;
  };
  EXPECT_TRUE(contains(numbers(1, 0, true), "It watches token c:"));
  EXPECT_TRUE(contains(numbers(7, 0, true), "It watches key 7:"));
  EXPECT_TRUE(contains(numbers(0, -1, false), "It watches the previous token:"));
  EXPECT_TRUE(contains(numbers(0, -3, false), "It watches the token 3 places before:"));
  EXPECT_TRUE(contains(numbers(0, 2, false), "It watches the token 2 places after:"));
  EXPECT_TRUE(contains(numbers(0, std::numeric_limits<std::int64_t>::min(), false),
                       "It watches the token 9e18 places before:"));
}

// A saturated head, and the same at half its scale.
ReportInput input_with_what_ifs() {
  HeadStats now = head_of_spread(kWide), half = head_of_spread(kWide / 2);
  now.scale = 0.125;
  half.scale = 0.0625;
  now.sum_entropy = 0.25 * 64;
  half.sum_entropy = 1.5 * 64;
  now.sum_temperature_variance = 0.5 * 64;
  Stats capped = layer_of({now}).stats;
  capped.has_softcap = true;
  capped.softcap = 50;
  ReportInput input;
  input.layers = {layer_of({now})};
  input.layers[0].what_ifs = {{"scale × 0.5", true, layer_of({half}).stats},
                              {"softcap 50", false, capped}};
  return input;
}

TEST(report_text, the_head_at_another_temperature_shows_the_preview_beside_what_came) {
  const Report report = build_report(input_with_what_ifs());
  const std::string text = to_text(report, {.width = 120});
  EXPECT_TRUE(contains(text, "what if L0 H0 ran at another temperature")) << text;
  std::string half;
  for (const std::string& line : lines_of(text))
    if (line.rfind("scale × 0.5", 0) == 0) half = line;
  EXPECT_TRUE(contains(half, "+1.25")) << half;   // recomputed
  EXPECT_TRUE(contains(half, "+0.347")) << half;  // .5 ln 2
  const Report without = report_of({layer_of(heads(1, 1))});
  EXPECT_FALSE(contains(to_text(without), "what if"));
}

TEST(report_text, no_line_is_wider_than_the_page) {
  ReportInput many = input_with_what_ifs();
  for (int l = 0; l < 3; ++l) many.layers.push_back(layer_of(heads(5, 27)));
  for (const ReportInput& input : {sample_input(), many}) {
    const Report report = build_report(input);
    for (const int width : {40, 57, 80, 100, 200}) {
      for (const bool unicode : {false, true}) {
        TextStyle style;
        style.width = width;
        style.unicode = unicode;
        style.all_heads = style.rules = true;
        for (const std::string& line : lines_of(to_text(report, style))) {
          EXPECT_LE(report::columns(line), width) << line;
        }
      }
    }
  }
}

TEST(report_text, every_colour_is_switched_off_again_and_none_is_used_unasked) {
  const Report report = build_report(sample_input());
  TextStyle style;
  EXPECT_FALSE(contains(to_text(report, style), "\x1b"));
  style.colour = true;
  const std::string coloured = to_text(report, style);
  EXPECT_TRUE(contains(coloured, "\x1b["));
  for (const std::string& line : lines_of(coloured)) {
    const std::size_t last = line.rfind("\x1b[");
    if (last == std::string::npos) continue;
    EXPECT_EQ(line.substr(last, 4), "\x1b[0m") << line;
  }
}

TEST(report_text, names_cannot_send_commands_to_the_terminal) {
  ReportInput input = sample_input();
  input.title = input.model = input.mask = input.isa = input.date = kHostile;
  input.tokens = {kHostile};
  for (LayerInput& layer : input.layers) layer.label = kHostile;
  for (const bool unicode : {false, true}) {
    TextStyle style;
    style.unicode = unicode;
    style.all_heads = true;
    for (const char c : to_text(build_report(input), style)) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte != 0x7F)) << int{byte};
      EXPECT_TRUE(unicode || byte < 0x80) << int{byte};
    }
    EXPECT_FALSE(contains(to_text(build_report(input), style), "\xc2\x9b"));
  }
}

TEST(report_text, cut_and_broken_utf8_becomes_replacement_characters) {
  using report::valid_utf8;
  EXPECT_EQ(valid_utf8("a\xff\xc3", 10), "a\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xe2\x82", 10), "\uFFFD\uFFFD");                     // cut
  EXPECT_EQ(valid_utf8("\xc0\xaf", 10), "\uFFFD\uFFFD");                     // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80", 10), "\uFFFD\uFFFD\uFFFD");           // surrogate
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80", 4), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(valid_utf8("ääää", 3), "ää…");
  EXPECT_EQ(valid_utf8("äää", 3), "äää");
  EXPECT_EQ(report::printable("a\u202Eb\u200Dc\td"), "a\uFFFDb\uFFFDc d");
  EXPECT_EQ(report::columns("漢字é"), 5);
}

TEST(report_text, the_headline_calls_nobody_well_who_is_sick_of_something_else) {
  HeadStats hot = head_of_spread(1), sharp = head_of_spread(6);
  hot.scores.max = 150;
  sharp.gain = {};
  sharp.gain.add(1, 64);  // saturated, though its Jacobian lets gradient through
  sharp.dead_rows = 0;
  ReportInput input;
  input.layers = {layer_of({hot, hot, hot, sharp, head_of_spread(1)})};
  const Report report = build_report(input);
  EXPECT_EQ(report.headline_alarm + report.headline_rest,
            "3 of 5 heads run hot. 1 of the other 2 has other troubles, and nothing overflows.");
}

}  // namespace
}  // namespace poise
