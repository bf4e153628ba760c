// Row tallies folded in order: warm buffers per slot, a cold shelf for units that overtake.
// The contract is in row_order.h.
#include "row_order.h"

#include <algorithm>
#include <new>

#include "tally.h"

namespace poise {
namespace {

constexpr std::int64_t kCountBytes = sizeof(std::int64_t);

std::int64_t row_bytes(const TaskPlan& plan) {
  return plan.forward->task_rows * static_cast<std::int64_t>(sizeof(RowTally));
}

std::int64_t histogram_counts(const TaskPlan& plan) { return plan.heads * kHistogramCounts; }

static_assert(kTallyBins == kHistogramBins && kTallyTracked == kTrackedKeys);
static_assert(sizeof(RowTally) % kCountBytes == 0);

}  // namespace

void start_statistics(const Problem& problem, Stats* stats) {
  stats->head_dim = problem.head_dim;
  stats->kv_heads = problem.kv_heads;
  stats->has_softcap = problem.softcap > 0;
  stats->has_bias = problem.bias.given();
  stats->has_alibi = problem.has_alibi;
  stats->has_mask = problem.mask.given();
  stats->softcap = problem.softcap;
  stats->heads.clear();
  for (std::int64_t head = 0; head < problem.q_heads; ++head)
    stats->heads.push_back(start_head(stats->request, problem.scale(head)));
}

std::int64_t RowOrder::bytes(const TaskPlan& plan, int slots) {
  const std::int64_t per_buffer = row_bytes(plan) + histogram_counts(plan) * kCountBytes;
  return bytes_of(slots, per_buffer) + bytes_of(plan.units, per_buffer + kCountBytes) +
         bytes_of(plan.set_count(), kCountBytes);
}

RowOrder::RowOrder(const Problem& problem, const TaskPlan& plan, int slots, char* memory)
    : problem_(problem), plan_(plan) {
  const auto take = [&](std::int64_t size) {
    char* piece = memory;
    memory += size;
    return piece;
  };
  const std::int64_t counts = histogram_counts(plan);
  warm_rows_ = reinterpret_cast<RowTally*>(take(slots * row_bytes(plan)));
  warm_histogram_ = reinterpret_cast<std::int64_t*>(take(slots * counts * kCountBytes));
  cold_count_ = reinterpret_cast<std::int64_t*>(take(plan.units * kCountBytes));
  next_ = reinterpret_cast<std::int64_t*>(take(plan.set_count() * kCountBytes));
  cold_histogram_ = reinterpret_cast<std::int64_t*>(take(plan.units * counts * kCountBytes));
  cold_rows_ = reinterpret_cast<RowTally*>(take(plan.units * row_bytes(plan)));
  std::fill_n(cold_count_, plan.units, -1);
  std::fill_n(next_, plan.set_count(), 0);
  if (plan.parts > 1) std::fill_n(cold_histogram_, plan.units * counts, 0);

  start_statistics(problem, problem.extras.stats);
}

RowTally* RowOrder::tallies(int slot) const { return warm_rows_ + slot * plan_.forward->task_rows; }

std::int64_t* RowOrder::histogram(int slot) const {
  const std::int64_t size = histogram_counts(plan_);
  std::int64_t* counts = warm_histogram_ + slot * size;
  std::fill_n(counts, size, 0);
  return counts;
}

void RowOrder::keep_histogram(std::int64_t unit, int slot) {
  const std::int64_t size = histogram_counts(plan_);
  const std::int64_t* counts = warm_histogram_ + slot * size;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::int64_t i = 0; i < size; ++i) cold_histogram_[unit * size + i] += counts[i];
}

void RowOrder::recall_histogram(std::int64_t unit, int slot) {
  const std::int64_t size = histogram_counts(plan_);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::copy_n(cold_histogram_ + unit * size, size, warm_histogram_ + slot * size);
}

std::int64_t RowOrder::place_of(std::int64_t unit) const {
  const std::int64_t batch = unit / plan_.row_blocks / plan_.set_count();
  return batch * plan_.row_blocks + unit % plan_.row_blocks;
}

std::int64_t RowOrder::unit_of(std::int64_t set, std::int64_t place) const {
  const std::int64_t batch = place / plan_.row_blocks;
  return (batch * plan_.set_count() + set) * plan_.row_blocks + place % plan_.row_blocks;
}

void RowOrder::fold(std::int64_t unit, const RowTally* rows, std::int64_t count,
                    const std::int64_t* histogram) {
  const TaskIndex at = unit_at(plan_, unit);
  Stats& stats = *problem_.extras.stats;
  TaskFacts facts;
  facts.level = stats.request.level;
  facts.logits_differ = stats.logits_differ();
  facts.near_tie_gap = stats.request.near_tie_gap;
  facts.stand_in_bias = stats.request.stand_in_bias;
  facts.tracked = stats.request.tracked;
  facts.batch = at.b;
  facts.q_len = problem_.q_len;
  facts.diagonal = problem_.diagonal(at.b);
  for (std::int64_t h = 0; h < at.heads; ++h) {
    facts.scale = problem_.scale(at.first_head + h);
    facts.sink = problem_.sink(at.first_head + h);
    HeadStats& head = stats.heads[static_cast<std::size_t>(at.first_head + h)];
    try {
      fold_rows(rows, count, h, facts, &head);
      if (facts.level == StatsLevel::full) fold_histogram(histogram + h * kHistogramCounts, &head);
    } catch (const std::bad_alloc&) {
      failed_ = true;
    }
  }
}

void RowOrder::finish(std::int64_t unit, int slot, std::int64_t count) {
  const std::int64_t set = unit / plan_.row_blocks % plan_.set_count();
  const std::int64_t per_set = plan_.batch * plan_.row_blocks;
  const std::int64_t size = histogram_counts(plan_);
  const RowTally* rows = tallies(slot);
  const std::int64_t* counts = warm_histogram_ + slot * size;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (place_of(unit) != next_[set]) {
    std::copy_n(rows, count, cold_rows_ + unit * plan_.forward->task_rows);
    std::copy_n(counts, size, cold_histogram_ + unit * size);
    cold_count_[unit] = count;
    return;
  }
  fold(unit, rows, count, counts);
  ++next_[set];
  fold_waiting(set, per_set);
}

void RowOrder::fold_waiting(std::int64_t set, std::int64_t per_set) {
  for (; next_[set] < per_set; ++next_[set]) {
    const std::int64_t unit = unit_of(set, next_[set]);
    if (cold_count_[unit] < 0) return;
    fold(unit, cold_rows_ + unit * plan_.forward->task_rows, cold_count_[unit],
         cold_histogram_ + unit * histogram_counts(plan_));
  }
}

}  // namespace poise
