// Shapes, goals and tables of poise_bench. See cases.h.
//
// One thread throughout. A goal stands beside its figure; "best" is the fastest run against the
// fastest run of the peak, "median" the median of ratios of neighbouring runs.
#include "bench/cases.h"

#include <poise/attention.h>
#include <poise/gradient.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "timing/series.h"

namespace bench {
namespace {

using poise::Causal;
using poise::StatsLevel;
using poise::timing::alternate;
using poise::timing::median_ratio;
using poise::timing::peak_resident_bytes;
using poise::timing::reset_peak_resident;
using poise::timing::Series;

struct Shape {
  std::int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim;
};

template <class T>
struct Inputs {
  Shape shape;
  std::vector<T> query, key, value, out;

  // Standard normal elements; `spread` is the standard deviation of the scaled scores.
  explicit Inputs(const Shape& s, double spread = 1) : shape(s) {
    const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    query.resize(count(s.batch * s.q_heads * s.q_len * s.head_dim));
    key.resize(count(s.batch * s.kv_heads * s.kv_len * s.head_dim));
    value.resize(key.size());
    out.resize(query.size());
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (T& x : query) x = static_cast<T>(normal(random) * spread);
    for (T& x : key) x = static_cast<T>(normal(random));
    for (T& x : value) x = static_cast<T>(normal(random));
  }

  void run(const poise::Options& options, const poise::Extras& extras = {}) {
    const Shape& s = shape;
    const poise::Error error = poise::attention(
        poise::view(static_cast<const T*>(query.data()), {s.batch, s.q_heads, s.q_len, s.head_dim}),
        poise::view(static_cast<const T*>(key.data()), {s.batch, s.kv_heads, s.kv_len, s.head_dim}),
        poise::view(static_cast<const T*>(value.data()),
                    {s.batch, s.kv_heads, s.kv_len, s.head_dim}),
        poise::view(out.data(), {s.batch, s.q_heads, s.q_len, s.head_dim}), options, extras);
    if (error) {
      std::fprintf(stderr, "%s\n", error.message().c_str());
      std::exit(1);
    }
  }
};

// Flops of the visible pairs: what a call needs, whatever a kernel computes.
double needed_flops(const Shape& s, bool causal) {
  const double pairs = causal
                           ? 0.5 * static_cast<double>(s.q_len) * static_cast<double>(s.q_len + 1)
                           : static_cast<double>(s.q_len) * static_cast<double>(s.kv_len);
  return 4 * static_cast<double>(s.batch * s.q_heads * s.head_dim) * pairs;
}

const char* mark(bool missed) { return missed ? "  missed" : ""; }

struct ForwardRow {
  const char* name;
  Shape shape;
  bool causal;
  double goal;  // percent of peak, 0 = none set
};

template <class T>
int forward_row(const ForwardRow& row, const poise::KernelSet& kernel, const Settings& settings) {
  Inputs<T> inputs(row.shape);
  const poise::Options options{.causal = row.causal ? Causal::top_left() : Causal::none(),
                               .threads = 1};
  constexpr std::int64_t kPeakRounds = 100000;  // about a millisecond
  const double peak_flops = kernel.fma_chain(1) * static_cast<double>(kPeakRounds);
  const double flops = needed_flops(row.shape, row.causal);
  const std::vector<Series> series =
      alternate({[&] { inputs.run(options); }, [&] { (void)kernel.fma_chain(kPeakRounds); }},
                settings.seconds);
  const double best = 100 * flops / series[0].best() / (peak_flops / series[1].best());
  const double median = 100 * flops / peak_flops / median_ratio(series[0], series[1]);
  const bool missed = best < row.goal;
  std::printf("  %-34s %8.2f ms %8.1f GF %8.1f %% %8.1f %%", row.name, 1e3 * series[0].best(),
              1e-9 * flops / series[0].best(), best, median);
  if (row.goal > 0) std::printf("   goal %.0f %%%s", row.goal, mark(missed));
  std::printf("\n");
  std::fflush(stdout);
  return missed ? 1 : 0;
}

}  // namespace

int forward_section(const poise::Kernels& kernels, const Settings& settings) {
  const double rounds = 200000;
  const std::vector<Series> peak =
      alternate({[&] { (void)kernels.f32.fma_chain(static_cast<std::int64_t>(rounds)); },
                 [&] { (void)kernels.f64.fma_chain(static_cast<std::int64_t>(rounds)); }},
                0.2);
  std::printf("forward, %s, one thread; FMA peak f32 %.1f GF, f64 %.1f GF\n", kernels.name,
              1e-9 * kernels.f32.fma_chain(1) * rounds / peak[0].best(),
              1e-9 * kernels.f64.fma_chain(1) * rounds / peak[1].best());
  std::printf("  %-34s %11s %11s %10s %10s\n", "B,Hq,Hkv,Lq,Lk,D", "best", "rate", "best",
              "median");
  const ForwardRow f32_rows[] = {
      {"1,16,16,1024,1024,64 full", {1, 16, 16, 1024, 1024, 64}, false, 76},
      {"1,16,16,1024,1024,64 causal", {1, 16, 16, 1024, 1024, 64}, true, 70},
      {"1,8,8,4096,4096,64 causal", {1, 8, 8, 4096, 4096, 64}, true, 0},
      {"1,8,8,2048,2048,128 full", {1, 8, 8, 2048, 2048, 128}, false, 0},
      {"1,8,8,2048,2048,128 causal", {1, 8, 8, 2048, 2048, 128}, true, 0},
      {"1,32,8,1024,1024,128 causal", {1, 32, 8, 1024, 1024, 128}, true, 0},
      {"1,16,16,1024,1024,32 full", {1, 16, 16, 1024, 1024, 32}, false, 0},
      {"64,12,12,64,64,32 full", {64, 12, 12, 64, 64, 32}, false, 0},
  };
  int missed = 0;
  for (const ForwardRow& row : f32_rows) missed += forward_row<float>(row, kernels.f32, settings);
  const ForwardRow f64_row = {"1,8,8,1024,1024,64 full f64", {1, 8, 8, 1024, 1024, 64}, false, 0};
  missed += forward_row<double>(f64_row, kernels.f64, settings);
  return missed;
}

int tally_section(const poise::Kernels& kernels, const Settings& settings) {
  struct Row {
    const char* name;
    StatsLevel level;
    int every;
    double goal;  // percent more time, 0 = none set
  };
  const Row rows[] = {{"max", StatsLevel::max, 1, 1.5},
                      {"core", StatsLevel::core, 1, 9},
                      {"core, every 8th vector", StatsLevel::core, 8, 2},
                      {"full", StatsLevel::full, 1, 16}};
  std::printf("measuring, %s, 1,16,16,1024,1024,64 full, one thread\n", kernels.name);
  Inputs<float> inputs({1, 16, 16, 1024, 1024, 64});
  const poise::Options options{.threads = 1};
  int missed = 0;
  for (const Row& row : rows) {
    poise::Stats stats;
    stats.request.level = row.level;
    stats.request.every = row.every;
    const poise::Extras extras{.stats = &stats};
    const std::vector<Series> series = alternate(
        {[&] { inputs.run(options, extras); }, [&] { inputs.run(options); }}, settings.seconds);
    const double best = 100 * (series[0].best() / series[1].best() - 1);
    const double median = 100 * (median_ratio(series[0], series[1]) - 1);
    const bool over = row.goal > 0 && median > row.goal;
    missed += over ? 1 : 0;
    std::printf("  %-24s best %+6.1f %%  median %+6.1f %%", row.name, best, median);
    if (row.goal > 0) std::printf("   goal <= %g %%%s", row.goal, mark(over));
    std::printf("\n");
    std::fflush(stdout);
  }
  return missed;
}

int gradient_section(const poise::Kernels& kernels, const Settings& settings) {
  struct Row {
    const char* name;
    std::int64_t head_dim;
    bool causal, sinks;
    double goal;  // percent more time, 0 = none set
  };
  const Row rows[] = {{"D 64", 64, false, false, 2},
                      {"D 64, causal", 64, true, false, 0},
                      {"D 64, sinks", 64, false, true, 0},
                      {"D 128", 128, false, false, 2}};
  std::printf("measuring the gradient, %s, 1,16,16,1024,1024,D full, one thread\n", kernels.name);
  int missed = 0;
  for (const Row& row : rows) {
    const std::int64_t heads = 16, length = 1024;
    Inputs<float> inputs({1, heads, heads, length, length, row.head_dim});
    const auto wide = [&](auto& x) {
      return poise::view(x.data(), {1, heads, length, row.head_dim});
    };
    const auto column = [&](auto& x) { return poise::view(x.data(), {1, heads, length}); };
    std::vector<float> dq(inputs.query.size()), dk(dq.size()), dv(dq.size());
    std::vector<float> row_max(static_cast<std::size_t>(heads * length)), row_sum(row_max.size());
    std::vector<float> sinks(static_cast<std::size_t>(heads), 1);
    poise::Options options{.threads = 1};
    if (row.causal) options.causal = Causal::top_left();
    if (row.sinks) options.sinks = poise::view(sinks.data(), {heads});
    const poise::Tensor max = column(row_max), sum = column(row_sum);
    poise::Stats stats;
    inputs.run(options, {.stats = &stats, .row_max = &max, .row_sum = &sum});
    const auto run = [&](poise::Stats* measured) {
      const poise::Error error =
          poise::backward(wide(inputs.query), wide(inputs.key), wide(inputs.value),
                          {wide(inputs.out), max, sum, {}}, {wide(inputs.value), {}},
                          {wide(dq), wide(dk), wide(dv), {}, {}, {}, {}}, options, measured);
      if (!error) return;
      std::fprintf(stderr, "%s\n", error.message().c_str());
      std::exit(1);
    };
    const std::vector<Series> series =
        alternate({[&] { run(&stats); }, [&] { run(nullptr); }}, settings.seconds);
    const double best = 100 * (series[0].best() / series[1].best() - 1);
    const double median = 100 * (median_ratio(series[0], series[1]) - 1);
    const bool over = row.goal > 0 && median > row.goal;
    missed += over ? 1 : 0;
    std::printf("  %-24s best %+6.1f %%  median %+6.1f %%", row.name, best, median);
    if (row.goal > 0) std::printf("   goal <= %g %%%s", row.goal, mark(over));
    std::printf("\n");
    std::fflush(stdout);
  }
  return missed;
}

int mask_section(const Settings& settings) {
  const Shape shape{1, 16, 16, 1024, 1024, 64};
  constexpr std::int64_t kSeen = 824;  // not a whole number of blocks
  const Shape shorter{1, 16, 16, 1024, kSeen, 64};
  Inputs<float> inputs(shape), short_inputs(shorter);
  const std::int64_t length = shape.q_len;
  const auto square = static_cast<std::size_t>(length * length);
  std::mt19937_64 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> bias(static_cast<std::size_t>(shape.q_heads) * square);
  for (float& x : bias) x = normal(random);
  // bool views need bool elements; std::vector<bool> has none.
  const auto keys = static_cast<std::size_t>(length);
  const std::unique_ptr<bool[]> every_key(new bool[keys]), padding(new bool[keys]);
  const std::unique_ptr<bool[]> lower(new bool[square]), scattered(new bool[square]);
  for (std::size_t j = 0; j < keys; ++j) {
    every_key[j] = true;
    padding[j] = j < static_cast<std::size_t>(kSeen);
  }
  for (std::size_t at = 0; at < square; ++at) {
    lower[at] = at % keys <= at / keys;
    scattered[at] = random() % 2 == 0;
  }
  const std::int64_t seen = kSeen;
  const auto row_view = [&](const std::unique_ptr<bool[]>& row) {
    return poise::view(static_cast<const bool*>(row.get()), {1, 1, 1, length});
  };
  const auto square_view = [&](const std::unique_ptr<bool[]>& matrix) {
    return poise::view(static_cast<const bool*>(matrix.get()), {1, 1, length, length});
  };
  const auto dense_of = [&](std::int64_t heads) {
    return poise::view(static_cast<const float*>(bias.data()), {1, heads, length, length});
  };
  const poise::Options none{.threads = 1};
  struct Row {
    const char* name;
    poise::Options options;
    Inputs<float>* plain_inputs;  // what the same visible keys cost without the mask
    poise::Options plain;
    double goal;  // percent more time, 0 = none set
  };
  const Row rows[] = {
      {"f32 bias [Lq, Lk]", {.bias = dense_of(1), .threads = 1}, &inputs, none, 15},
      {"f32 bias [Hq, Lq, Lk]", {.bias = dense_of(shape.q_heads), .threads = 1}, &inputs, none, 15},
      {"bool [Lk], every key", {.mask = row_view(every_key), .threads = 1}, &inputs, none, 2},
      {"bool [Lk], 824 keys of 1024",
       {.mask = row_view(padding), .threads = 1},
       &short_inputs,
       none,
       2},
      {"kv_lengths 824 of 1024",
       {.kv_lengths = poise::view(&seen, {1}), .threads = 1},
       &short_inputs,
       none,
       2},
      {"bool [Lq, Lk], lower triangle",
       {.mask = square_view(lower), .threads = 1},
       &inputs,
       {.causal = Causal::top_left(), .threads = 1},
       0},
      {"bool [Lq, Lk], every other key",
       {.mask = square_view(scattered), .threads = 1},
       &inputs,
       none,
       0},
      {"dropout 0.1", {.dropout = {.probability = 0.1}, .threads = 1}, &inputs, none, 0},
  };
  std::printf("masks, 1,16,16,1024,1024,64, one thread, against the same keys without one\n");
  int missed = 0;
  for (const Row& row : rows) {
    const std::vector<Series> series =
        alternate({[&] { inputs.run(row.options); }, [&] { row.plain_inputs->run(row.plain); }},
                  settings.seconds);
    const double best = 100 * (series[0].best() / series[1].best() - 1);
    const double median = 100 * (median_ratio(series[0], series[1]) - 1);
    const bool over = row.goal > 0 && median > row.goal;
    missed += over ? 1 : 0;
    std::printf("  %-32s best %+6.1f %%  median %+6.1f %%", row.name, best, median);
    if (row.goal > 0) std::printf("   goal <= %g %%%s", row.goal, mark(over));
    std::printf("\n");
    std::fflush(stdout);
  }
  return missed;
}

int spread_section(const Settings& settings) {
  constexpr double kGoal = 1.1;
  std::printf("time against the spread of the logits, 1,4,4,1024,1024,64 full, one thread\n");
  const Shape shape{1, 4, 4, 1024, 1024, 64};
  const poise::Options options{.threads = 1};
  int missed = 0;
  for (const bool measuring : {false, true}) {
    Inputs<float> base(shape, 1);
    poise::Stats stats;
    stats.request.level = StatsLevel::full;
    const poise::Extras extras{.stats = measuring ? &stats : nullptr};
    for (const double spread : {10.0, 20.0, 40.0, 100.0}) {
      Inputs<float> wide(shape, spread);
      const std::vector<Series> series =
          alternate({[&] { wide.run(options, extras); }, [&] { base.run(options, extras); }},
                    settings.seconds / 2);
      const double ratio = median_ratio(series[0], series[1]);
      const bool over = ratio > kGoal;
      missed += over ? 1 : 0;
      std::printf("  std %3.0f, statistics %-4s %6.3f x of std 1   goal <= %.1f x%s\n", spread,
                  measuring ? "full" : "off", ratio, kGoal, mark(over));
      std::fflush(stdout);
    }
  }
  return missed;
}

int memory_section(const Settings& settings) {
  constexpr double kGoal = 64.0 * 1024 * 1024;
  // Long enough for Lq * Lk floats (1 GiB a head) to stand out; a smoke run only proves it runs.
  const std::int64_t length = settings.tolerant ? 2048 : 16384;
  Inputs<float> inputs({1, 8, 8, length, length, 64});
  std::fill(inputs.out.begin(), inputs.out.end(), 0.0f);
  reset_peak_resident();
  const double before = peak_resident_bytes();
  inputs.run({.causal = Causal::top_left(), .threads = 2});
  const double added = peak_resident_bytes() - before;
  const bool over = added > kGoal;
  std::printf("memory, 1,8,8,%lld,%lld,64 causal, two threads: %.1f MiB added   goal < 64 MiB%s\n",
              static_cast<long long>(length), static_cast<long long>(length), added / (1024 * 1024),
              mark(over));
  return over ? 1 : 0;
}

}  // namespace bench
