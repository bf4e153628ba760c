// How a checked backward call is cut into work: a pure value, as plan.h's is for forward.
//
// In: the problem's sizes, the kernels, the threads allowed. Out: a BackwardPlan. A unit is one key
// head of one batch. Its rows are (query head of the group, block of keys) in this order; a row
// goes over the tiles of queries in ascending order. Units are handed out whole while there are
// plenty, and row by row when there are fewer than threads: then several threads share a unit, each
// row waiting, tile by tile, for the row before it. What must not happen here: a look at tensor
// data other than lengths, any influence of the cut on the bits.
#pragma once

#include "check.h"
#include "kernels/kernels.h"
#include "plan.h"

#include <cstdint>

namespace poise {

// Backward itself, or what it gives moved along a direction.
enum class Derivative : std::uint8_t { first, second };

struct BackwardPlan {
  const BackwardKernel* kernel = nullptr;
  void (*bias_step)(BackwardTask& task) = nullptr;  // for Derivative::first
  std::int64_t units = 0;                           // batch * kv_heads
  std::int64_t group = 1;                           // query heads of a unit
  std::int64_t tiles = 0;                           // of queries, of the longest sequence
  std::int64_t blocks = 1;       // of keys, of the longest sequence; at least 1, perhaps empty
  std::int64_t whole_units = 0;  // the first ones, handed out whole
  int threads = 1;               // allowed
  int slots = 1;                 // used
  double visible_pairs = 0;      // that positions and lengths leave
  double flops = 0;              // 2 (3 D + 2 Dv) per visible pair

  // Bytes of the kernel's pieces, multiples of kWorkspaceAlignment.
  std::int64_t block_bytes = 0, tile_bytes = 0, sums_bytes = 0;

  std::int64_t shared_units() const { return units - whole_units; }
  std::int64_t rows() const { return group * blocks; }  // of a unit
  // Heads of a unit that may be at work at once: the next begins while the last one ends.
  std::int64_t heads_at_once(bool shared) const { return shared && group > 1 ? 2 : 1; }
  // The tiles of those heads, and the sums of all blocks where several heads add to them.
  std::int64_t unit_bytes(bool shared) const {
    return bytes_of(heads_at_once(shared), bytes_of(tiles, tile_bytes)) +
           (group > 1 ? bytes_of(blocks, sums_bytes) : 0);
  }
  // What a thread works in: a block and, where one head alone adds to it, its sums.
  std::int64_t slot_bytes() const { return block_bytes + (group > 1 ? 0 : sums_bytes); }
};

// `threads`: how many may be used, at least 1. Cost: O(B), no allocation.
BackwardPlan make_backward_plan(const Problem& problem, const Kernels& kernels, int threads,
                                Derivative derivative);

}  // namespace poise
