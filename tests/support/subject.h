// Statistics made by hand for the rules to judge: a healthy head in which one thing is changed.
//
// 100 rows of 64 keys (freezing spread 2.884, sigma* 2.019), D = 64, scale 1/8, level full.
#pragma once

#include <poise/health.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace poise::test {

constexpr int kRows = 100;
constexpr double kKeys = 64;  // freezing spread 2.884, sigma* 2.019

inline Sketch sketch_of(double value, int times = kRows) {
  Sketch sketch;
  sketch.add(value, times);
  return sketch;
}

inline void set_gain(HeadStats& head, double gain) {
  head.gain = sketch_of(gain);
  head.dead_rows = gain < kDeadGain ? kRows : 0;
}

// Root mean squares over the rows: measured by backward, and expected of independent dP.
inline void set_transmission(HeadStats& head, double measured, double expected) {
  head.gradient.measured_rows = kRows;
  head.gradient.sum_transmission_squared = kRows * measured * measured;
  head.gradient.row_transmission = sketch_of(measured);
  head.gradient.row_gain = sketch_of(kKeys * measured);
  head.sum_expected_transmission_squared = kRows * expected * expected;
}

inline void set_offset_share(HeadStats& head, int rows, std::int64_t offset) {
  head.argmax_offset = {{offset, rows}, {offset + 7, kRows - rows}};
}

// What is left of a row without key 0.
inline void set_without_sink(HeadStats& head, double sigma, double trace, int above_99) {
  head.tracked[0].rows_without = kRows;
  head.tracked[0].above_99_without = above_99;
  head.tracked[0].sum_entropy_without = 2.5 * kRows;
  head.tracked[0].trace_without = sketch_of(trace);
  head.tracked[0].sigma_without = sketch_of(sigma);
}

inline HeadStats healthy_head() {
  HeadStats head;
  head.scale = 0.125;
  head.rows = head.measured_rows = kRows;
  head.visible_keys = kRows * kKeys;
  head.sum_log_keys = kRows * std::log(kKeys);
  head.scores.max = 4;
  head.scores.min = -4;
  head.scores.sum_variance = kRows;
  head.scores.sigma = sketch_of(1);
  head.max_dot = 32;
  head.min_dot = -32;
  head.sum_entropy_ratio = 0.9 * kRows;
  head.sum_kl = 0.42 * kRows;
  head.sum_trace = 0.95 * kRows;
  head.entropy_ratio = sketch_of(0.9);
  head.kl = sketch_of(0.42);
  head.top1 = sketch_of(0.1);
  head.rest = sketch_of(0.9);
  head.trace = sketch_of(0.95);
  head.effective_keys = sketch_of(30);
  set_gain(head, 1.4);
  set_offset_share(head, 50, -3);
  head.argmax_column = {{1, 40}, {2, 60}};
  return head;
}

inline Stats stats_of(std::vector<HeadStats> heads) {
  Stats stats;
  stats.request.level = StatsLevel::full;
  stats.head_dim = 64;
  stats.kv_heads = static_cast<std::int64_t>(heads.size());
  stats.heads = std::move(heads);
  return stats;
}

struct Subject {
  Stats stats = stats_of({healthy_head()});
  JudgeContext context;
  HeadStats& head() { return stats.heads[0]; }
  HeadHealth judged() const { return judge(stats, {}, context).heads[0]; }
};

// "bad saturated, information sink-dominated"
inline std::string flags_of(const HeadHealth& head) {
  std::string text;
  for (const Flag& flag : head.flags)
    text += (text.empty() ? "" : ", ") + std::string(name(flag.severity)) + " " + name(flag.kind);
  return text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void saturate(Subject& s, int above_99, double sigma) {
  s.head().rows_above_99 = above_99;
  s.head().scores.sigma = sketch_of(sigma);
}

}  // namespace poise::test
