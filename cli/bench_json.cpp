// The JSON of `poise bench`: every figure with its unit in its name.
//
// In: a BenchResult. Out: text, indented, with a line end. docs/performance.md has the members.
// Must not happen here: a figure that the table's arithmetic does not have.
#include <poise/cpu.h>

#include <nlohmann/json.hpp>

#include "bench_faces.h"

namespace poise::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;

Json machine_json(const BenchResult& result) {
  Json caches = Json::array();
  for (const Cache& cache : result.machine.caches)
    caches.push_back({{"level", cache.level},
                      {"type", cache.type},
                      {"bytes", cache.bytes},
                      {"shared_by_cpus", cache.shared_by}});
  return {{"cpu", result.machine.cpu},
          {"cores", result.machine.cores},
          {"caches", caches},
          {"isa", result.isa},
          {"isas", available_isas()}};
}

Json peak_json(const PeakRate& peak, int threads) {
  return {{"isa", peak.isa},
          {"threads", threads},
          {"f32_gflops_per_s", peak.f32 / kGiga},
          {"f64_gflops_per_s", peak.f64 / kGiga}};
}

Json limits_json(const MachineLimits& limits) {
  Json peaks = Json::array(), streams = Json::array();
  for (const PeakRate& peak : limits.peaks) peaks.push_back(peak_json(peak, 1));
  const auto stream = [&](double rate, int threads) {
    streams.push_back({{"threads", threads},
                       {"buffer_bytes", limits.stream_bytes},
                       {"gbytes_per_s", rate / kGiga}});
  };
  stream(limits.stream, 1);
  if (limits.threads > 1) {
    peaks.push_back(peak_json(limits.peak_together, limits.threads));
    stream(limits.stream_together, limits.threads);
  }
  return {{"multiply_add", peaks}, {"stream", streams}};
}

Json share_json(const char* unit, double needed, const BenchFigures& figures,
                const LimitShare& limit) {
  const std::string suffix = std::string("_") + unit + "_per_s";
  return {{"best" + suffix, needed / figures.best_s / kGiga},
          {"median" + suffix, needed / figures.median_s / kGiga},
          {"limit" + suffix, limit.rate / kGiga},
          {"percent_of_limit_best", limit.percent_best},
          {"percent_of_limit_median", limit.percent_median}};
}

Json shape_json(const BenchCase& bench, const BenchFigures& figures) {
  const Shape& shape = bench.shape;
  Json json{{"name", bench.name()},
            {"batch", shape.batch},
            {"q_heads", shape.q_heads},
            {"kv_heads", shape.kv_heads},
            {"q_len", shape.q_len},
            {"kv_len", shape.kv_len},
            {"head_dim", shape.head_dim},
            {"dtype", name(bench.dtype)},
            {"causal", causal_text(bench.causal)},
            {"window_keys", bench.window > 0 ? Json(bench.window) : Json(nullptr)},
            {"needed_flops", bench.flops()},
            {"needed_kv_bytes", bench.kv_bytes()},
            {"layers_in_turn", figures.layers},
            {"turns", figures.turns},
            {"best_ms", 1e3 * figures.best_s},
            {"median_ms", 1e3 * figures.median_s},
            {"limit", figures.memory_bound() ? "stream" : "multiply_add"},
            {"multiply_add", share_json("gflops", bench.flops(), figures, figures.arithmetic)},
            {"stream",
             share_json("gbytes", static_cast<double>(bench.kv_bytes()), figures, figures.stream)},
            {"memory_added_bytes", figures.memory_bytes
                                       ? Json(static_cast<std::int64_t>(*figures.memory_bytes))
                                       : Json(nullptr)}};
  for (const StatsCost& cost : figures.stats)
    json["statistics"].push_back({{"level", name(cost.level)},
                                  {"more_time_percent_best", cost.percent_best},
                                  {"more_time_percent_median", cost.percent_median}});
  return json;
}

}  // namespace

std::string bench_json(const BenchResult& result) {
  Json shapes = Json::array();
  for (std::size_t i = 0; i < result.figures.size(); ++i)
    shapes.push_back(shape_json(result.cases[i], result.figures[i]));
  const Json json{{"format", "poise.bench"},
                  {"format_version", 1},
                  {"poise_version", POISE_VERSION},
                  {"compiler", compiler_text()},
                  {"date", result.date},
                  {"command", result.command},
                  {"machine", machine_json(result)},
                  {"threads", result.settings.threads},
                  {"clock", result.settings.threads == 1 ? "thread_cpu" : "wall"},
                  {"seconds_per_shape", result.settings.seconds},
                  {"limits", limits_json(result.limits)},
                  {"shapes", shapes}};
  // A name from the machine that is no UTF-8 must not cost the run.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace poise::cli
