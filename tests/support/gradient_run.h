// Runs of backward() over a GradientProblem: what forward leaves, what is asked for, what comes.
//
// In: a GradientProblem and a wish. Out: tensors whose memory is watched, and comparisons by the
// bit. Only the public API of poise is called here.
#pragma once

#include <poise/gradient.h>

#include <string>
#include <utility>
#include <vector>

#include "support/gradient_problem.h"

namespace poise::test {

// What a forward call hands to backward().
struct ForwardState {
  TensorBuffer out, row_max, row_sum, lse;
  Stats stats;

  explicit ForwardState(const Problem& problem,
                        const StatsRequest& request = {.level = StatsLevel::core});
};

// Which gradients a run asks for, and how.
struct GradientWish {
  bool dq = true, dk = true, dv = true, dbias = true, dsinks = true, dscale = true, dslopes = true;
  Extents bias_extents{};       // of dbias where no bias is given; empty = not asked for
  bool scale_per_head = false;  // dscale [Hq], else [1]
  bool from_lse = false;        // backward gets lse in place of row_max and row_sum
  bool statistics = false;      // into the Stats that forward left
  Layout layout = Layout::contiguous;
  Placement placement = Placement::heap;
  Executor* executor = nullptr;
  int threads = 1;
};

struct GradientOutputs {
  Error error;
  TensorBuffer dq, dk, dv, dbias, dsinks, dscale, dslopes;
  Stats stats;  // with statistics

  // Every gradient with its name, the absent ones too.
  std::vector<std::pair<const char*, const TensorBuffer*>> tensors() const;
};

GradientOutputs run(const GradientProblem& g, const ForwardState& state,
                    const GradientWish& wish = {});
GradientOutputs run(const GradientProblem& g, const GradientWish& wish = {});

// Forward and backward, both measured as requested into the same Stats.
GradientOutputs measured_run(const GradientProblem& g, const StatsRequest& request,
                             GradientWish wish = {});

// "dk [0, 1, 5, 2]: 1 against 1.0000001" for the first bit that differs between gradients that both
// runs wrote, or an error; empty when all is well.
std::string difference(const GradientOutputs& a, const GradientOutputs& b, const std::string& when);

// The rows of dq, dk and dv of one batch entry; the other gradients, which are sums over batches,
// are left away.
GradientOutputs batch_entry(const GradientOutputs& whole, std::int64_t b);
GradientProblem batch_entry(const GradientProblem& whole, std::int64_t b);

// Queries [begin, begin + count): of the problem, and of dq alone.
GradientProblem query_chunk(const GradientProblem& whole, std::int64_t begin, std::int64_t count);
GradientOutputs query_chunk(const GradientOutputs& whole, std::int64_t begin, std::int64_t count);

// A mask or bias in full, [B, Hq, Lq, Lk]; absent when it is.
TensorBuffer broadcast(const TensorBuffer& tensor, const Shape& shape);

}  // namespace poise::test
