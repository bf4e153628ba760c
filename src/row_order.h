// Row tallies folded into statistics in one fixed order, while tasks finish in any.
//
// In: each finished unit's tallies and histogram, from any thread. Out: the Stats of the call,
// every head's rows folded in the order of its units, so the bits do not depend on threads. A unit
// that is next in its heads' order is folded at once, straight from the kernel's warm buffer; one
// that overtook is copied aside until its turn. What must not happen here: a formula (tally.cpp).
#pragma once

#include <cstdint>
#include <mutex>

#include "check.h"
#include "kernels/kernels.h"
#include "plan.h"

namespace poise {

// Counts of one head's histogram: below, the bins, above.
inline constexpr std::int64_t kHistogramCounts = kHistogramBins + 2;

// The Stats of a call whose heads have seen no row; the request stays. May throw std::bad_alloc.
void start_statistics(const Problem& problem, Stats* stats);

class RowOrder {
 public:
  // Bytes start() needs, and of these the bytes that belong to one slot's warm buffers.
  static std::int64_t bytes(const TaskPlan& plan, int slots);

  // `memory` holds bytes(), aligned to 8. Fills the call's Stats with heads that have seen no row.
  // May throw std::bad_alloc.
  RowOrder(const Problem& problem, const TaskPlan& plan, int slots, char* memory);

  // Where the kernel of `slot` leaves its rows: room for as many tallies as a unit has rows, and a
  // histogram of zeros for every head of a unit.
  RowTally* tallies(int slot) const;
  std::int64_t* histogram(int slot) const;

  // A part of a unit, run on `slot`, has left its counts: kept until recall_histogram() of the
  // whole unit adds them up in the histogram of a slot. Thread-safe.
  void keep_histogram(std::int64_t unit, int slot);
  void recall_histogram(std::int64_t unit, int slot);

  // Unit `unit`, run on `slot`, has left `count` rows. Thread-safe.
  void finish(std::int64_t unit, int slot, std::int64_t count);

  // True when an allocation failed on the way; the Stats are then incomplete.
  bool failed() const { return failed_; }

 private:
  void fold(std::int64_t unit, const RowTally* rows, std::int64_t count,
            const std::int64_t* histogram);
  void fold_waiting(std::int64_t set, std::int64_t per_set);
  // Place of a unit among those of its set of heads (batch, then the plan's order of rows), and
  // back.
  std::int64_t place_of(std::int64_t unit) const;
  std::int64_t unit_of(std::int64_t set, std::int64_t place) const;

  const Problem& problem_;
  const TaskPlan& plan_;
  RowTally* warm_rows_;           // [slots][task_rows]
  std::int64_t* warm_histogram_;  // [slots][heads][kHistogramCounts]
  RowTally* cold_rows_;           // [units][task_rows], touched only by units that overtake
  std::int64_t* cold_histogram_;  // [units][heads][kHistogramCounts]
  std::int64_t* cold_count_;      // [units], -1 = not waiting
  std::int64_t* next_;            // [sets of heads], the place whose turn it is
  std::mutex mutex_;              // a fold takes about 2 % of its task: no contention worth more
  bool failed_ = false;
};

}  // namespace poise
