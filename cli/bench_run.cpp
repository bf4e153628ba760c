// Times one case: attention, multiply-adds and reads of its keys and values take turns.
//
// The stream limit reads the case's own keys and values, so both find them where the other left
// them: in memory, or in the cache that they fit into. Memory is measured by a call on threads that
// have just started, which own no workspace of an earlier call.
// Must not happen here: words, files, a comparison across time.
#include "bench_run.h"

#include <poise/limits.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "failure.h"
#include "output_tensor.h"
#include "timing/series.h"

namespace poise::cli {
namespace {

// Starts its threads for every run: none of them has run attention before.
class NewThreads final : public Executor {
 public:
  explicit NewThreads(int threads) : threads_(threads) {}

  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    std::atomic<std::int64_t> next{0};
    const auto work = [&](int slot) {
      for (std::int64_t index = next++; index < count; index = next++) task(context, index, slot);
    };
    std::vector<std::jthread> pool;
    for (int slot = 0; slot < std::min<std::int64_t>(threads_, count); ++slot)
      pool.emplace_back(work, slot);
  }
  int slots() const override { return threads_; }

 private:
  int threads_;
};

// A normal float in the 16 bits of the dtype, cut off below: good enough for a random number.
std::uint16_t half_bits(DType dtype, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (dtype == DType::bf16) return static_cast<std::uint16_t>(bits >> 16);
  constexpr std::uint32_t kBiasDifference = 112u << 23;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < kBiasDifference + (1u << 23)) return 0;  // f16 has no such normal number
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | (magnitude - kBiasDifference) >> 13);
}

void store(const Tensor& tensor, std::size_t i, float x) {
  switch (tensor.dtype) {
    case DType::f64:
      static_cast<double*>(tensor.data)[i] = static_cast<double>(x);
      break;
    case DType::f16:
    case DType::bf16:
      static_cast<std::uint16_t*>(tensor.data)[i] = half_bits(tensor.dtype, x);
      break;
    default:
      static_cast<float*>(tensor.data)[i] = x;
  }
}

// Standard normal elements. Drawing every one would take longer than the runs, so a stretch of them
// repeats; its odd length keeps rows from being equal.
void fill(const OutputTensor& owner, unsigned seed) {
  constexpr std::size_t kStretch = 65537;
  const Tensor& tensor = owner.tensor();
  std::size_t count = 1;
  for (int axis = 0; axis < tensor.rank; ++axis)
    count *= static_cast<std::size_t>(tensor.extent(axis));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::size_t drawn = std::min(count, kStretch);
  for (std::size_t i = 0; i < drawn; ++i) store(tensor, i, normal(random));
  const auto size = static_cast<std::size_t>(size_bytes(tensor.dtype));
  auto* bytes = static_cast<std::byte*>(tensor.data);
  for (std::size_t i = drawn; i < count; i += kStretch)
    std::copy_n(bytes, std::min(kStretch, count - i) * size, bytes + i * size);
}

struct Tensors {
  OutputTensor query, key, value, out;

  explicit Tensors(const BenchCase& bench)
      : query(bench.dtype,
              {bench.shape.batch, bench.shape.q_heads, bench.shape.q_len, bench.shape.head_dim}),
        key(bench.dtype,
            {bench.shape.batch, bench.shape.kv_heads, bench.shape.kv_len, bench.shape.head_dim}),
        value(bench.dtype,
              {bench.shape.batch, bench.shape.kv_heads, bench.shape.kv_len, bench.shape.head_dim}),
        out(bench.dtype,
            {bench.shape.batch, bench.shape.q_heads, bench.shape.q_len, bench.shape.head_dim}) {
    fill(query, 1);
    fill(key, 2);
    fill(value, 3);
  }

  void attend(const Options& options, Stats* stats = nullptr) const {
    Extras extras;
    extras.stats = stats;
    throw_if(
        attention(query.tensor(), key.tensor(), value.tensor(), out.tensor(), options, extras));
  }
};

// Reads the keys and values that some row sees, once.
void read_needed(const BenchCase& bench, const Tensors& tensors, int threads) {
  const BenchCase::Keys keys = bench.keys();
  const std::int64_t row_bytes = bench.shape.head_dim * size_bytes(bench.dtype);
  const std::int64_t heads = bench.shape.batch * bench.shape.kv_heads;
  const bool whole = keys.count == bench.shape.kv_len;
  for (const OutputTensor* tensor : {&tensors.key, &tensors.value}) {
    const auto* data = static_cast<const char*>(tensor->tensor().data) + keys.first * row_bytes;
    const std::int64_t pieces = whole ? 1 : heads;
    const std::int64_t bytes = keys.count * row_bytes * (whole ? heads : 1);
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      throw_if(read_memory(data + piece * bench.shape.kv_len * row_bytes, bytes, threads));
  }
}

std::optional<double> memory_of_first_call(const BenchCase& bench, const Tensors& tensors,
                                           int threads) {
  NewThreads executor(threads);
  Options options = bench.options(threads);
  options.executor = &executor;
  if (!timing::reset_peak_resident()) return std::nullopt;
  const double before = timing::peak_resident_bytes();
  tensors.attend(options);
  return std::max(0.0, timing::peak_resident_bytes() - before);
}

// `needed` units of work in the case's runs against `done` units in the limit's.
LimitShare share(const timing::Series& runs, double needed, const timing::Series& limit,
                 double done) {
  return {done / limit.best(), 100 * (needed / runs.best()) / (done / limit.best()),
          100 * (needed / done) / timing::median_ratio(runs, limit)};
}

}  // namespace

BenchFigures run_case(const BenchCase& bench, const BenchSettings& settings) {
  // A turn shorter than this is repeated within it: the clock costs up to a microsecond.
  constexpr double kLeastTurn = 1e-3;
  constexpr std::int64_t kPeakRounds = 100000;  // about a millisecond on one thread
  const Tensors tensors(bench);
  const Options options = bench.options(settings.threads);
  BenchFigures figures;
  figures.memory_bytes = memory_of_first_call(bench, tensors, settings.threads);

  double peak_flops = 0;
  std::vector<std::function<void()>> contestants{
      [&] { tensors.attend(options); },
      [&] { throw_if(multiply_add(bench.dtype, kPeakRounds, settings.threads, &peak_flops)); },
      [&] { read_needed(bench, tensors, settings.threads); }};
  const std::vector<StatsLevel> levels =
      settings.stats ? std::vector<StatsLevel>{StatsLevel::max, StatsLevel::core, StatsLevel::full}
                     : std::vector<StatsLevel>{};
  std::vector<Stats> stats(levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    stats[i].request.level = levels[i];
    contestants.push_back([&, i] { tensors.attend(options, &stats[i]); });
  }
  const auto clock = settings.threads > 1 ? timing::Clock::wall : timing::Clock::thread_cpu;
  const std::vector<timing::Series> series =
      timing::alternate(contestants, settings.seconds, clock, kLeastTurn);
  const timing::Series& runs = series[0];
  figures.turns = static_cast<std::int64_t>(runs.seconds.size());
  figures.best_s = runs.best();
  figures.median_s = runs.median();
  figures.arithmetic = share(runs, bench.flops(), series[1], peak_flops);
  const auto bytes = static_cast<double>(bench.kv_bytes());
  figures.stream = share(runs, bytes, series[2], bytes);
  constexpr std::size_t kFirstLevel = 3;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const timing::Series& with = series[kFirstLevel + i];
    figures.stats.push_back({levels[i], 100 * (with.best() / runs.best() - 1),
                             100 * (timing::median_ratio(with, runs) - 1)});
  }
  return figures;
}

}  // namespace poise::cli
