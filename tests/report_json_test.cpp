// ctest-labels: fast golden unit
// Statistics as JSON and back, the refusal of what is no statistics, and the report's machine face.
#include <poise/report.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "support/sample_report.h"

namespace poise {
namespace {

using Json = nlohmann::ordered_json;
using test::compare_with_golden;
using test::sample_input;

Stats awkward_stats() {
  Stats stats;
  stats.request.level = StatsLevel::full;
  stats.head_dim = 3;
  stats.heads.resize(2);
  HeadStats& head = stats.heads[0];
  head.scale = 0.1;
  head.sum_entropy = 1.0 / 3;
  head.sum_kl = std::nextafter(1.0, 2.0);
  head.sum_trace = std::numeric_limits<double>::denorm_min();
  head.sum_top1 = std::numeric_limits<double>::max();
  head.sum_squares = -0.0;
  head.inputs.q_mean = std::numeric_limits<double>::quiet_NaN();
  head.inputs.k_mean = -std::numeric_limits<double>::infinity();
  head.gain.add(0);
  head.gain.add(0x1p-79);
  head.gain.add(123.456, 7);
  head.argmax_offset = {{-5, 3}, {0, 1}, {7, 2}};
  return stats;
}

TEST(stats_json, statistics_survive_without_losing_a_bit) {
  const Stats before = awkward_stats();
  Stats after;
  ASSERT_FALSE(from_json(to_json(before), after));
  EXPECT_EQ(to_json(after), to_json(before));
  EXPECT_TRUE(std::isnan(after.heads[0].inputs.q_mean));
  EXPECT_TRUE(std::signbit(after.heads[0].sum_squares));
  after.heads[0].inputs.q_mean = 0;
  Stats expected = before;
  expected.heads[0].inputs.q_mean = 0;
  EXPECT_EQ(after.heads, expected.heads);
  EXPECT_EQ(after.head_dim, 3);
  EXPECT_EQ(after.request.level, StatsLevel::full);
}

TEST(stats_json, a_gradient_survives_and_is_missed_by_nobody_who_has_none) {
  Stats before = awkward_stats();
  EXPECT_EQ(to_json(before).find("gradient"), std::string::npos);
  EXPECT_EQ(to_json(before).find("sum_expected_transmission_squared"), std::string::npos);
  HeadStats& head = before.heads[0];
  head.inputs = {};
  head.sum_expected_transmission_squared = 1.0 / 7;
  head.gradient.measured_rows = 9;
  head.gradient.silent_rows = 2;
  head.gradient.nonfinite_rows = 1;
  head.gradient.sent_squares = 1e-300;
  head.gradient.arrived_squares = 1.0 / 3;
  head.gradient.sum_transmission_squared = 0.1;
  head.gradient.row_transmission.add(0.25, 9);
  head.gradient.row_gain.add(0.5, 9);
  head.gradient.dead_rows = 4;
  head.gradient.dq_squares = 0.7;
  head.gradient.dk_squares = 0.8;
  head.gradient.dv_squares = 0.9;
  Stats after;
  ASSERT_FALSE(from_json(to_json(before), after));
  EXPECT_EQ(after.heads, before.heads);
  EXPECT_FALSE(after.heads[1].gradient.measured());
}

TEST(stats_json, recorded_statistics_survive_too) {
  for (const LayerInput& layer : sample_input().layers) {
    Stats after;
    ASSERT_FALSE(from_json(to_json(layer.stats), after));
    EXPECT_EQ(after.heads, layer.stats.heads);
  }
}

TEST(stats_json, the_places_of_the_largest_weight_may_be_any_integer) {
  using Limits = std::numeric_limits<std::int64_t>;
  Stats before = awkward_stats();
  for (const std::int64_t place : {Limits::min(), Limits::min() + 1, -(std::int64_t{1} << 61),
                                   (std::int64_t{1} << 50) + 1, Limits::max()}) {
    before.heads[0].argmax_offset[place] = 1;
    before.heads[0].argmax_column[place] = 1;
  }
  Stats after;
  ASSERT_FALSE(from_json(to_json(before), after));
  EXPECT_EQ(after.heads[0].argmax_offset, before.heads[0].argmax_offset);
  EXPECT_EQ(after.heads[0].argmax_column, before.heads[0].argmax_column);
}

TEST(stats_json, every_level_keeps_its_name) {
  for (const StatsLevel level :
       {StatsLevel::off, StatsLevel::max, StatsLevel::core, StatsLevel::full}) {
    Stats before, after;
    before.request.level = level;
    const std::string json = to_json(before);
    EXPECT_NE(json.find("\"level\":\"" + std::string(name(level)) + "\""), std::string::npos);
    ASSERT_FALSE(from_json(json, after));
    EXPECT_EQ(after.request.level, level);
  }
}

TEST(stats_json, what_is_no_statistics_is_refused_in_one_sentence) {
  const auto with = [](auto change) {
    Json json = Json::parse(to_json(awkward_stats()));
    change(json);
    return json.dump();
  };
  const struct {
    std::string json, part;
  } cases[] = {
      {"", "not well-formed JSON"},
      {"[]", "schema"},
      {"{\"schema\":\"poise.report\"}", "schema"},
      {with([](Json& j) { j["version"] = 99; }), "version is 99, expected 1"},
      {with([](Json& j) { j["version"] = "\x01\n"; }), "version is"},
      {with([](Json& j) { j.erase("softcap"); }), "softcap is missing"},
      {with([](Json& j) { j["heads"] = 7; }), "heads is not an array"},
      {with([](Json& j) { j["heads"][1].erase("rows"); }), "heads[1].rows is missing"},
      {with([](Json& j) { j["heads"][0]["rows"] = 1.5; }), "heads[0].rows is not an integer"},
      {with([](Json& j) { j["heads"][0]["rows"] = -1; }), "heads[0].rows"},
      {with([](Json& j) { j["heads"][0]["rows"] = 1e300; }), "heads[0].rows is not an integer"},
      {with([](Json& j) { j["heads"][0]["rows"] = std::uint64_t{1} << 63; }), "heads[0].rows"},
      {with([](Json& j) { j["heads"][0]["scale"] = "wide"; }), "heads[0].scale is not a number"},
      {with([](Json& j) { j["heads"][0]["gain"]["bins"][0] = -4; }), "heads[0].gain"},
      {with([](Json& j) { j["heads"][0]["gain"]["first_bin"] = 1 << 30; }), "heads[0].gain"},
      {with([](Json& j) { j["heads"][0]["gain"]["first_bin"] = std::int64_t{1} << 40; }), "32-bit"},
      {with([](Json& j) { j["heads"][0]["histogram"]["counts"].erase(0); }), "array of 64"},
      {with([](Json& j) { j["heads"][0]["histogram"]["counts"][3] = -1; }), "negative count"},
      {with([](Json& j) { j["heads"][0]["histogram"]["width"] = 0; }), "width"},
      {with([](Json& j) { j["heads"][0]["argmax_column"]["x"] = 1; }), "integer keys"},
      {with([](Json& j) { j["heads"][0]["argmax_offset"]["9223372036854775808"] = 1; }), "64-bit"},
      {with([](Json& j) { j["heads"][0]["argmax_offset"]["07"] = 1; }), "64-bit"},
      {with([](Json& j) { j["heads"][0]["argmax_offset"]["-0"] = 1; }), "64-bit"},
      {with([](Json& j) { j["request"]["level"] = "most"; }), "request.level"},
      {with([](Json& j) { j["request"]["every"] = 0; }), "request.every"},
      {with([](Json& j) { j["has_mask"] = 1; }), "has_mask is not true or false"},
      {with([](Json& j) { j["heads"][0]["gradient"] = 3; }), "heads[0].gradient is not an object"},
      {with([](Json& j) { j["heads"][0]["gradient"] = Json::object(); }),
       "heads[0].gradient.measured_rows is missing"},
  };
  for (const auto& c : cases) {
    Stats stats;
    stats.head_dim = 77;
    const Error error = from_json(c.json, stats);
    EXPECT_EQ(error.code(), ErrorCode::bad_file) << c.part;
    EXPECT_NE(error.message().find(c.part), std::string::npos) << error.message();
    EXPECT_TRUE(error.message().starts_with("[from_json] statistics: ")) << error.message();
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    EXPECT_EQ(stats.head_dim, 77) << "changed by " << c.part;
  }
}

TEST(stats_json, no_prefix_of_statistics_is_taken_for_statistics) {
  const std::string whole = to_json(awkward_stats());
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    Stats stats;
    EXPECT_TRUE(from_json(whole.substr(0, length), stats)) << length;
  }
}

TEST(report_json, the_report_of_the_sample_equals_its_golden_file) {
  EXPECT_EQ(compare_with_golden("report.json", to_json(build_report(sample_input()))), "");
}

// Keys of objects that are not themselves data (argmax_column, argmax_offset).
void collect_keys(const Json& json, std::set<std::string>& keys) {
  if (!json.is_structured()) return;
  for (const auto& [name, value] : json.items()) {
    if (json.is_object()) keys.insert(name);
    if (!name.starts_with("argmax")) collect_keys(value, keys);
  }
}

TEST(report_json, every_key_is_in_the_documented_schema) {
  const std::string page = test::read_file(POISE_SOURCE_DIR "/docs/report-json.md");
  std::set<std::string> keys;
  ReportInput input = sample_input();
  input.layers[0].stats.heads[0].gradient.silent_rows = 1;
  input.layers[0].what_ifs.push_back({"scale × 2", true, input.layers[0].stats});
  collect_keys(Json::parse(to_json(build_report(input))), keys);
  EXPECT_GT(keys.size(), 50u);
  for (const std::string& key : keys) {
    EXPECT_NE(page.find("`" + key + "`"), std::string::npos) << key;
  }
}

TEST(report_json, measured_transmission_stands_beside_the_expected_where_it_was_measured) {
  HeadStats measured = test::head_of_spread(1, 64, 64),
            unmeasured = test::head_of_spread(1, 64, 64);
  measured.sum_expected_transmission_squared = unmeasured.sum_expected_transmission_squared =
      64 * 0.0025;
  measured.gradient.measured_rows = 64;
  measured.gradient.silent_rows = 3;
  measured.gradient.nonfinite_rows = 1;
  measured.gradient.sum_transmission_squared = 64 * 0.0016;
  measured.gradient.row_gain.add(2.5, 64);
  measured.gradient.dead_rows = 16;
  measured.gradient.dq_squares = 9;
  measured.gradient.dk_squares = 16;
  measured.gradient.dv_squares = 25;
  ReportInput input;
  input.layers = {test::layer_of({measured, unmeasured})};
  const Json json = Json::parse(to_json(build_report(input)));
  const Json& gradient = json["heads"][0]["gradient"];
  EXPECT_EQ(gradient["measured_rows"], 64);
  EXPECT_EQ(gradient["silent_rows"], 3);
  EXPECT_EQ(gradient["nonfinite_rows"], 1);
  EXPECT_EQ(gradient["transmission"], 0.04);
  EXPECT_EQ(gradient["expected_transmission"], 0.05);
  EXPECT_NEAR(gradient["gain"].get<double>(), 2.5, 0.05);
  EXPECT_EQ(gradient["dead"], 0.25);
  EXPECT_EQ(gradient["dq_norm"], 3);
  EXPECT_EQ(gradient["dk_norm"], 4);
  EXPECT_EQ(gradient["dv_norm"], 5);
  EXPECT_FALSE(json["heads"][1].contains("gradient"));
}

TEST(report_json, a_head_at_other_temperatures_stands_beside_itself) {
  HeadStats now = test::head_of_spread(1, 64, 64), wider = test::head_of_spread(2, 64, 64);
  now.scale = 0.125;
  now.sum_entropy = 64 * 3.5;
  now.sum_temperature_variance = 64 * 0.5;
  wider.scale = 0.25;
  wider.sum_entropy = 64 * 2.75;
  ReportInput input;
  input.layers = {test::layer_of({now}), test::layer_of({now})};
  Stats twice = test::layer_of({wider}).stats, capped = twice;
  capped.has_softcap = true;
  capped.softcap = 50;
  input.layers[0].what_ifs = {{"scale × 2", true, twice}, {"softcap 50", false, capped}};
  const Report report = build_report(input);
  EXPECT_TRUE(report.has_what_ifs);
  const Json json = Json::parse(to_json(report));
  const Json& all = json["heads"][0]["what_ifs"];
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["label"], "as it is");
  EXPECT_EQ(all[0]["entropy"], 3.5);
  EXPECT_EQ(all[0]["first_order_entropy_change"], 0);
  EXPECT_EQ(all[1]["scale"], 0.25);
  EXPECT_EQ(all[1]["entropy"], 2.75);
  EXPECT_NEAR(all[1]["sigma"].get<double>(), 2, 0.04);
  EXPECT_DOUBLE_EQ(all[1]["first_order_entropy_change"].get<double>(), -0.5 * std::log(2.0));
  EXPECT_EQ(all[2]["softcap"], 50);
  EXPECT_EQ(all[2]["first_order_entropy_change"], "nan");
  EXPECT_FALSE(json["heads"][1].contains("what_ifs"));
}

TEST(report_json, advice_says_which_weights_to_multiply_and_by_what) {
  HeadStats hot = test::head_of_spread(2, 64, 64), cool = test::head_of_spread(2, 64, 64);
  hot.scores.max = 400;
  ReportInput input;
  input.layers = {test::layer_of({hot, cool}), test::layer_of({hot, cool})};
  input.layers[1].stats.kv_heads = 1;
  const Json json = Json::parse(to_json(build_report(input)));
  const Json &own_key = json["heads"][0]["advice"], &shared_key = json["heads"][2]["advice"];
  EXPECT_EQ(own_key["rule"], "mha");
  EXPECT_EQ(own_key["tau"], 100);
  EXPECT_EQ(own_key["gamma"], 0.25);
  EXPECT_EQ(own_key["clip"]["query"], 0.5);
  EXPECT_EQ(own_key["clip"]["key"], 0.5);
  EXPECT_EQ(own_key["clip_mla"]["query"], 0.5);
  EXPECT_EQ(own_key["clip_mla"]["query_rope"], 0.25);
  EXPECT_EQ(own_key["clip_mla"]["key_rope"], 1);
  EXPECT_EQ(shared_key["rule"], "gqa");
  EXPECT_EQ(shared_key["clip"]["query"], 0.25);
  EXPECT_EQ(shared_key["clip"]["key"], 1);
  EXPECT_NEAR(own_key["spread_factor"].get<double>() * own_key["sigma"].get<double>(),
              own_key["target_sigma"].get<double>(), 1e-12);
  EXPECT_EQ(json["heads"][1]["advice"]["gamma"], 1);
  EXPECT_EQ(json["heads"][1]["advice"]["clip"]["query"], 1);
}

TEST(report_json, the_same_report_gives_the_same_bytes) {
  EXPECT_EQ(to_json(build_report(sample_input())), to_json(build_report(sample_input())));
}

TEST(report_json, hostile_names_and_unmeasured_numbers_stay_well_formed_ascii) {
  const std::string hostile = "\"}],\\</script>\x1b[2J\x80\xff\xc2\x9b\n";
  ReportInput input;
  input.title = input.model = input.text = hostile;
  input.tokens = {hostile};
  input.layers = {test::layer_of({HeadStats{}, test::head_of_spread(1)})};
  input.layers[0].label = hostile;
  const std::string text = to_json(build_report(input));
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << int{c};
  }
  const Json json = Json::parse(text);
  EXPECT_EQ(json["schema"], "poise.report");
  EXPECT_EQ(json["heads"].size(), 2u);
  EXPECT_EQ(json["heads"][0]["readout"]["sigma"], "nan");
  EXPECT_EQ(json["heads"][0]["lse_min"], "inf");
  EXPECT_EQ(json["heads"][1]["lse_max"], 1 + std::log(64.0));
  EXPECT_TRUE(json["heads"][0]["histogram"].is_null());
}

}  // namespace
}  // namespace poise
