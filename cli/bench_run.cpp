// Times one case: attention, multiply-adds and reads of its keys and values take turns.
//
// The stream limit reads the case's own keys and values, so both find them in the same place: the
// cache that they fit into, or memory. Memory is measured by a call from a thread
// that has just started, which keeps no workspace of an earlier call.
// Must not happen here: words, files, a comparison across time.
#include "bench_run.h"

#include <poise/limits.h>

#include <algorithm>
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

std::int64_t layers_of(const BenchCase& bench, std::int64_t last_cache_bytes) {
  constexpr std::int64_t kCaches = 4, kMostLayers = 64;
  if (bench.shape.q_len > 1) return 1;
  const std::int64_t bytes = std::max<std::int64_t>(bench.kv_bytes(), 1);
  return std::clamp((kCaches * last_cache_bytes + bytes - 1) / bytes, std::int64_t{1}, kMostLayers);
}

// The tensors of a case. Every call and every read takes the next layer.
class Tensors {
 public:
  Tensors(const BenchCase& bench, std::int64_t layers)
      : bench_(bench),
        query_(of(bench.shape.q_heads, bench.shape.q_len)),
        out_(of(bench.shape.q_heads, bench.shape.q_len)) {
    fill(query_, 1);
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_.push_back({of(bench.shape.kv_heads, bench.shape.kv_len),
                         of(bench.shape.kv_heads, bench.shape.kv_len)});
      fill(layers_.back().key, 2);
      fill(layers_.back().value, 3);
    }
  }

  Error attend(const Options& options, Stats* stats = nullptr) {
    Extras extras;
    extras.stats = stats;
    const Layer& layer = next_layer();
    return attention(query_.tensor(), layer.key.tensor(), layer.value.tensor(), out_.tensor(),
                     options, extras);
  }

  // Reads the keys and values that some row sees, once.
  Error read_needed(int threads) {
    const BenchCase::Keys keys = bench_.keys();
    const std::int64_t row_bytes = bench_.shape.head_dim * size_bytes(bench_.dtype);
    const std::int64_t heads = bench_.shape.batch * bench_.shape.kv_heads;
    // Heads whose keys are all needed lie one behind the other.
    const std::int64_t pieces = keys.count == bench_.shape.kv_len ? 1 : heads;
    const Layer& layer = next_layer();
    for (const OutputTensor* tensor : {&layer.key, &layer.value}) {
      const auto* data = static_cast<const char*>(tensor->tensor().data) + keys.first * row_bytes;
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        if (const Error error = read_memory(data + piece * bench_.shape.kv_len * row_bytes,
                                            keys.count * row_bytes * (heads / pieces), threads))
          return error;
    }
    return {};
  }

 private:
  struct Layer {
    OutputTensor key, value;
  };

  OutputTensor of(std::int64_t heads, std::int64_t length) const {
    return {bench_.dtype, {bench_.shape.batch, heads, length, bench_.shape.head_dim}};
  }
  const Layer& next_layer() {
    next_ = (next_ + 1) % layers_.size();
    return layers_[next_];
  }

  const BenchCase& bench_;
  OutputTensor query_, out_;
  std::vector<Layer> layers_;
  std::size_t next_ = 0;
};

std::optional<double> memory_of_first_call(Tensors& tensors, const Options& options) {
  if (!timing::reset_peak_resident()) return std::nullopt;
  const double before = timing::peak_resident_bytes();
  Error error;
  std::thread([&] { error = tensors.attend(options); }).join();
  throw_if(error);
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
  BenchFigures figures;
  figures.layers = layers_of(bench, settings.last_cache_bytes);
  Tensors tensors(bench, figures.layers);
  const Options options = bench.options(settings.threads);
  figures.memory_bytes = memory_of_first_call(tensors, options);

  double peak_flops = 0;
  std::vector<std::function<void()>> contestants{
      [&] { throw_if(tensors.attend(options)); },
      [&] { throw_if(multiply_add(bench.dtype, kPeakRounds, settings.threads, &peak_flops)); },
      [&] { throw_if(tensors.read_needed(settings.threads)); }};
  const std::vector<StatsLevel> levels =
      settings.stats ? std::vector<StatsLevel>{StatsLevel::max, StatsLevel::core, StatsLevel::full}
                     : std::vector<StatsLevel>{};
  std::vector<Stats> stats(levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    stats[i].request.level = levels[i];
    contestants.push_back([&, i] { throw_if(tensors.attend(options, &stats[i])); });
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
