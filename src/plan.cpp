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

// Batches that cannot differ are looked at once: a view may claim any number of them for free.
bool batches_differ(const Problem& problem) {
  const Options& options = problem.options;
  return options.kv_lengths.given() || options.q_lengths.given() || options.diagonals.given();
}

// Query heads of one key head that share a task's lanes: all that fit while their queries alone
// would leave lanes of a tile empty, in sets of even size.
std::int64_t heads_per_task(const Problem& problem, const KernelSet& kernel) {
  if (problem.q_len >= kernel.wide.tile_rows || problem.group <= 1) return 1;
  const std::int64_t sets = ceil_divide(problem.group, kMostHeads);
  return ceil_divide(problem.group, sets);
}

// Work of a call in flops that take about as long: where reading keys and values takes longer than
// the arithmetic, it counts. A core does a few flops in the time it reads a byte from memory
// (`poise bench` prints both rates); one digit is enough to decide whether a thread is worth
// waking.
double work_of(const TaskPlan& plan, const Problem& problem) {
  constexpr double kFlopsPerByte = 4;
  const double bytes =
      static_cast<double>((problem.head_dim + problem.value_dim) * size_bytes(problem.dtype)) *
      plan.visible_pairs / static_cast<double>(std::max<std::int64_t>(plan.heads * plan.q_len, 1));
  return std::max(plan.flops, kFlopsPerByte * bytes);
}

// A unit is cut into ranges of splits when there are too few units to keep every slot busy to the
// end: four tasks a slot leave the last one to finish at most a quarter of its share alone.
std::int64_t choose_parts(const TaskPlan& plan) {
  constexpr std::int64_t kTasksPerSlot = 4;
  if (plan.slots == 1 || plan.units == 0) return 1;
  const std::int64_t wanted = ceil_divide(kTasksPerSlot * plan.slots, plan.units);
  return std::clamp(wanted, std::int64_t{1}, std::max(plan.splits, std::int64_t{1}));
}

TaskPlan cut(const Problem& problem, const Kernels& kernels, int threads, bool by_rows) {
  TaskPlan plan;
  plan.kernels = &kernels;
  plan.kernel = problem.dtype == DType::f64 ? &kernels.f64 : &kernels.f32;
  plan.batch = problem.batch;
  plan.kv_heads = problem.q_heads == 0 ? 0 : problem.kv_heads;  // heads without queries do nothing
  plan.group = problem.group;
  plan.q_len = problem.q_len;
  plan.heads = by_rows ? 1 : heads_per_task(problem, *plan.kernel);
  plan.head_sets = ceil_divide(problem.group, plan.heads);
  const std::int64_t rows = plan.heads * problem.q_len;
  plan.forward =
      !by_rows && rows <= plan.kernel->narrow.task_rows ? &plan.kernel->narrow : &plan.kernel->wide;
  plan.row_blocks = ceil_divide(rows, plan.forward->task_rows);
  plan.units = plan.batch * plan.set_count() * plan.row_blocks;

  const std::int64_t looked_at = plan.units == 0 ? 0 : batches_differ(problem) ? problem.batch : 1;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < looked_at; ++b) {
    longest = std::max(longest, problem.kv_length(b));
    plan.last_rows_first = plan.last_rows_first || problem.upper(b) < problem.kv_length(b) - 1;
  }
  plan.splits = ceil_divide(longest, kSplit);
  plan.visible_pairs = count_visible_pairs(problem);
  plan.all_pairs = static_cast<double>(problem.q_heads) * static_cast<double>(problem.batch) *
                   static_cast<double>(problem.q_len) * static_cast<double>(problem.kv_len);
  plan.flops = 2 *
               (static_cast<double>(problem.head_dim) + static_cast<double>(problem.value_dim)) *
               plan.visible_pairs;

  plan.threads = std::max(threads, 1);
  const std::int64_t cuts = by_rows ? 1 : std::max(plan.splits, std::int64_t{1});
  plan.slots = threads_worth_waking(work_of(plan, problem),
                                    static_cast<double>(plan.units) * static_cast<double>(cuts),
                                    plan.threads);
  plan.parts = by_rows ? 1 : choose_parts(plan);
  plan.tasks = plan.units * plan.parts;
  plan.slot_bytes = aligned(plan.forward->workspace_bytes(problem.head_dim, problem.value_dim));
  if (plan.parts > 1)
    plan.record_bytes = plan.forward->record_bytes(
        std::min<std::int64_t>(rows, plan.forward->task_rows), problem.value_dim);
  plan.workspace_bytes = bytes_of(plan.slots, plan.slot_bytes) +
                         bytes_of(plan.units, bytes_of(plan.splits, plan.record_bytes));
  return plan;
}

}  // namespace

double count_visible_pairs(const Problem& problem) {
  if (problem.batch == 0 || problem.q_heads == 0 || problem.q_len == 0) return 0;
  const bool differ = batches_differ(problem);
  double pairs = 0;
  for (std::int64_t b = 0; b < (differ ? problem.batch : 1); ++b)
    pairs += visible_pairs(problem, b);
  if (!differ) pairs *= static_cast<double>(problem.batch);
  return static_cast<double>(problem.q_heads) * pairs;
}

// None below kFlopsPerThread, and none without a task of its own.
int threads_worth_waking(double flops, double tasks, int threads) {
  const double worth = std::min(flops / kFlopsPerThread, tasks);
  return static_cast<int>(std::clamp(worth, 1.0, static_cast<double>(threads)));
}

TaskPlan make_plan(const Problem& problem, const Kernels& kernels, int threads) {
  return cut(problem, kernels, threads, false);
}

TaskPlan make_row_plan(const Problem& problem, const Kernels& kernels, int threads) {
  return cut(problem, kernels, threads, true);
}

// Heads stay together, so that the keys one task has read are still in the cache for the next;
// within a set of heads the last rows come first when a causal edge makes them the longest, so that
// the call ends with its shortest tasks and no thread waits long for another.
TaskIndex unit_at(const TaskPlan& plan, std::int64_t unit) {
  TaskIndex index{};
  index.unit = unit;
  const std::int64_t set = unit / plan.row_blocks % plan.set_count();
  const std::int64_t place = unit % plan.row_blocks;
  const std::int64_t block = plan.last_rows_first ? plan.row_blocks - 1 - place : place;
  const std::int64_t first = set % plan.head_sets * plan.heads;  // of the group
  index.b = unit / plan.row_blocks / plan.set_count();
  index.first_head = set / plan.head_sets * plan.group + first;
  index.heads = std::min(plan.heads, plan.group - first);
  const std::int64_t rows = index.heads * plan.q_len;
  index.row_begin = std::min(block * plan.forward->task_rows, rows);
  index.row_end = std::min(index.row_begin + plan.forward->task_rows, rows);
  index.split_end = plan.splits;
  return index;
}

TaskIndex task_at(const TaskPlan& plan, std::int64_t index) {
  TaskIndex task = unit_at(plan, index / plan.parts);
  task.part = index % plan.parts;
  task.split_begin = task.part * plan.splits / plan.parts;
  task.split_end = (task.part + 1) * plan.splits / plan.parts;
  return task;
}

}  // namespace poise
