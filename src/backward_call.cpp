// From a plan to gradients: units whole, the last ones row by row with threads in each other's
// wake, reductions over rows in order. The contract is in backward_call.h.
//
// A row (head of the group, block of keys) goes over the tiles of queries. It may take tile t when
// the row before it in its head has left t (dq is summed block by block), and begin when the head
// before has left its block (dk and dv are summed head by head). Rows are taken in ascending order
// by threads that finish what they take, so the lowest unfinished row never waits: no deadlock,
// whatever the executor does, a single thread included.
#include "backward_call.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absent_rows.h"
#include "backward_stats.h"
#include "float_control.h"
#include "plan.h"
#include "task_inputs.h"
#include "view_values.h"

namespace poise {
namespace {

// Memory of one unit: tiles of up to two heads, then sums of blocks.
struct UnitSpace {
  char* tiles = nullptr;
  char* sums = nullptr;  // null = a thread's own
  bool shared = false;
};

struct Call {
  const BackwardProblem& checked;
  const BackwardLayout& layout;
  const BackwardKernel& kernel;
  char* slots = nullptr;
  char* whole = nullptr;
  char* shared = nullptr;
  std::int32_t* progress = nullptr;
  RowGradient* rows = nullptr;  // [B, Hq, Lq]
  double* squares = nullptr;    // [units][blocks][2]
  char* bias = nullptr;
  std::int64_t claims = 0;
  std::atomic<std::int64_t> next{0};
};

// One row of a unit: query head `head` of the group against block `block` of the keys.
struct Row {
  std::int64_t unit, head, block;
};

// How far others are. Short waits are the rule, long ones let the machine do something else.
void wait_for(std::int32_t& progress, std::int64_t tiles) {
  constexpr int kLooks = 256;
  const std::atomic_ref<std::int32_t> done(progress);
  for (int look = 0; done.load(std::memory_order_acquire) < tiles; ++look)
    if (look >= kLooks) std::this_thread::yield();
}

BackwardTask backward_task(const Call& call, std::int64_t b, std::int64_t head, int slot) {
  const BackwardProblem& c = call.checked;
  BackwardTask task{};
  task.problem = task_inputs(c.problem, b, head, 1);
  task.dout = plane_of<ConstPlane>(c.gradient.dout, b, head);
  task.out = plane_of<ConstPlane>(c.forward.out, b, head);
  task.row_max = column_of(c.forward.row_max, b, head);
  task.row_sum = column_of(c.forward.row_sum, b, head);
  task.lse = column_of(c.forward.lse, b, head);
  task.dlse = column_of(c.gradient.dlse, b, head);
  task.dquery = plane_of<ConstPlane>(c.direction.query, b, head);
  task.dkey = plane_of<ConstPlane>(c.direction.key, b, head / c.problem.group);
  task.dvalue = plane_of<ConstPlane>(c.direction.value, b, head / c.problem.group);
  task.out_tangent = plane_of<ConstPlane>(ConstTensor(c.out_tangent), b, head);
  task.lse_tangent = column_of(ConstTensor(c.lse_tangent), b, head);
  task.block = call.slots + slot * call.layout.plan.slot_bytes();
  return task;
}

void choose_block(const BackwardTask& given, std::int64_t block, BackwardTask* task) {
  task->key = block * kBlock;
  task->keys = std::clamp<std::int64_t>(given.problem.kv_len - task->key, 0, kBlock);
}

// Blocks of a batch: at least one, so that rows are opened and closed without keys too.
std::int64_t blocks_of(const BackwardTask& task) {
  return std::max<std::int64_t>((task.problem.kv_len + kBlock - 1) / kBlock, 1);
}

// What the call wants besides products, and where one head's share of it lies.
void want_outputs(const Call& call, std::int64_t b, std::int64_t head, const Row& row,
                  BackwardTask* task) {
  const BackwardProblem& c = call.checked;
  const Problem& p = c.problem;
  const BackwardPlan& plan = call.layout.plan;
  task->dq = plane_of(&c.gradients.dq, b, head);
  task->dk = plane_of(&c.gradients.dk, b, head / p.group);
  task->dv = plane_of(&c.gradients.dv, b, head / p.group);
  task->first_head = row.head == 0;
  task->last_head = row.head == plan.group - 1;
  task->want_statistics = c.stats != nullptr;
  if (c.stats != nullptr) {
    task->problem.every = c.stats->request.every;
    task->problem.stand_in_bias = c.stats->request.stand_in_bias;
  }
  task->want_scale = c.gradients.dscale.given();
  task->want_slope = c.gradients.dslopes.given();
  if (call.squares != nullptr)
    task->key_squares = call.squares + (row.unit * plan.blocks + row.block) * 2;
}

// Rows that do not exist have gradients of zero.
void write_absent(const Call& call, std::int64_t b, std::int64_t blocks, const Row& row,
                  const BackwardTask& task) {
  const Problem& p = call.checked.problem;
  if (row.block != blocks - 1) return;
  write_zero_rows(task.dq, 0, p.q_length(b), p.q_len, p.head_dim, p.dtype);
  if (!task.last_head) return;
  write_zero_rows(task.dk, 0, p.kv_length(b), p.kv_len, p.head_dim, p.dtype);
  write_zero_rows(task.dv, 0, p.kv_length(b), p.kv_len, p.value_dim, p.dtype);
}

// `progress`: of the unit's rows, null when nobody else works on it.
void run_row(const Call& call, const Row& row, const UnitSpace& space, std::int32_t* progress,
             int slot) {
  const Problem& p = call.checked.problem;
  const BackwardPlan& plan = call.layout.plan;
  const std::int64_t b = row.unit / p.kv_heads;
  const std::int64_t head = row.unit % p.kv_heads * plan.group + row.head;
  const std::int64_t rows = p.q_length(b);
  const std::int64_t tiles = (rows + call.kernel.tile_rows - 1) / call.kernel.tile_rows;
  BackwardTask task = backward_task(call, b, head, slot);
  const std::int64_t blocks = blocks_of(task);
  std::int32_t* own = nullptr;
  std::int32_t* before = nullptr;
  if (progress != nullptr) {
    own = progress + row.head * plan.blocks + row.block;
    if (row.block > 0) before = own - 1;
    // Every row ends with one more than its tiles, absent blocks too.
    if (row.head > 0) wait_for(*(own - plan.blocks), tiles + 1);
    if (row.head > 1 && row.block == 0)
      wait_for(*(progress + (row.head - 2) * plan.blocks + blocks - 1), tiles + 1);
  }
  if (row.block < blocks) {
    task.tiles = tiles;
    choose_block(task, row.block, &task);
    want_outputs(call, b, head, row, &task);
    char* head_tiles =
        space.tiles + row.head % plan.heads_at_once(space.shared) * plan.tiles * plan.tile_bytes;
    task.sums = space.sums == nullptr ? static_cast<char*>(task.block) + plan.block_bytes
                                      : space.sums + row.block * plan.sums_bytes;
    call.kernel.open_block(task);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      if (before != nullptr) wait_for(*before, tile + 1);
      task.problem.row_begin = tile * call.kernel.tile_rows;
      task.problem.row_end = std::min(task.problem.row_begin + call.kernel.tile_rows, rows);
      task.tile = head_tiles + tile * plan.tile_bytes;
      if (call.rows != nullptr)
        task.rows = call.rows + (b * p.q_heads + head) * p.q_len + task.problem.row_begin;
      if (row.block == 0) call.kernel.open_tile(task);
      call.kernel.step(task);
      if (row.block == blocks - 1) call.kernel.close_tile(task);
      if (own != nullptr)
        std::atomic_ref(*own).store(static_cast<std::int32_t>(tile + 1), std::memory_order_release);
    }
    call.kernel.close_block(task);
    write_absent(call, b, blocks, row, task);
  }
  if (own != nullptr)
    std::atomic_ref(*own).store(static_cast<std::int32_t>(tiles + 1), std::memory_order_release);
}

// Takes units and rows, in order, until none is left.
void work(void* context, std::int64_t, int slot) {
  const FloatControl control;
  Call& call = *static_cast<Call*>(context);
  const BackwardPlan& plan = call.layout.plan;
  for (std::int64_t claim = call.next++; claim < call.claims; claim = call.next++) {
    const bool shared = claim >= plan.whole_units;
    const std::int64_t from_shared = claim - plan.whole_units;
    const std::int64_t place = shared ? from_shared / plan.rows() : slot;
    UnitSpace space;
    space.shared = shared;
    space.tiles = (shared ? call.shared : call.whole) + place * plan.unit_bytes(shared);
    if (plan.group > 1)
      space.sums = space.tiles + plan.heads_at_once(shared) * plan.tiles * plan.tile_bytes;
    if (!shared) {
      for (std::int64_t head = 0; head < plan.group; ++head)
        for (std::int64_t block = 0; block < plan.blocks; ++block)
          run_row(call, {claim, head, block}, space, nullptr, slot);
      continue;
    }
    const std::int64_t row = from_shared % plan.rows();
    run_row(call, {plan.whole_units + place, row / plan.blocks, row % plan.blocks}, space,
            call.progress + place * plan.rows(), slot);
  }
}

// ---- dbias --------------------------------------------------------------------------------------

// The part of [0, count) that place `at` of a gradient's axis is summed from: itself, or all.
struct Span {
  std::int64_t begin, end;
};
Span span_of(bool summed, std::int64_t at, std::int64_t count) {
  return summed ? Span{0, count} : Span{at, at + 1};
}

struct BiasAxes {
  bool batch, heads, rows, keys;                    // summed over
  std::int64_t batches, head_count, tiles, blocks;  // places of the gradient
};

BiasAxes bias_axes(const BackwardProblem& checked, const BackwardPlan& plan) {
  const Problem& p = checked.problem;
  const Tensor& dbias = checked.dbias;
  BiasAxes axes{};
  axes.batch = dbias.stride(0) == 0;
  axes.heads = dbias.stride(1) == 0;
  axes.rows = dbias.stride(2) == 0;
  axes.keys = dbias.stride(3) == 0;
  axes.batches = axes.batch ? 1 : p.batch;
  axes.head_count = axes.heads ? 1 : p.q_heads;
  axes.tiles = axes.rows ? 1 : plan.tiles;
  axes.blocks = axes.keys ? 1 : (p.kv_len + kBlock - 1) / kBlock;
  return axes;
}

// Sums of one place of the gradient over everything it broadcasts to, in order; then its elements.
template <class T>
void write_bias(const Call& call, const BiasAxes& axes, std::int64_t b, std::int64_t head,
                std::int64_t tile, std::int64_t block, const T* sums) {
  const Problem& p = call.checked.problem;
  const Tensor& dbias = call.checked.dbias;
  const std::int64_t lanes = call.kernel.tile_rows;
  const std::int64_t rows = axes.rows ? 1 : std::min(lanes, p.q_len - tile * lanes);
  const std::int64_t keys = axes.keys ? 1 : std::min(kBlock, p.kv_len - block * kBlock);
  T* to = static_cast<T*>(dbias.data) + b * dbias.stride(0) + head * dbias.stride(1) +
          tile * lanes * dbias.stride(2) + block * kBlock * dbias.stride(3);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < keys; ++j) {
      double sum = 0;
      for (std::int64_t k = axes.keys ? 0 : j; k < (axes.keys ? kBlock : j + 1); ++k)
        for (std::int64_t r = axes.rows ? 0 : i; r < (axes.rows ? lanes : i + 1); ++r)
          sum += static_cast<double>(sums[k * lanes + r]);
      to[i * dbias.stride(2) + j * dbias.stride(3)] = static_cast<T>(sum);
    }
}

template <class T>
void bias_place(const Call& call, const BiasAxes& axes, std::int64_t b, std::int64_t head,
                std::int64_t tile, std::int64_t block, int slot) {
  const Problem& p = call.checked.problem;
  const BackwardPlan& plan = call.layout.plan;
  char* space = call.bias + slot * (call.layout.bias_bytes / call.layout.slots);
  T* sums = reinterpret_cast<T*>(space + plan.tile_bytes);
  std::fill_n(sums, kBlock * call.kernel.tile_rows, T(0));
  const Span batches = span_of(axes.batch, b, p.batch);
  const Span heads = span_of(axes.heads, head, p.q_heads);
  const Span all_tiles = span_of(axes.rows, tile, plan.tiles);
  const Span all_blocks = span_of(axes.keys, block, (p.kv_len + kBlock - 1) / kBlock);
  for (std::int64_t from = batches.begin; from < batches.end; ++from)
    for (std::int64_t h = heads.begin; h < heads.end; ++h) {
      BackwardTask task = backward_task(call, from, h, slot);
      task.tile = space;
      task.bias_sums = sums;
      for (std::int64_t k = all_blocks.begin; k < all_blocks.end; ++k) {
        choose_block(task, k, &task);
        if (task.keys == 0) continue;
        call.kernel.open_block(task);
        for (std::int64_t t = all_tiles.begin; t < all_tiles.end; ++t) {
          task.problem.row_begin = t * call.kernel.tile_rows;
          task.problem.row_end =
              std::min(task.problem.row_begin + call.kernel.tile_rows, p.q_length(from));
          if (task.problem.row_begin >= task.problem.row_end) continue;
          call.kernel.open_tile(task);
          plan.bias_step(task);
        }
      }
    }
  write_bias(call, axes, b, head, tile, block, sums);
}

void bias_task(void* context, std::int64_t index, int slot) {
  const FloatControl control;
  const Call& call = *static_cast<const Call*>(context);
  const BiasAxes axes = bias_axes(call.checked, call.layout.plan);
  const std::int64_t block = index % axes.blocks, rest = index / axes.blocks;
  const std::int64_t tile = rest % axes.tiles, heads = rest / axes.tiles;
  const std::int64_t head = heads % axes.head_count, b = heads / axes.head_count;
  if (call.checked.problem.numbers == DType::f64)
    bias_place<double>(call, axes, b, head, tile, block, slot);
  else
    bias_place<float>(call, axes, b, head, tile, block, slot);
}

// ---- sums over rows -----------------------------------------------------------------------------

// Element [b, h] (or [h]) of a small tensor of numbers, as a place to write.
void put(const Tensor& tensor, std::int64_t offset, double x) {
  if (tensor.dtype == DType::f64)
    static_cast<double*>(tensor.data)[offset] = x;
  else
    static_cast<float*>(tensor.data)[offset] = static_cast<float>(x);
}

struct RowSums {
  double dsink = 0, dscale = 0, dslope = 0;
};

RowSums sum_rows(const Call& call, std::int64_t b, std::int64_t head) {
  const Problem& p = call.checked.problem;
  RowSums sums;
  const RowGradient* rows = call.rows + (b * p.q_heads + head) * p.q_len;
  for (std::int64_t i = 0; i < p.q_length(b); ++i) {
    sums.dsink += rows[i].dsink;
    sums.dscale += rows[i].dscale;
    sums.dslope += rows[i].dslope;
  }
  return sums;
}

void write_row_sums(const Call& call) {
  const BackwardProblem& c = call.checked;
  const Problem& p = c.problem;
  const Gradients& g = c.gradients;
  double dscale_of_all = 0;
  for (std::int64_t head = 0; head < p.q_heads; ++head) {
    RowSums total;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const RowSums sums = sum_rows(call, b, head);
      total.dsink += sums.dsink;
      total.dscale += sums.dscale;
      total.dslope += sums.dslope;
      if (g.dslopes.given() && g.dslopes.rank == 2)
        put(g.dslopes, b * g.dslopes.stride(0) + head * g.dslopes.stride(1), sums.dslope);
    }
    if (g.dsinks.given()) put(g.dsinks, head * g.dsinks.stride(0), total.dsink);
    if (g.dslopes.given() && g.dslopes.rank == 1)
      put(g.dslopes, head * g.dslopes.stride(0), total.dslope);
    if (g.dscale.given() && g.dscale.extent(0) == p.q_heads)
      put(g.dscale, head * g.dscale.stride(0), total.dscale);
    dscale_of_all += total.dscale;
  }
  if (g.dscale.given() && g.dscale.extent(0) == 1) put(g.dscale, 0, dscale_of_all);
}

// Key heads without a query head: nothing runs, but their gradients exist.
void write_unread_keys(const BackwardProblem& c) {
  const Problem& p = c.problem;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t head = 0; head < p.kv_heads; ++head) {
      write_zero_rows(plane_of(&c.gradients.dk, b, head), 0, 0, p.kv_len, p.head_dim, p.dtype);
      write_zero_rows(plane_of(&c.gradients.dv, b, head), 0, 0, p.kv_len, p.value_dim, p.dtype);
    }
}

}  // namespace

std::int64_t BackwardLayout::bytes() const {
  return std::max(
      slot_bytes + whole_bytes + shared_bytes + progress_bytes + row_bytes + square_bytes,
      slot_bytes + bias_bytes);
}

BackwardLayout lay_out(const BackwardProblem& checked, const BackwardPlan& plan, int slots) {
  const Problem& p = checked.problem;
  BackwardLayout layout;
  layout.plan = plan;
  layout.slots = slots;
  layout.row_sums_wanted = checked.gradients.dsinks.given() || checked.gradients.dscale.given() ||
                           checked.gradients.dslopes.given();
  layout.rows_wanted = layout.row_sums_wanted || checked.stats != nullptr;
  layout.slot_bytes = bytes_of(slots, plan.slot_bytes());
  if (plan.whole_units > 0) layout.whole_bytes = bytes_of(slots, plan.unit_bytes(false));
  layout.shared_bytes = bytes_of(plan.shared_units(), plan.unit_bytes(true));
  layout.progress_bytes =
      aligned(bytes_of(plan.shared_units(), bytes_of(plan.rows(), sizeof(std::int32_t))));
  if (layout.rows_wanted)
    layout.row_bytes =
        aligned(bytes_of(p.batch * p.q_heads, bytes_of(p.q_len, sizeof(RowGradient))));
  if (checked.stats != nullptr)
    layout.square_bytes = aligned(bytes_of(plan.units, bytes_of(plan.blocks, 2 * sizeof(double))));
  if (checked.dbias.given())
    layout.bias_bytes =
        bytes_of(slots, plan.tile_bytes + kBlock * plan.kernel->tile_rows * size_bytes(p.numbers));
  return layout;
}

Error run_backward(const BackwardProblem& checked, const BackwardLayout& layout, Executor& executor,
                   char* memory) {
  if (Error error = start_gradient_statistics(checked)) return error;
  const BackwardPlan& plan = layout.plan;
  Call call{.checked = checked, .layout = layout, .kernel = *plan.kernel};
  call.slots = memory;
  call.bias = call.slots + layout.slot_bytes;
  call.whole = call.bias;
  call.shared = call.whole + layout.whole_bytes;
  memory = call.shared + layout.shared_bytes;
  call.progress = reinterpret_cast<std::int32_t*>(memory);
  std::fill_n(call.progress, plan.shared_units() * plan.rows(), std::int32_t{0});
  memory += layout.progress_bytes;
  if (layout.rows_wanted) call.rows = reinterpret_cast<RowGradient*>(memory);
  memory += layout.row_bytes;
  if (layout.square_bytes > 0) call.squares = reinterpret_cast<double*>(memory);
  if (plan.group == 0) write_unread_keys(checked);
  call.claims = plan.group == 0 ? 0 : plan.whole_units + plan.shared_units() * plan.rows();
  executor.run(std::min<std::int64_t>(layout.slots, call.claims), work, &call);
  if (layout.row_sums_wanted) write_row_sums(call);
  if (Error error = fold_gradient_statistics(checked, plan, call.rows, call.squares, executor))
    return error;
  if (!checked.dbias.given()) return {};
  const BiasAxes axes = bias_axes(checked, plan);
  executor.run(axes.batches * axes.head_count * axes.tiles * axes.blocks, bias_task, &call);
  return {};
}

}  // namespace poise
