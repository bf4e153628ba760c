// Row tallies folded into statistics in one fixed order, while tasks finish in any.
//
// In: each finished task's tallies and histogram, from any thread. Out: the Stats of the call,
// every head's rows folded in the order of its tasks, so the bits do not depend on threads. A task
// that is next in its head's order is folded at once, straight from the kernel's warm buffer; one
// that overtook is copied aside until its turn. What must not happen here: a formula (tally.cpp).
#pragma once

#include <cstdint>
#include <mutex>

#include "check.h"
#include "kernels/kernels.h"
#include "plan.h"

namespace poise {

// Bins of a task's histogram: below, the bins, above.
inline constexpr std::int64_t kHistogramCounts = kHistogramBins + 2;

class RowOrder {
 public:
  // Bytes start() needs, and of these the bytes that belong to one slot's warm buffers.
  static std::int64_t bytes(const Plan& plan, int slots);

  // `memory` holds bytes(), aligned to 8. Fills the call's Stats with heads that have seen no row.
  // May throw std::bad_alloc.
  RowOrder(const Problem& problem, const Plan& plan, int slots, char* memory);

  // Where the kernel of `slot` leaves its rows: room for plan.task_queries tallies, and a histogram
  // of zeros.
  RowTally* tallies(int slot) const;
  std::int64_t* histogram(int slot) const;

  // Task `index`, run on `slot`, has left `count` rows. Thread-safe.
  void finish(std::int64_t index, int slot, std::int64_t count);

  // True when an allocation failed on the way; the Stats are then incomplete.
  bool failed() const { return failed_; }

 private:
  void fold(std::int64_t index, const RowTally* rows, std::int64_t count,
            const std::int64_t* histogram);
  void fold_waiting(std::int64_t head, std::int64_t per_head);
  // Place of a task among its head's tasks (batch, then the plan's order of rows), and back.
  std::int64_t place_of(std::int64_t index) const;
  std::int64_t index_of(std::int64_t head, std::int64_t place) const;

  const Problem& problem_;
  const Plan& plan_;
  RowTally* warm_rows_;           // [slots][task_queries]
  std::int64_t* warm_histogram_;  // [slots][kHistogramCounts]
  RowTally* cold_rows_;           // [tasks][task_queries], touched only by tasks that overtake
  std::int64_t* cold_histogram_;  // [tasks][kHistogramCounts]
  std::int64_t* cold_count_;      // [tasks], -1 = not waiting
  std::int64_t* next_;            // [heads], the place whose turn it is
  std::mutex mutex_;              // a fold takes about 2 % of its task: no contention worth more
  bool failed_ = false;
};

}  // namespace poise
