// The cut of a backward call: sizes, threads worth waking, units handed out whole.
// The contract is in backward_plan.h.
#include "backward_plan.h"

#include <algorithm>

namespace poise {
namespace {

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Whole units keep a thread's data in its own cache, but the last ones leave threads idle: the last
// round is shared.
std::int64_t choose_whole_units(const BackwardPlan& plan) {
  if (plan.slots == 1) return plan.units;
  const std::int64_t rounds = plan.units / plan.slots;
  constexpr std::int64_t kRoundsToShareTheLast = 4;
  return (rounds >= kRoundsToShareTheLast ? rounds - 1 : rounds) * plan.slots;
}

}  // namespace

BackwardPlan make_backward_plan(const Problem& problem, const Kernels& kernels, int threads,
                                Derivative derivative) {
  BackwardPlan plan;
  const KernelSet& set = problem.dtype == DType::f64 ? kernels.f64 : kernels.f32;
  plan.kernel = derivative == Derivative::first ? &set.backward : &set.second;
  if (derivative == Derivative::first) plan.bias_step = set.bias_step;
  const BackwardKernel& kernel = *plan.kernel;
  plan.units = problem.batch * problem.kv_heads;
  plan.group = problem.q_heads == 0 ? 0 : problem.group;
  plan.tiles = ceil_divide(problem.q_len, kernel.tile_rows);
  plan.blocks = std::max(ceil_divide(problem.kv_len, kBlock), std::int64_t{1});
  plan.visible_pairs = count_visible_pairs(problem);
  const double products = derivative == Derivative::first ? 1 : 2;
  const double dims =
      3 * static_cast<double>(problem.head_dim) + 2 * static_cast<double>(problem.value_dim);
  plan.flops = 2 * products * dims * plan.visible_pairs;
  plan.threads = std::max(threads, 1);
  // A row waits for the one before, so more threads than blocks or tiles only watch.
  const double most =
      static_cast<double>(plan.units) *
      static_cast<double>(std::max(std::min(plan.rows(), plan.tiles), std::int64_t{1}));
  plan.slots = threads_worth_waking(plan.flops, most, plan.threads);
  plan.whole_units = choose_whole_units(plan);
  plan.block_bytes = aligned(kernel.block_bytes(problem.head_dim, problem.value_dim));
  plan.tile_bytes = aligned(kernel.tile_bytes(problem.head_dim, problem.value_dim));
  plan.sums_bytes = aligned(kernel.sums_bytes(problem.head_dim, problem.value_dim));
  return plan;
}

}  // namespace poise
