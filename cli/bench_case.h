// One problem that `poise bench` times: its sizes, its mask, and what it needs at least.
//
// In: sizes as typed, or the list of shapes every machine is asked about. Out: the call's options,
// flops and bytes that no implementation can do without. Must not happen here: running anything.
#pragma once

#include <poise/attention.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace poise::cli {

struct BenchCase {
  Shape shape;
  DType dtype = DType::f32;
  Causal causal{};
  std::int64_t window = 0;  // keys a row sees, up to its diagonal; 0 = no window

  std::string shape_text() const;  // "1,32,8,1,4096,128"
  std::string name() const;        // the same with mask and dtype
  Options options(int threads) const;

  // Keys [first, first + count) that some row sees.
  struct Keys {
    std::int64_t first = 0, count = 0;
  };
  Keys keys() const;
  double flops() const;           // 4 D of every visible pair of query and key
  std::int64_t kv_bytes() const;  // of the keys and values that some row sees
  double tensor_bytes() const;    // of query, key, value and out
};

// Prefill full and causal, long and short, grouped heads, decode, chunks, a window, head_dims that
// are no power of two. f32, and one of them in bf16 too, unless one dtype is wanted for all.
std::vector<BenchCase> default_bench_cases(std::optional<DType> dtype);

}  // namespace poise::cli
