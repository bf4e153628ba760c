// Row tallies folded in order: warm buffers per slot, a cold shelf for tasks that overtake.
// The contract is in row_order.h.
#include "row_order.h"

#include <algorithm>
#include <new>

#include "tally.h"

namespace poise {
namespace {

constexpr std::int64_t kCountBytes = sizeof(std::int64_t);

std::int64_t row_bytes(const Plan& plan) {
  return plan.task_queries * static_cast<std::int64_t>(sizeof(RowTally));
}

static_assert(kTallyBins == kHistogramBins && kTallyTracked == kTrackedKeys);
static_assert(sizeof(RowTally) % kCountBytes == 0);

}  // namespace

std::int64_t RowOrder::bytes(const Plan& plan, int slots) {
  const std::int64_t per_buffer = row_bytes(plan) + kHistogramCounts * kCountBytes;
  return (slots + plan.tasks) * per_buffer + (plan.tasks + plan.q_heads) * kCountBytes;
}

RowOrder::RowOrder(const Problem& problem, const Plan& plan, int slots, char* memory)
    : problem_(problem), plan_(plan) {
  const auto take = [&](std::int64_t size) {
    char* piece = memory;
    memory += size;
    return piece;
  };
  const std::int64_t histogram_bytes = kHistogramCounts * kCountBytes;
  warm_rows_ = reinterpret_cast<RowTally*>(take(slots * row_bytes(plan)));
  warm_histogram_ = reinterpret_cast<std::int64_t*>(take(slots * histogram_bytes));
  cold_count_ = reinterpret_cast<std::int64_t*>(take(plan.tasks * kCountBytes));
  next_ = reinterpret_cast<std::int64_t*>(take(plan.q_heads * kCountBytes));
  cold_histogram_ = reinterpret_cast<std::int64_t*>(take(plan.tasks * histogram_bytes));
  cold_rows_ = reinterpret_cast<RowTally*>(take(plan.tasks * row_bytes(plan)));
  std::fill_n(cold_count_, plan.tasks, -1);
  std::fill_n(next_, plan.q_heads, 0);

  Stats& stats = *problem.extras.stats;
  stats.head_dim = problem.head_dim;
  stats.kv_heads = problem.kv_heads;
  stats.has_softcap = problem.softcap > 0;
  stats.has_bias = problem.bias.given();
  stats.has_alibi = problem.has_alibi;
  stats.has_mask = problem.mask.given();
  stats.softcap = problem.softcap;
  stats.heads.clear();
  for (std::int64_t head = 0; head < problem.q_heads; ++head)
    stats.heads.push_back(start_head(stats.request, problem.scale(head)));
}

RowTally* RowOrder::tallies(int slot) const { return warm_rows_ + slot * plan_.task_queries; }

std::int64_t* RowOrder::histogram(int slot) const {
  std::int64_t* counts = warm_histogram_ + slot * kHistogramCounts;
  std::fill_n(counts, kHistogramCounts, 0);
  return counts;
}

std::int64_t RowOrder::place_of(std::int64_t index) const {
  const std::int64_t pair = index / plan_.row_blocks;
  return pair / plan_.q_heads * plan_.row_blocks + index % plan_.row_blocks;
}

std::int64_t RowOrder::index_of(std::int64_t head, std::int64_t place) const {
  const std::int64_t batch = place / plan_.row_blocks;
  return (batch * plan_.q_heads + head) * plan_.row_blocks + place % plan_.row_blocks;
}

void RowOrder::fold(std::int64_t index, const RowTally* rows, std::int64_t count,
                    const std::int64_t* histogram) {
  const TaskIndex at = task_at(plan_, index);
  Stats& stats = *problem_.extras.stats;
  TaskFacts facts;
  facts.level = stats.request.level;
  facts.logits_differ = stats.logits_differ();
  facts.scale = problem_.scale(at.head);
  facts.sink = problem_.sink(at.head);
  facts.near_tie_gap = stats.request.near_tie_gap;
  facts.stand_in_bias = stats.request.stand_in_bias;
  facts.batch = at.b;
  facts.q_len = problem_.q_len;
  facts.diagonal = problem_.diagonal(at.b);
  HeadStats& head = stats.heads[static_cast<std::size_t>(at.head)];
  try {
    fold_rows(rows, count, facts, &head);
    if (facts.level == StatsLevel::full) fold_histogram(histogram, &head);
  } catch (const std::bad_alloc&) {
    failed_ = true;
  }
}

void RowOrder::finish(std::int64_t index, int slot, std::int64_t count) {
  const std::int64_t head = index / plan_.row_blocks % plan_.q_heads;
  const std::int64_t per_head = plan_.batch * plan_.row_blocks;
  const RowTally* rows = tallies(slot);
  const std::int64_t* counts = warm_histogram_ + slot * kHistogramCounts;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (place_of(index) != next_[head]) {
    std::copy_n(rows, count, cold_rows_ + index * plan_.task_queries);
    std::copy_n(counts, kHistogramCounts, cold_histogram_ + index * kHistogramCounts);
    cold_count_[index] = count;
    return;
  }
  fold(index, rows, count, counts);
  ++next_[head];
  fold_waiting(head, per_head);
}

void RowOrder::fold_waiting(std::int64_t head, std::int64_t per_head) {
  for (; next_[head] < per_head; ++next_[head]) {
    const std::int64_t index = index_of(head, next_[head]);
    if (cold_count_[index] < 0) return;
    fold(index, cold_rows_ + index * plan_.task_queries, cold_count_[index],
         cold_histogram_ + index * kHistogramCounts);
  }
}

}  // namespace poise
