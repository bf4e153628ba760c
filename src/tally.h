// From the raw row tallies of the kernels to the statistics of a head.
//
// In: RowTally or RowGradient rows of one head and batch as a kernel left them, with the facts of
// their call. Out: the same rows added to a HeadStats. Rows fold in the order given, in double:
// whoever calls this in a fixed order (head, then batch, then row) gets the same bits for any
// number of threads. Not here: streaming over keys (kernels), verdicts (health). Formulas:
// docs/health.md, "Read-outs".
#pragma once

#include <poise/stats.h>

#include <array>
#include <cstdint>
#include <limits>

#include "kernels/kernels.h"

namespace poise {

// What a row tally does not say about itself.
struct TaskFacts {
  StatsLevel level = StatsLevel::core;
  bool logits_differ = false;  // Stats::logits_differ(): logit_* of the rows are set
  double scale = 0;            // the scale of this head
  double sink = -std::numeric_limits<double>::infinity();  // this head's sink logit, -inf = none
  double near_tie_gap = 1e-3;                              // StatsRequest::near_tie_gap
  double stand_in_bias = -9e3;                             // StatsRequest::stand_in_bias
  std::array<std::int64_t, kTrackedKeys> tracked = StatsRequest().tracked;
  std::int64_t batch = 0, q_len = 0;  // for first_nonfinite_row = batch * q_len + row
  std::int64_t diagonal = 0;          // o_b: arg-max offsets are key - (row + diagonal)
};

// A head that has seen no row yet, with the bins of the request.
HeadStats start_head(const StatsRequest& request, double scale);

// Where the arg-max lies from the row's own position: key - (row + diagonal), held inside int64.
inline std::int64_t offset_from_diagonal(std::int64_t key, std::int64_t row,
                                         std::int64_t diagonal) {
  std::int64_t offset = 0;
  if (__builtin_sub_overflow(key - row, diagonal, &offset))
    return diagonal < 0 ? std::numeric_limits<std::int64_t>::max()
                        : std::numeric_limits<std::int64_t>::min();
  return offset;
}

// Adds those of `count` rows of one batch whose RowTally::head is `which`. Level max reads max,
// second, rest, visible, stand_ins and bad of a row; core adds rest_t, rest_e2 and the score_
// (logit_) moments; full the remainder.
// Cost: about 30 ns a row at core, 150 at full; allocates at level full and when sketches widen.
void fold_rows(const RowTally* rows, std::int64_t count, std::int64_t which, const TaskFacts& facts,
               HeadStats* head);

// Adds `count` rows of one batch as backward left them; a row that was not sampled has no keys.
// Cost: about 20 ns a row; allocates when sketches widen.
void fold_gradients(const RowGradient* rows, std::int64_t count, GradientStats* gradient);

// Adds a kernel's histogram [below, kHistogramBins bins, above] to the head's.
void fold_histogram(const std::int64_t* counts, HeadStats* head);

}  // namespace poise
