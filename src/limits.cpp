// The machine's limits, measured: multiply-adds on registers, reads of memory.
// In: a request; for single probes, how much work. Out: rates, or the work done for the caller to
// time. Work of several threads is cut into pieces that they take from one counter, so that a
// thread that wakes late does not hold up the others.
// What must not happen here: a rate from a guess, a read of memory that was never written
// (untouched pages are all the same page of zeros).
#include <poise/cpu.h>
#include <poise/limits.h>

#include "check.h"
#include "check_view.h"
#include "cpu.h"
#include "executor.h"
#include "isa/dispatch.h"
#include "timing/series.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

namespace poise {
namespace {

using timing::Clock;

// About 0.1 ms of multiply-adds, and about as much of reading: far above the cost of taking a
// piece, far below that of a run.
constexpr std::int64_t kRoundsPerPiece = 10000;
constexpr std::int64_t kBytesPerPiece = std::int64_t{1} << 20;
// Rounds of a run that measures a peak.
constexpr std::int64_t kPeakRounds = 10 * kRoundsPerPiece;

double multiply_add_on(const KernelSet& kernel, std::int64_t rounds, int threads) {
  const std::int64_t pieces = (rounds + kRoundsPerPiece - 1) / kRoundsPerPiece;
  struct Work {
    const KernelSet& kernel;
    std::int64_t rounds;
  } work{kernel, rounds};
  tbb_executor(threads).run(
      pieces,
      [](void* context, std::int64_t piece, int) {
        const Work& all = *static_cast<const Work*>(context);
        (void)all.kernel.fma_chain(std::min(kRoundsPerPiece, all.rounds - piece * kRoundsPerPiece));
      },
      &work);
  return kernel.fma_chain(1) * static_cast<double>(rounds);
}

void read_on(const KernelSet& kernel, const void* data, std::int64_t bytes, int threads) {
  struct Work {
    const KernelSet& kernel;
    const char* data;
    std::int64_t bytes;
  } work{kernel, static_cast<const char*>(data), bytes};
  const auto read_piece = [](void* context, std::int64_t piece, int) {
    const Work& all = *static_cast<const Work*>(context);
    const std::int64_t from = piece * kBytesPerPiece;
    all.kernel.read_stream(all.data + from, std::min(kBytesPerPiece, all.bytes - from) /
                                                static_cast<std::int64_t>(sizeof(float)));
  };
  tbb_executor(threads).run((bytes + kBytesPerPiece - 1) / kBytesPerPiece, read_piece, &work);
}

Error check_threads(const char* call, int threads, int least) {
  if (threads >= least && threads <= kMaxThreads) return {};
  return refuse(
      ErrorCode::bad_value, {call, "threads"}, "{} is not in {} ... {}",
      {text(std::int64_t{threads}), text(std::int64_t{least}), text(std::int64_t{kMaxThreads})});
}

// The kernels of calls now; null with *error set when the environment is no good.
const Kernels* kernels_now(Error* error) {
  *error = environment_error();
  return *error ? nullptr : active_kernels(error);
}

double best_rate(double work, const std::function<void()>& run, double seconds, int threads) {
  const Clock clock = threads > 1 ? Clock::wall : Clock::thread_cpu;
  return work / timing::alternate({run}, seconds, clock).front().best();
}

PeakRate measure_peak(const Kernels& kernels, double seconds, int threads) {
  const auto rate = [&](const KernelSet& kernel) {
    const double flops = kernel.fma_chain(1) * static_cast<double>(kPeakRounds);
    return best_rate(
        flops, [&] { (void)multiply_add_on(kernel, kPeakRounds, threads); }, seconds, threads);
  };
  return {kernels.name, rate(kernels.f32), rate(kernels.f64)};
}

}  // namespace

Error measure_limits(const LimitsRequest& request, MachineLimits* limits) {
  constexpr const char* kCall = "limits";
  Error error;
  const Kernels* kernels = kernels_now(&error);
  if (kernels == nullptr) return error;
  if (error = check_threads(kCall, request.threads, 0); error) return error;
  if (request.stream_bytes < static_cast<std::int64_t>(sizeof(float)))
    return refuse(ErrorCode::bad_value, {kCall, "stream_bytes"}, "{} is not at least {}",
                  {text(request.stream_bytes), text(std::int64_t{sizeof(float)})});
  if (!(request.seconds > 0) || !std::isfinite(request.seconds))
    return refuse(ErrorCode::bad_value, {kCall, "seconds"}, "{} is not positive and finite",
                  {text(request.seconds)});
  if (limits == nullptr)
    return refuse(ErrorCode::bad_value, {kCall, "limits"}, "null, expected limits to fill", {});
  const std::int64_t count = request.stream_bytes / static_cast<std::int64_t>(sizeof(float));
  // Not new[], which throws at sizes near the range of int64 even when asked not to.
  const std::unique_ptr<float, void (*)(void*)> memory(
      static_cast<float*>(std::malloc(static_cast<std::size_t>(request.stream_bytes))), std::free);
  if (memory == nullptr)
    return refuse(ErrorCode::out_of_memory, {kCall, "stream_bytes"}, "no memory for {} bytes",
                  {text(request.stream_bytes)});
  std::fill_n(memory.get(), count, 1.0f);

  MachineLimits measured;
  measured.threads = request.threads > 0 ? request.threads : default_threads();
  measured.stream_bytes = request.stream_bytes;
  for (const std::string& isa : available_isas())
    measured.peaks.push_back(measure_peak(*find_kernels(isa), request.seconds, 1));
  measured.peak_together = measure_peak(*kernels, request.seconds, measured.threads);
  const auto stream = [&](int threads) {
    return best_rate(
        static_cast<double>(request.stream_bytes),
        [&] { read_on(kernels->f32, memory.get(), request.stream_bytes, threads); },
        request.seconds, threads);
  };
  measured.stream = stream(1);
  measured.stream_together = stream(measured.threads);
  *limits = std::move(measured);
  return {};
}

Error multiply_add(DType dtype, std::int64_t rounds, int threads, double* flops) {
  constexpr const char* kCall = "multiply_add";
  Error error;
  const Kernels* kernels = kernels_now(&error);
  if (kernels == nullptr) return error;
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16)
    return refuse(ErrorCode::bad_dtype, {kCall, "dtype"}, "{} is not one of f32, f64, f16, bf16",
                  {name(dtype)});
  if (rounds < 0)
    return refuse(ErrorCode::bad_value, {kCall, "rounds"}, "{} is negative", {text(rounds)});
  if (error = check_threads(kCall, threads, 1); error) return error;
  if (flops == nullptr)
    return refuse(ErrorCode::bad_value, {kCall, "flops"}, "null, expected a number to fill", {});
  *flops = multiply_add_on(dtype == DType::f64 ? kernels->f64 : kernels->f32, rounds, threads);
  return {};
}

Error read_memory(const void* data, std::int64_t bytes, int threads) {
  constexpr const char* kCall = "read_memory";
  Error error;
  const Kernels* kernels = kernels_now(&error);
  if (kernels == nullptr) return error;
  if (bytes < 0)
    return refuse(ErrorCode::bad_layout, {kCall, "bytes"}, "{} is negative", {text(bytes)});
  if (data == nullptr && bytes > 0)
    return refuse(ErrorCode::bad_layout, {kCall, "data"}, "null for {} bytes", {text(bytes)});
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0)
    return refuse(ErrorCode::bad_layout, {kCall, "data"}, "not aligned to {} bytes",
                  {text(std::int64_t{alignof(float)})});
  if (error = check_threads(kCall, threads, 1); error) return error;
  read_on(kernels->f32, data, bytes, threads);
  return {};
}

}  // namespace poise
