// Folding of gradient statistics: one task per head, rows of a head in order, norms of its key head
// block by block. The contract is in backward_stats.h.
#include "backward_stats.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "call.h"
#include "float_control.h"
#include "plan.h"
#include "row_order.h"
#include "tally.h"

namespace poise {
namespace {

struct Folding {
  const BackwardProblem& checked;
  const BackwardPlan& plan;
  const RowGradient* rows;
  const double* squares;
  std::atomic<bool> failed{false};
};

Error no_memory() {
  return out_of_memory("backward", static_cast<std::int64_t>(sizeof(HeadStats)));
}

void fold_head(const Folding& folding, std::int64_t head, GradientStats* gradient) {
  const Problem& p = folding.checked.problem;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    fold_gradients(folding.rows + (b * p.q_heads + head) * p.q_len, p.q_length(b), gradient);
    // Blocks that a batch does not reach have left nothing.
    const std::int64_t unit = b * p.kv_heads + head / p.group;
    for (std::int64_t block = 0; block * kBlock < p.kv_length(b); ++block) {
      const double* squares = folding.squares + (unit * folding.plan.blocks + block) * 2;
      gradient->dk_squares += squares[0];
      gradient->dv_squares += squares[1];
    }
  }
}

void fold_step(void* context, std::int64_t head, int) {
  const FloatControl control;
  Folding& folding = *static_cast<Folding*>(context);
  try {
    fold_head(folding, head,
              &folding.checked.stats->heads[static_cast<std::size_t>(head)].gradient);
  } catch (const std::bad_alloc&) {
    folding.failed = true;
  }
}

}  // namespace

Error start_gradient_statistics(const BackwardProblem& checked) {
  if (checked.stats == nullptr) return {};
  try {
    if (checked.stats->heads.empty()) start_statistics(checked.problem, checked.stats);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  for (HeadStats& head : checked.stats->heads) head.gradient = {};
  return {};
}

Error fold_gradient_statistics(const BackwardProblem& checked, const BackwardPlan& plan,
                               const RowGradient* rows, const double* squares, Executor& executor) {
  if (checked.stats == nullptr) return {};
  Folding folding{.checked = checked, .plan = plan, .rows = rows, .squares = squares};
  executor.run(checked.problem.q_heads, fold_step, &folding);
  if (folding.failed) return no_memory();
  return {};
}

}  // namespace poise
