// poise bench: how close attention comes to what this machine can do.
//
// In: shapes, or the default list. Out: a table on standard output, row by row as it is measured;
// JSON and an SVG chart on request, after the last row. An interrupt leaves no file.
// Must not happen here: timing (bench_run.cpp), a word of a face (bench_table.cpp and its
// neighbours).
#include <poise/cpu.h>
#include <poise/limits.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_case.h"
#include "bench_faces.h"
#include "bench_run.h"
#include "failure.h"
#include "machine.h"
#include "options.h"
#include "output.h"
#include "timing/series.h"
#include "verbs.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::vector<std::string> shapes;
  std::string dtype, json, svg;
  std::int64_t window = 0;
  CausalOption causal;
  BenchSettings settings;
};

const std::map<std::string, DType> kDTypes{
    {"f32", DType::f32}, {"f64", DType::f64}, {"f16", DType::f16}, {"bf16", DType::bf16}};

std::vector<BenchCase> chosen_cases(const Arguments& arguments) {
  const std::optional<DType> dtype =
      arguments.dtype.empty() ? std::nullopt : std::optional(kDTypes.at(arguments.dtype));
  std::vector<BenchCase> cases;
  for (const std::string& text : arguments.shapes) {
    BenchCase bench;
    bench.dtype = dtype.value_or(DType::f32);
    bench.shape = parse_shape("--shape", text);
    const Shape& shape = bench.shape;
    if (std::min({shape.batch, shape.q_heads, shape.kv_heads, shape.q_len, shape.kv_len,
                  shape.head_dim}) < 1)
      throw usage_failure("--shape: '" + text + "' has a 0, and nothing to time");
    bench.causal = arguments.causal.causal(shape.q_len, shape.kv_len);
    bench.window = arguments.window;
    cases.push_back(bench);
  }
  if (cases.empty()) {
    if (arguments.causal.causal_given() || arguments.window > 0)
      throw usage_failure(std::string(arguments.window > 0 ? "--window" : "--causal") +
                          ": describes --shape; the default shapes have masks of their own");
    cases = default_bench_cases(dtype);
  }
  return cases;
}

// Everything that can be refused is, before anything is timed.
void check_case(const BenchCase& bench, int threads) {
  const Shape& shape = bench.shape;
  const auto absent = [&](std::int64_t heads, std::int64_t length) {
    return detail::contiguous_view<ConstTensor>(static_cast<const void*>(nullptr), bench.dtype,
                                                {shape.batch, heads, length, shape.head_dim});
  };
  std::string ignored;
  const ConstTensor key = absent(shape.kv_heads, shape.kv_len);
  if (const Error error =
          explain(absent(shape.q_heads, shape.q_len), key, key, bench.options(threads), &ignored))
    throw Failure("--shape: " + bench.shape_text() + ": " + error.message());
  const auto available = static_cast<double>(available_memory_bytes());
  if (available > 0 && bench.tensor_bytes() > available)
    throw Failure("--shape: " + bench.shape_text() + " takes " +
                  digits(bench.tensor_bytes() / (1 << 30)) + " GiB, and " +
                  digits(available / (1 << 30)) + " GiB are free");
  if (bench.flops() == 0)
    throw usage_failure("--shape: " + bench.shape_text() + ": with this " +
                        (bench.window > 0 ? "--window" : "--causal") +
                        " no query sees a key, and there is nothing to time");
}

MachineLimits limits_of(const Machine& machine, const BenchSettings& settings) {
  // Four times the last-level cache leaves no more than a quarter of it in there.
  constexpr std::int64_t kLeast = std::int64_t{256} << 20, kCaches = 4;
  // A peak is steady within a few milliseconds, and memory within a few passes.
  constexpr double kSecondsPerRate = 0.2;
  LimitsRequest request;
  if (settings.threads > 1) request.threads = settings.threads;
  request.stream_bytes = std::max(kLeast, kCaches * machine.last_cache_bytes());
  if (const std::int64_t available = available_memory_bytes(); available > 0)
    request.stream_bytes = std::min(request.stream_bytes, available / 4);
  request.seconds = std::min(settings.seconds, kSecondsPerRate);
  MachineLimits limits;
  throw_if(measure_limits(request, &limits));
  return limits;
}

int bench(const Arguments& arguments, const Session& session) {
  constexpr double kMostSeconds = 3600;
  const double seconds = arguments.settings.seconds;
  if (!(seconds > 0 && seconds <= kMostSeconds))
    throw usage_failure("--seconds: " + plain(seconds) + " is not above 0 and at most " +
                        plain(kMostSeconds));
  BenchResult result;
  result.cases = chosen_cases(arguments);
  for (const BenchCase& one : result.cases) check_case(one, arguments.settings.threads);
  OutputFiles files;
  if (!arguments.json.empty()) files.check("--json", arguments.json);
  if (!arguments.svg.empty()) files.check("--svg", arguments.svg);

  timing::share_one_heap();
  result.machine = this_machine();
  result.isa = active_isa();
  result.date = now_text();
  result.command = session.command;
  result.settings = arguments.settings;
  result.settings.last_cache_bytes = result.machine.last_cache_bytes();
  result.limits = limits_of(result.machine, result.settings);
  print(bench_head(result));
  for (const BenchCase& one : result.cases) {
    result.figures.push_back(run_case(one, result.settings));
    print(bench_row(result, result.figures.size() - 1));
  }
  print(bench_foot(result));
  if (!arguments.json.empty()) files.add_text("--json", arguments.json, bench_json(result));
  if (!arguments.svg.empty()) files.add_text("--svg", arguments.svg, bench_chart(result));
  files.commit();
  return kExitDone;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto* verb = app.add_subcommand(
      "bench", "Time attention on this machine, in percent of what the machine can do");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("--shape", arguments->shapes,
                   "batch, heads, lengths and head_dim of a call, once or more; without it a list "
                   "of prefill and decode shapes that takes about a minute")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("B,Hq,Hkv,Lq,Lk,D");
  arguments->causal.add_to(*verb);
  verb->add_option("--window", arguments->window,
                   "a query sees W keys at most, the last of them on its diagonal")
      ->check(whole_number(1, std::numeric_limits<std::int64_t>::max()))
      ->type_name("W");
  verb->add_option("--dtype", arguments->dtype, "f32, f64, f16 or bf16, for every shape")
      ->check(CLI::IsMember({"f32", "f64", "f16", "bf16"}))
      ->type_name("T");
  // The bound is that of POISE_THREADS.
  verb->add_option("--threads", arguments->settings.threads,
                   "threads of a call and of the limit beside it; 1 unless given")
      ->check(whole_number(1, 4096))
      ->type_name("N");
  verb->add_option("--seconds", arguments->settings.seconds, "time per shape; 2 unless given")
      ->type_name("S");
  verb->add_flag("--stats", arguments->settings.stats,
                 "also what statistics cost, at levels max, core and full");
  verb->add_option("--json", arguments->json, "write every figure as JSON")->type_name("F");
  verb->add_option("--svg", arguments->svg, "write a chart")->type_name("F");
  verb->footer(
      "Examples:\n"
      "  poise bench\n"
      "  poise bench --shape 1,32,8,1,4096,128 --dtype bf16 --threads 2\n"
      "  poise bench --shape 1,16,16,1024,1024,64 --causal --stats --seconds 5\n"
      "  poise bench --json bench.json --svg bench.svg");
  return [arguments](const Session& session) { return bench(*arguments, session); };
}

}  // namespace poise::cli
