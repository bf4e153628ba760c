// What this machine can do at most: multiply-adds per second, bytes read per second. The yardstick
// of `poise bench`, and of anyone who wants to know how far from the limit a call is.
//
// A rate measured a minute ago says little about a shared machine now. To compare a run with the
// limit, let it alternate with multiply_add() or read_memory() and take ratios of neighbours.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace poise {

// Flops per second of independent multiply-adds on registers (a multiply-add is two flops).
struct PeakRate {
  std::string isa;
  double f32 = 0, f64 = 0;
};

struct LimitsRequest {
  int threads = 0;  // of the rates together; 1 ... 4096, 0 = default_threads()
  std::int64_t stream_bytes = std::int64_t{256} << 20;  // read in a row; >= 4, and several times
                                                        // the last-level cache for memory's rate
  double seconds = 0.2;                                 // per rate; > 0 and finite
};

// The fastest run of each within its time.
struct MachineLimits {
  std::vector<PeakRate> peaks;  // one thread, every instruction set that runs here, best first
  PeakRate peak_together;       // `threads` threads, the active instruction set
  double stream = 0, stream_together = 0;  // bytes per second, one thread and `threads` threads
  std::int64_t stream_bytes = 0;
  int threads = 0;
};

// Measures all of it. Errors: bad_value for a request outside its range, unsupported for
// POISE_ISA or POISE_THREADS, out_of_memory. Cost: about (2 * instruction sets + 4) * seconds, and
// stream_bytes of memory. One thread is timed by its CPU time, several by the wall clock.
Error measure_limits(const LimitsRequest& request, MachineLimits* limits);

// Does `rounds` rounds of multiply-adds on the active instruction set's registers and says how many
// flops that was; 10000 rounds take about 0.1 ms. dtype: f64, or any of f32, f16, bf16, which are
// computed in f32. threads: 1 ... 4096, which share the rounds. Errors: as measure_limits;
// bad_dtype.
Error multiply_add(DType dtype, std::int64_t rounds, int threads, double* flops);

// Reads `bytes` bytes at `data` once, in ascending order with full vectors of the active
// instruction set. data: aligned to 4 bytes; up to 3 bytes at the end are left out. threads: 1 ...
// 4096, which share the bytes. Errors: as measure_limits; bad_layout.
Error read_memory(const void* data, std::int64_t bytes, int threads);

}  // namespace poise
