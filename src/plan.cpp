// How a checked call is cut into tasks, how many threads are worth waking, what work masks leave.
// The contract is in plan.h.
#include "plan.h"

#include <algorithm>

namespace poise {
namespace {

// Least work per thread, in flops. A call on two oneTBB threads, one of them asleep, begins to beat
// the calling thread alone at 30-40 microseconds of work (measured on a 2-core AMD EPYC VM, oneTBB
// 2021.8), in which an AVX-512 core does about two of these.
constexpr double kFlopsPerThread = 1 << 21;

// Pair counts reach Lq * Lk, which need not fit 64 bits when views repeat rows with stride 0.
using Wide = __int128;

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Sum over integers y < x of clamp(y, 0, keys).
Wide sum_of_clamped(Wide x, Wide keys) {
  if (x <= 0) return 0;
  if (x <= keys) return x * (x - 1) / 2;
  return keys * (keys - 1) / 2 + (x - keys) * keys;
}

// Pairs (i, j), 0 <= i < rows, 0 <= j < keys, with j <= i + upper: row i has
// clamp(i + upper + 1, 0, keys) of them.
Wide pairs_up_to(Wide upper, Wide rows, Wide keys) {
  return sum_of_clamped(upper + 1 + rows, keys) - sum_of_clamped(upper + 1, keys);
}

// Pairs of one batch that lengths, causal and window leave visible.
double visible_pairs(const Problem& problem, std::int64_t b) {
  const Wide rows = problem.q_length(b), keys = problem.kv_length(b);
  const Wide lower = problem.lower(b), upper = problem.upper(b);  // lower <= upper
  return static_cast<double>(pairs_up_to(upper, rows, keys) - pairs_up_to(lower - 1, rows, keys));
}

// Threads that are worth waking: none below kFlopsPerThread, and none without a task of its own.
int choose_slots(const Plan& plan) {
  const double worth = std::min(plan.flops / kFlopsPerThread, static_cast<double>(plan.tasks));
  return static_cast<int>(std::clamp(worth, 1.0, static_cast<double>(plan.threads)));
}

}  // namespace

Plan make_plan(const Problem& problem, const Kernels& kernels, int threads) {
  Plan plan;
  plan.kernels = &kernels;
  plan.kernel = problem.dtype == DType::f64 ? &kernels.f64 : &kernels.f32;
  plan.batch = problem.batch;
  plan.q_heads = problem.q_heads;
  plan.q_len = problem.q_len;
  plan.task_queries = plan.kernel->task_queries;
  plan.row_blocks = ceil_divide(problem.q_len, plan.task_queries);
  plan.tasks = plan.batch * plan.q_heads * plan.row_blocks;

  // Batches that cannot differ are looked at once: a view may claim any number of them for free.
  const Options& options = problem.options;
  const bool differ =
      options.kv_lengths.given() || options.q_lengths.given() || options.diagonals.given();
  const std::int64_t looked_at = plan.tasks == 0 ? 0 : differ ? problem.batch : 1;
  double pairs = 0;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < looked_at; ++b) {
    pairs += visible_pairs(problem, b);
    longest = std::max(longest, problem.kv_length(b));
    plan.last_rows_first = plan.last_rows_first || problem.upper(b) < problem.kv_length(b) - 1;
  }
  if (!differ) pairs *= static_cast<double>(problem.batch);
  const double heads = static_cast<double>(problem.q_heads);
  plan.splits = ceil_divide(longest, kSplit);
  plan.visible_pairs = heads * pairs;
  plan.all_pairs = heads * static_cast<double>(problem.batch) * static_cast<double>(problem.q_len) *
                   static_cast<double>(problem.kv_len);
  plan.flops = 2 *
               (static_cast<double>(problem.head_dim) + static_cast<double>(problem.value_dim)) *
               plan.visible_pairs;

  plan.threads = std::max(threads, 1);
  plan.slots = choose_slots(plan);
  plan.slot_bytes = ceil_divide(plan.kernel->workspace_bytes(problem.head_dim, problem.value_dim),
                                kWorkspaceAlignment) *
                    kWorkspaceAlignment;
  plan.workspace_bytes = plan.slots * plan.slot_bytes;
  return plan;
}

// Heads stay together, so that the keys one task has read are still in the cache for the next;
// within a head the last rows come first when a causal edge makes them the longest, so that the
// call ends with its shortest tasks and no thread waits long for another.
TaskIndex task_at(const Plan& plan, std::int64_t index) {
  const std::int64_t pair = index / plan.row_blocks;
  const std::int64_t place = index % plan.row_blocks;
  const std::int64_t block = plan.last_rows_first ? plan.row_blocks - 1 - place : place;
  const std::int64_t begin = block * plan.task_queries;
  return {pair / plan.q_heads, pair % plan.q_heads, begin,
          std::min(begin + plan.task_queries, plan.q_len)};
}

}  // namespace poise
