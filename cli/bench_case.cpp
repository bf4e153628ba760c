// Sizes, flops and bytes of what `poise bench` times, and its default list.
// The contract is in bench_case.h. Visible keys follow docs/semantics.md: key j is visible to row i
// when j <= i + diagonal and, with a window of W keys, j > i + diagonal - W.
#include "bench_case.h"

#include <algorithm>

namespace poise::cli {
namespace {

std::int64_t diagonal_of(const BenchCase& bench) {
  switch (bench.causal.kind()) {
    case Causal::Kind::top_left:
      return 0;
    case Causal::Kind::offset:
      return bench.causal.diagonal();
    case Causal::Kind::none:
    case Causal::Kind::bottom_right:
      break;
  }
  return bench.shape.kv_len - bench.shape.q_len;
}

// The keys that row i sees.
BenchCase::Keys keys_of_row(const BenchCase& bench, std::int64_t i) {
  const std::int64_t kv_len = bench.shape.kv_len;
  const bool limited = bench.causal.kind() != Causal::Kind::none || bench.window > 0;
  if (!limited) return {0, kv_len};
  // Diagonal and window may each be any int64.
  using Wide = __int128;
  const Wide end = static_cast<Wide>(i) + diagonal_of(bench) + 1;
  const Wide last = std::clamp<Wide>(end, 0, kv_len);
  const Wide first = bench.window > 0 ? std::clamp<Wide>(end - bench.window, 0, last) : 0;
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(last - first)};
}

}  // namespace

std::string BenchCase::shape_text() const {
  std::string text;
  for (const std::int64_t extent :
       {shape.batch, shape.q_heads, shape.kv_heads, shape.q_len, shape.kv_len, shape.head_dim})
    text += (text.empty() ? "" : ",") + std::to_string(extent);
  return text;
}

std::string BenchCase::name() const {
  std::string text = shape_text() + ' ' + poise::name(dtype);
  const bool is_causal = causal.kind() != Causal::Kind::none;
  // A window ends on the diagonal, so it is causal without a word.
  if (window > 0)
    text += " window " + std::to_string(window);
  else if (is_causal)
    text += " causal";
  // Where there is one diagonal only, its name says nothing.
  const bool one_diagonal = shape.q_len == shape.kv_len && diagonal_of(*this) == 0;
  if (is_causal && !one_diagonal) text += ' ' + causal_text(causal);
  return text;
}

Options BenchCase::options(int threads) const {
  Options options;
  options.causal = causal;
  options.threads = threads;
  if (window > 0) {
    options.window_left = window - 1;
    options.window_right = 0;
  }
  return options;
}

BenchCase::Keys BenchCase::keys() const {
  // Rows see ranges that move to the right, so the first and the last row bound them all.
  const Keys first = keys_of_row(*this, 0), last = keys_of_row(*this, shape.q_len - 1);
  const std::int64_t begin = first.count > 0 ? first.first : 0;
  return {begin, std::max<std::int64_t>(0, last.first + last.count - begin)};
}

double BenchCase::flops() const {
  double pairs = 0;
  for (std::int64_t i = 0; i < shape.q_len; ++i)
    pairs += static_cast<double>(keys_of_row(*this, i).count);
  return 4 * static_cast<double>(shape.batch * shape.q_heads * shape.head_dim) * pairs;
}

std::int64_t BenchCase::kv_bytes() const {
  return 2 * shape.batch * shape.kv_heads * keys().count * shape.head_dim * size_bytes(dtype);
}

double BenchCase::tensor_bytes() const {
  const double queries = static_cast<double>(shape.q_heads) * static_cast<double>(shape.q_len),
               keys = static_cast<double>(shape.kv_heads) * static_cast<double>(shape.kv_len);
  return 2 * static_cast<double>(shape.batch) * static_cast<double>(shape.head_dim) *
         (queries + keys) * static_cast<double>(size_bytes(dtype));
}

std::vector<BenchCase> default_bench_cases(std::optional<DType> dtype) {
  const Causal full = Causal::none(), causal = Causal::top_left();
  const DType usual = dtype.value_or(DType::f32);
  std::vector<BenchCase> cases{
      {{1, 16, 16, 1024, 1024, 64}, usual, full},   {{1, 16, 16, 1024, 1024, 64}, usual, causal},
      {{1, 8, 8, 4096, 4096, 64}, usual, causal},   {{1, 8, 8, 2048, 2048, 128}, usual, causal},
      {{1, 32, 8, 1024, 1024, 128}, usual, causal}, {{8, 12, 12, 128, 128, 64}, usual, full},
      {{64, 12, 12, 64, 64, 32}, usual, full},      {{1, 16, 16, 1024, 1024, 80}, usual, full},
      {{1, 16, 16, 1024, 1024, 96}, usual, full},   {{1, 8, 8, 8192, 8192, 64}, usual, causal, 256},
      {{1, 4, 4, 16, 16, 8}, usual, full},          {{1, 32, 8, 16, 4096, 128}, usual, full},
      {{1, 32, 8, 1, 4096, 128}, usual, full},      {{8, 32, 8, 1, 4096, 128}, usual, full},
      {{1, 32, 32, 1, 16384, 128}, usual, full}};
  if (!dtype) cases.push_back({{1, 32, 8, 1, 4096, 128}, DType::bf16, full});
  return cases;
}

}  // namespace poise::cli
