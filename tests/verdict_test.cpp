// Every rule just above and just below its threshold.
// ctest-labels: fast unit
#include <gtest/gtest.h>
#include <poise/health.h>

#include <ostream>
#include <string>

#include "support/subject.h"

namespace poise::test {
namespace {

using Storage = JudgeContext::Storage;

struct Border {
  const char* name;
  const char* flags;
  void (*change)(Subject&);
};
void PrintTo(const Border& border, std::ostream* os) { *os << border.name; }

class Rule : public testing::TestWithParam<Border> {};

TEST_P(Rule, fires_at_its_threshold_and_not_before) {
  Subject subject;
  GetParam().change(subject);
  EXPECT_EQ(flags_of(subject.judged()), GetParam().flags);
}

const Border kBorders[] = {
    {"healthy_head", "", [](Subject&) {}},

    {"overflow_below_warn", "", [](Subject& s) { s.head().max_dot = 32751; }},
    {"overflow_warn", "warn overflow fp16", [](Subject& s) { s.head().max_dot = 32752; }},
    {"overflow_below_critical", "warn overflow fp16", [](Subject& s) { s.head().max_dot = 65519; }},
    {"overflow_critical", "critical overflow fp16", [](Subject& s) { s.head().max_dot = 65520; }},
    {"overflow_negative", "critical overflow fp16", [](Subject& s) { s.head().min_dot = -65520; }},

    {"bf16_below_warn", "",
     [](Subject& s) {
       s.context.scores_stored = Storage::bf16;
       s.head().scores.min = -15.9;
     }},
    {"bf16_warn", "warn precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::bf16;
       s.head().scores.max = 16;
     }},
    {"bf16_below_bad", "warn precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::bf16;
       s.head().scores.min = -63.9;
     }},
    {"bf16_bad", "bad precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::bf16;
       s.head().scores.min = -64;
     }},
    {"f16_below_warn", "",
     [](Subject& s) {
       s.context.scores_stored = Storage::f16;
       s.head().scores.min = -127.9;
     }},
    {"f16_warn", "warn precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::f16;
       s.head().scores.min = -128;
     }},
    {"f16_below_bad", "warn precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::f16;
       s.head().scores.min = -511;
     }},
    {"f16_bad", "bad precision 16-bit",
     [](Subject& s) {
       s.context.scores_stored = Storage::f16;
       s.head().scores.min = -512;
     }},
    {"f32_scores_have_no_precision_rule", "", [](Subject& s) { s.head().scores.min = -900; }},

    {"ties_at_one_percent", "",
     [](Subject& s) {
       s.context.pv_in_bf16 = true;
       s.head().measured_rows = 1000;
       s.head().near_tie_rows = 10;
       s.head().sum_kl = 420;
     }},
    {"ties_above_one_percent", "warn tie-bias bf16",
     [](Subject& s) {
       s.context.pv_in_bf16 = true;
       s.head().measured_rows = 999;
       s.head().near_tie_rows = 10;
       s.head().sum_kl = 420;
     }},
    {"nine_ties_are_too_few", "",
     [](Subject& s) {
       s.context.pv_in_bf16 = true;
       s.head().near_tie_rows = 9;
     }},
    {"ties_in_float32", "", [](Subject& s) { s.head().near_tie_rows = 50; }},

    {"exploding_below_bad", "", [](Subject& s) { s.head().scores.min = -999; }},
    {"exploding_bad", "bad exploding", [](Subject& s) { s.head().scores.min = -1000; }},
    {"exploding_below_critical", "bad exploding", [](Subject& s) { s.head().scores.min = -9999; }},
    {"exploding_critical", "critical exploding", [](Subject& s) { s.head().scores.min = -1e4; }},
    {"exploding_upwards_is_hot_too", "bad exploding, bad hot",
     [](Subject& s) { s.head().scores.max = 1000; }},

    {"hot_below_watch", "", [](Subject& s) { s.head().scores.max = 49.9; }},
    {"hot_watch", "watch hot", [](Subject& s) { s.head().scores.max = 50; }},
    {"hot_at_tau", "watch hot", [](Subject& s) { s.head().scores.max = 100; }},
    {"hot_bad", "bad hot", [](Subject& s) { s.head().scores.max = 100.1; }},
    {"all_negative_head_is_never_hot", "",
     [](Subject& s) {
       s.head().scores.max = -500;
       s.head().scores.min = -900;
     }},

    {"saturated_by_rows", "bad saturated", [](Subject& s) { saturate(s, 50, 2.95); }},
    {"saturated_rows_below", "", [](Subject& s) { saturate(s, 49, 2.95); }},
    {"saturated_by_trace", "bad saturated",
     [](Subject& s) {
       saturate(s, 0, 2.95);
       s.head().trace = sketch_of(0.0195);
     }},
    {"saturated_trace_above", "",
     [](Subject& s) {
       saturate(s, 0, 2.95);
       s.head().trace = sketch_of(0.0206);
     }},
    {"one_hot_rows_at_a_modest_spread_are_peaked", "information peaked by design",
     [](Subject& s) { saturate(s, 50, 2.8); }},
    {"low_trace_at_a_modest_spread_is_nothing", "",
     [](Subject& s) {
       saturate(s, 0, 2.8);
       s.head().trace = sketch_of(0.0195);
     }},

    {"peaked_by_offset", "information peaked by design",
     [](Subject& s) { set_offset_share(s.head(), 90, -1); }},
    {"peaked_offset_below", "", [](Subject& s) { set_offset_share(s.head(), 89, -1); }},
    {"peaked_by_column", "information peaked by design",
     [](Subject& s) {
       s.head().argmax_column = {{5, 90}, {9, 10}};
     }},
    {"few_rows_agree_by_chance", "",
     [](Subject& s) {
       s.head().measured_rows = 9;
       s.head().argmax_column = {{5, 9}};
     }},
    {"ten_rows_agree_on_purpose", "information peaked by design",
     [](Subject& s) {
       s.head().measured_rows = 10;
       s.head().argmax_column = {{5, 10}};
     }},
    {"saturated_by_design_is_a_warning", "warn saturated, information peaked by design",
     [](Subject& s) {
       saturate(s, 60, 15);
       set_offset_share(s.head(), 98, -1);
     }},
    {"dead_by_design_is_a_warning", "warn dead gradient, information peaked by design",
     [](Subject& s) {
       set_gain(s.head(), 0.08);
       set_offset_share(s.head(), 98, -1);
     }},

    {"sink_above", "information sink-dominated",
     [](Subject& s) { s.head().tracked[0].sum_weight = 30.1; }},
    {"sink_at", "", [](Subject& s) { s.head().tracked[0].sum_weight = 30; }},
    {"sink_at_key_3", "information sink-dominated",
     [](Subject& s) { s.head().tracked[3].sum_weight = 30.1; }},
    {"saturated_only_with_its_sink", "information sink-dominated",
     [](Subject& s) {
       saturate(s, 80, 5);
       s.head().tracked[0].sum_weight = 80;
       set_without_sink(s.head(), 1, 0.9, 0);
     }},
    {"saturated_without_its_sink_too", "bad saturated, information sink-dominated",
     [](Subject& s) {
       saturate(s, 80, 5);
       s.head().tracked[0].sum_weight = 80;
       set_without_sink(s.head(), 4, 0.01, 0);
     }},
    {"a_weak_sink_is_not_taken_out", "bad saturated",
     [](Subject& s) {
       saturate(s, 80, 5);
       s.head().tracked[0].sum_weight = 20;
       set_without_sink(s.head(), 1, 0.9, 0);
     }},

    {"diffuse_below", "warn diffuse", [](Subject& s) { s.head().sum_kl = 0.0499 * kRows; }},
    {"diffuse_at", "", [](Subject& s) { s.head().sum_kl = 0.0501 * kRows; }},
    {"a_diffuse_head_has_no_peak", "warn diffuse",
     [](Subject& s) {
       s.head().sum_kl = 0.01 * kRows;
       set_offset_share(s.head(), 98, 0);
     }},

    {"dead_below", "bad dead gradient", [](Subject& s) { set_gain(s.head(), 0.097); }},
    {"dead_above", "", [](Subject& s) { set_gain(s.head(), 0.103); }},
    {"transmission_below_a_quarter", "bad dead gradient",
     [](Subject& s) { set_transmission(s.head(), 0.0249, 0.1); }},
    {"transmission_above_a_quarter", "",
     [](Subject& s) { set_transmission(s.head(), 0.0251, 0.1); }},
    {"transmission_without_an_expectation", "",
     [](Subject& s) { set_transmission(s.head(), 0.0001, 0); }},
    {"expectation_without_transmission", "",
     [](Subject& s) { s.head().sum_expected_transmission_squared = kRows; }},
    {"low_transmission_by_design_is_a_warning", "warn dead gradient, information peaked by design",
     [](Subject& s) {
       set_transmission(s.head(), 0.0249, 0.1);
       set_offset_share(s.head(), 98, -1);
     }},
};
INSTANTIATE_TEST_SUITE_P(Each, Rule, testing::ValuesIn(kBorders),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace poise::test
