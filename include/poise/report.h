// The health report: one model, three faces. build_report() judges the statistics of every layer,
// puts the findings into words and chooses what to show; to_text, to_json and to_html only print
// what the model holds. Works on any engine's Stats.
//
// Strings that come from outside (labels, tokens, titles) may hold anything: every face escapes
// them, so that no name can inject markup, JSON or a terminal control sequence; invalid UTF-8 is
// replaced by U+FFFD, and what is too long to print is shortened.
// All functions are pure, never throw and may run on any thread.
#pragma once

#include <poise/error.h>
#include <poise/health.h>
#include <poise/series.h>
#include <poise/stats.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace poise {

inline constexpr int kReportSchemaVersion = 1;  // of to_json(Report), docs/report-json.md
inline constexpr int kStatsSchemaVersion = 1;   // of to_json(Stats), docs/report-json.md

// One layer (or step, or call) as measured.
struct LayerInput {
  std::string label;  // "L0"; empty = "L" and the position in ReportInput::layers
  Stats stats;        // any level but off; level core leaves out histogram and gradient gain
  // The same input measured with a wider histogram, for heads whose scores leave the first one's
  // range. Only its histograms are used.
  std::optional<Stats> wide;
  std::vector<WhatIfStats> what_ifs{};  // the same input at other temperatures; may be empty
};

// What was measured, how, and with which rules to judge it. Every member but layers may be left at
// its default: what is unknown is left out of the page.
struct ReportInput {
  std::string title;      // what was measured, in a few words: "rxnmapper 0.4.3, one reaction"
  std::string model;      // name and version of the model
  std::string licence;    // of the model
  std::string text;       // the input the model read
  std::string precision;  // dtype of the call: "float32"
  std::string mask;       // "no mask", "causal bottom_right", ...
  std::string isa;        // "avx512"
  int threads = 0;
  std::string date;     // already formatted, with its zone
  std::string command;  // reproduces this report
  double attention_ms = std::numeric_limits<double>::quiet_NaN();  // all layers, statistics off
  double measuring_percent = std::numeric_limits<double>::quiet_NaN();  // extra time, statistics on
  std::int64_t batch = 0, q_len = 0, kv_len = 0;                        // 0 = unknown
  std::vector<std::string> tokens;  // names of the keys; may be shorter than kv_len
  std::vector<LayerInput> layers;
  // The same layers over the steps of a run, known by their labels; empty = not a run. read_run()
  // of run_log.h fills both from a run log.
  std::vector<SeriesLayer> series;
  JudgeContext context;
  Thresholds thresholds;
};

// One numbered sentence of the report: bold claim, numbers, then what to do.
struct Finding {
  Severity severity = Severity::healthy;
  std::string claim;    // a full sentence, the only bold part
  std::string numbers;  // one to three sentences that carry it
  std::string remedy;   // imperative, with the factor; empty = nothing to do
  std::string section;  // anchor of the section that shows it: "scores", "variance", "heads", ...
};

// Histogram of scores ready to draw.
struct HeadHistogram {
  double low = 0, width = 0;          // bins [low + i width, low + (i + 1) width)
  std::vector<std::int64_t> counts;   // empty = not measured
  std::int64_t below = 0, above = 0;  // scores outside the bins
  std::int64_t total = 0;             // all scores, binned or not
};

// The numbers of the layer x head grid, in this order.
enum class GridMetric : std::uint8_t { spread, max_score, entropy, saturated, gain };
inline constexpr int kGridMetrics = 5;

inline constexpr int kTop1Points = 21;  // of ReportHead::top1_logit

struct ReportHead {
  int layer = 0, head = 0;  // positions
  std::string name;         // "L0 H3": Report::layer_labels and the head, escaped by the faces
  double scale = 0;         // the scale the head ran with
  std::int64_t rows = 0, measured_rows = 0, empty_rows = 0, nonfinite_rows = 0, near_tie_rows = 0;
  double lse_min = 0, lse_max = 0;  // nats; infinite when no row was measured
  // Of backward(); what it measured is in health.readout. Norms are 0 where not asked for.
  std::int64_t gradient_rows = 0, silent_rows = 0, nonfinite_gradient_rows = 0;
  double dq_norm = 0, dk_norm = 0, dv_norm = 0;
  std::array<double, kTrackedKeys> tracked_weight{};  // mean weight of keys 0 ... 3; NaN = unknown
  // Nearness to trouble of each grid metric, 0 ... 1 (about 0.5 where a rule begins to bite); NaN =
  // not measured. What the grid tints; the verdict stays with the marks.
  std::array<double, kGridMetrics> trouble{};
  // How sharp the rows are: ln(p / (1 - p)) of their largest weight p at the quantiles 0, 1/20, ...
  // 1 over rows, within 3 % of p / (1 - p); NaN = not measured.
  std::array<double, kTop1Points> top1_logit{};
  HeadHealth health;  // verdict, flags, read-outs, three predictions of the spread
  HeadHistogram histogram;
  // Temperatures beside each other, the head as it is first; empty where none was asked for.
  std::vector<WhatIfReadout> what_ifs;
};

// A layer over the steps of a run.
struct ReportSeriesLayer {
  SeriesLayer layer;           // its label valid Unicode
  std::string label;           // what the faces call it
  std::vector<Growth> growth;  // of each head's S+
  // The head that crosses tau first: the earliest that has, else the earliest expected to; -1 =
  // none.
  int hot_head = -1;
};

// A run over time; without layers where the input had no series of two steps or more.
struct ReportSeries {
  std::vector<ReportSeriesLayer> layers;
  std::int64_t steps = 0, first_step = 0, last_step = 0;  // steps = how many were measured
  int hot_layer = -1;  // whose hot_head is the first of all to cross tau; -1 = none
  // The first sick head: of the earliest step at which any verdict was at least bad, the most
  // severe.
  int sick_layer = -1;    // position in layers; -1 = none was
  int sick_point = -1;    // position in its points
  std::string sick_name;  // "L0 H3"
};

// What the faces print. Heads are in order of layer, then head.
struct Report {
  ReportInput input;    // without the statistics and the series: layers keep their labels only
  ReportSeries series;  // empty unless the input had one
  int layers = 0;
  // What the faces call the layers: input.layers[i].label, of long names the part that differs.
  std::vector<std::string> layer_labels;
  int widest_layer = 0;                // most heads in any layer
  std::int64_t head_dim = 0;           // 0 = layers differ, or none
  StatsLevel level = StatsLevel::off;  // the lowest of all layers
  std::int64_t rows = 0;               // query rows over all heads
  std::vector<ReportHead> heads;
  // Heads by severity of their verdict; one without a measured row and without a flag is in none.
  std::array<int, kSeverities> counts{};
  Severity worst = Severity::healthy;

  // The verdict in one sentence; the first part is the alarming clause, empty when all is well.
  std::string headline_alarm, headline_rest;
  std::vector<Finding> findings;  // at most five, the most severe first

  int worst_head = -1;       // the head to look at first (highest severity, then widest); -1 = none
  int healthy_head = -1;     // the healthy head of spread nearest 1; -1 = none
  std::vector<int> order;    // all heads by severity, then spread: the order of the table
  double target_sigma = 0;   // median of the heads' targets; NaN when no row was measured
  double typical_keys = 0;   // median of the heads' visible keys per row
  bool has_moments = false;  // some head knows all three predictions of its spread
  bool has_histogram = false;  // some head has a histogram
  bool has_gain = false;       // some head has a gradient gain
  bool has_gradient = false;   // some head has a measured transmission
  bool has_what_ifs = false;   // some head was run at other temperatures
};

// Judges every layer and composes the report. Never fails: without layers, heads or rows the
// headline says so. Cost: O(heads), no statistics are recomputed.
Report build_report(const ReportInput& input);

struct TextStyle {
  bool unicode = true;     // false: ASCII only
  bool colour = false;     // ANSI colours and bold
  int width = 100;         // columns, 40 ... 400; values outside are clamped
  bool all_heads = false;  // every head in the table, not only the first five by verdict
  bool rules = false;      // the thresholds with their sources
};

// The terminal face. Ends with a newline.
std::string to_text(const Report& report, const TextStyle& style = {});

// The machine face: one JSON object in ASCII (other characters as \u escapes), keys in a fixed
// order, numbers in the shortest form that reads back exactly, NaN and infinities as strings. No
// newline at the end. Schema: docs/report-json.md.
std::string to_json(const Report& report);

// The page: one self-contained HTML file without external references; light, dark and print styles.
// Readable without its script, which opens head cards, sorts the table and writes CSV and JSON; a
// content security policy admits that script and that style sheet only. Below 1 MB for 48 layers of
// 32 heads.
std::string to_html(const Report& report);

// Statistics to JSON and back without losing a bit: from_json(to_json(s)) gives s. One line.
std::string to_json(const Stats& stats);

// Errors: bad_file, naming the member that is missing, of the wrong type or out of range, or an
// unknown schema version; stats is then unchanged.
Error from_json(std::string_view json, Stats& stats);

}  // namespace poise
