// The only contract between the planner's side and the kernels: plain structs and a table of
// function pointers, one table per instruction set.
//
// In: one head's rows as pointers and strides, everything already checked and resolved. Out: rows
// of out, the softmax state, and raw per-row tallies. No std containers, no exceptions, no I/O, no
// allocation here; nothing in these structs may need a constructor.
#pragma once

#include <stdint.h>

namespace poise {

// Element type of a bias or mask as the kernels know it.
enum class Element : uint8_t { f32, f64, f16, bf16, boolean };

// A view of one head, or of neighbouring heads: element (row, col) of the first head at data +
// row * row_stride + col * col_stride, of the next one head_stride further.
struct ConstPlane {
  const void* data;
  int64_t row_stride;
  int64_t col_stride;
  int64_t head_stride;
};
struct Plane {
  void* data;
  int64_t row_stride;
  int64_t col_stride;
  int64_t head_stride;
};
// One value per query row.
struct ConstColumn {
  const void* data;
  int64_t stride;
  int64_t head_stride;
};
struct Column {
  void* data;  // null = not wanted
  int64_t stride;
  int64_t head_stride;
};

// Most query heads of one key head that share the lanes of a task.
inline constexpr int kMostHeads = 16;

// Which weights of a task are dropped, and what becomes of the others: the rule of
// kernels/philox.h. The words of the counter are those of the task's head 0, query 0 and key 0.
struct DropoutRule {
  bool on;             // false: nothing else is read
  uint32_t key[2];     // of Philox
  uint32_t threshold;  // a weight is kept when its word is at least this
  double factor;       // of kept weights
  uint32_t batch, head, query;
  int64_t first_key;
};

// The numbers of one query head.
struct HeadNumbers {
  double scale;
  double slope;  // of ALiBi
  double sink;   // -inf = none
};

// How much a tally holds; the numbers are those of poise::StatsLevel.
enum class TallyLevel : uint8_t { off, max, core, full };

inline constexpr int kTallyTracked = 4;
inline constexpr int kTallyBins = 64;

// The streaming state of one query row (docs/health.md, "Streaming state"), as it stands when all
// keys have been seen. "rest" sums leave one arg-max out: its t = 0, e = 1 is implicit. Fields
// above the task's level are not written.
struct RowTally {
  int64_t head;      // of the task, from 0
  int64_t row;       // query index in the sequence
  double max;        // largest visible logit; lowest float when there is none
  double second;     // second-largest visible logit, -inf when there is none
  double rest;       // sum of e^t
  double visible;    // visible keys
  double stand_ins;  // of these, keys whose bias stands in for -inf
  double bad;        // > 0 when a visible logit was NaN or +inf, or a score that counts infinite
  // From level core on. Moments are about their shift, over visible keys less stand-ins.
  double rest_t;   // sum of t e^t
  double rest_e2;  // sum of e^2t
  double score_shift, score_s1, score_s2, score_min, score_max;
  double logit_shift, logit_s1, logit_s2, logit_min, logit_max;  // only where logits differ
  // Level full.
  double rest_t2;  // sum of t^2 e^t
  double rest_e3;  // sum of e^3t
  // How the logits move with ln scale: w = scores, under a softcap scores (1 - tanh^2). Sums over
  // all keys of e^t (w - c) and t e^t (w - c) for one c; only where logits differ.
  double drive, drive_t;
  int64_t argmax;                       // first key at the maximum
  double tracked_logit[kTallyTracked];  // -inf where masked or absent
  double tracked_score[kTallyTracked];
  double tracked_bias[kTallyTracked];  // 0 without a bias
};

// The forward problem of `heads` query heads that read one key head. Row r of a task is query
// i = r / heads of head r % heads, so that the rows of few queries fill the lanes together and each
// key is read once for all of them; with one head, rows are queries. The task computes rows
// [row_begin, row_end) over the splits of the key axis that begin in [key_begin, key_end).
// Key j is visible to query i when j < kv_len, i + lower <= j <= i + upper, mask(i, j) and
// bias(i, j) > -inf.
struct ForwardTask {
  int64_t heads;
  HeadNumbers numbers[kMostHeads];
  ConstPlane query, key, value;
  Plane out;
  Element element;  // of query, key, value and out; f16 and bf16 with the f32 kernels
  int64_t row_begin, row_end;
  int64_t kv_len;
  int64_t key_begin, key_end;  // multiples of the split; key_end may be kv_len
  int64_t head_dim, value_dim;
  double softcap;        // 0 = off
  int64_t lower, upper;  // relative to the query; INT64_MIN / 4 and INT64_MAX / 4 = open
  bool has_alibi;
  double diagonal;  // logit += -slope * |i + diagonal - j|
  bool has_sink;    // of some head
  ConstPlane bias;  // data null = none
  Element bias_element;
  ConstPlane mask;  // data null = none; bytes, 0 = may not attend
  DropoutRule dropout;
  Column lse, lse_without_sink, max_score, row_max, row_sum;  // each indexed by query from 0
  Plane accumulator;                                          // data null = not wanted
  // Where the state of each split goes when another task joins them: record_bytes() per split, the
  // first one that of the split at key 0. Null = the task joins its splits and writes the outputs.
  void* records;
  TallyLevel level;
  int64_t every;  // tally queries whose i / lanes is a multiple of it
  double stand_in_bias;
  double histogram_low, histogram_inverse_width;
  int64_t tracked_keys[kTallyTracked];  // >= 0
  RowTally* tallies;                    // room for every row of the task; filled in order of rows
  int64_t tally_count;                  // written by the kernel
  int64_t* histogram;  // [heads][1 + kTallyBins + 1]: below, bins, above; added to, never zeroed
  void* workspace;     // workspace_bytes(), aligned to 64
};

// Materialised outputs of the same rows, after forward: what attention's optional L x L outputs
// need. One head per task; row_max and row_sum are inputs here (the sink included).
struct MaterialiseTask {
  ForwardTask problem;                    // outputs and tally unused
  Plane scores, capped, logits, weights;  // data null = not wanted; [rows, kv_len_total]
  int64_t kv_total;  // columns to write; keys at and after kv_len get 0, 0, -inf, 0
};

// What backward sums up over the keys of one query row, and its share of what is summed over rows.
// Fields that are not wanted hold 0, and so do the first three of rows whose i / lanes is no
// multiple of ForwardTask::every: p is the softmax over keys, sums leave out stand-ins for -inf.
struct RowGradient {
  double keys;             // n: visible keys less stand-ins
  double sent_squares;     // sum of (dP - mean dP)^2
  double arrived_squares;  // sum of (p (dP - sum p dP))^2
  double dq_squares;       // |dq|^2 of a whole tile, in its first row
  double dsink;            // p_sink (dlse - sum dout out)
  double dscale;           // sum of d scores * dots
  double dslope;           // -sum of d logits * |i + diagonal - j|
};

// The backward problem of one tile of queries of one head against one block of keys. Calls come in
// this order: open_block, then for ascending tiles open_tile (with the head's first block), step
// and close_tile (with its last block), then close_block. A tile lives from its first block to its
// last, sums of a block from the group's first head to its last.
struct BackwardTask {
  // One head; rows [row_begin, row_end) are the tile. Outputs and workspace are unused, of the
  // tally only `every` and stand_in_bias are read.
  ForwardTask problem;
  ConstPlane dout, out;                // [rows, value_dim]
  ConstColumn row_max, row_sum, dlse;  // dlse: data null = none
  ConstColumn lse;                     // in place of row_max and row_sum, where their data is null
  Plane dq, dk, dv;                    // data null = not wanted
  int64_t tiles;                       // of the head
  int64_t key, keys;                   // the block: a multiple of kBlockKeys, at most that many
  bool first_head, last_head;          // of the group
  bool want_statistics, want_scale, want_slope;
  // For second derivatives: the direction (data null = stands still) and the tangents along it.
  ConstPlane dquery, dkey, dvalue, out_tangent;
  ConstColumn lse_tangent;
  void* block;          // block_bytes(): one per thread, aligned to 64
  void* tile;           // tile_bytes()
  void* sums;           // sums_bytes(), of the block
  RowGradient* rows;    // of the tile; null = not wanted. Written by close_tile
  void* bias_sums;      // [kBlockKeys][tile_rows]: bias_step adds d logits to it
  double* key_squares;  // |dk|^2 and |dv|^2 of the block; null = not wanted. From close_block
};

// Backward of one dtype. No bit of any gradient depends on which tiles share a call.
struct BackwardKernel {
  int tile_rows;  // queries of a tile; tiles begin at multiples of it
  int64_t (*block_bytes)(int64_t head_dim, int64_t value_dim);
  int64_t (*tile_bytes)(int64_t head_dim, int64_t value_dim);
  int64_t (*sums_bytes)(int64_t head_dim, int64_t value_dim);
  void (*open_block)(BackwardTask& task);
  void (*open_tile)(BackwardTask& task);
  void (*step)(BackwardTask& task);
  void (*close_tile)(BackwardTask& task);
  void (*close_block)(BackwardTask& task);
};

// Forward mode for rows of one head, at most task_rows: how out and lse move along a direction in
// which query, key and value move. f32 and f64 in their own kernels.
struct TangentTask {
  ForwardTask problem;  // one head; outputs, tally and workspace are unused
  ConstPlane out;
  ConstColumn row_max, row_sum, lse;  // as in BackwardTask
  ConstPlane dquery, dkey, dvalue;    // the direction; data null = stands still
  Plane dout;                         // [rows, value_dim]
  Column dlse;                        // data null = not wanted
  void* workspace;                    // aligned to 64
};

struct TangentKernel {
  int task_rows;
  int64_t (*workspace_bytes)(int64_t head_dim, int64_t value_dim);
  void (*run)(TangentTask& task);
};

// Joins softmax states of `rows` rows: whole = merge(whole, part), both contiguous per row.
struct MergeTask {
  Column whole_max, whole_sum, part_max, part_sum;
  Plane whole, part;  // accumulators [rows, value_dim]
  int64_t rows, value_dim;
};

// out = accumulator / sum and lse, for `rows` rows.
struct FinishTask {
  Column row_max, row_sum, lse;
  Plane accumulator;
  Plane out;
  Element out_element;  // its own type, or f16 and bf16 with the f32 kernels
  int64_t rows, value_dim;
};

// One shape of the forward kernel. No bit of any output depends on the shape.
struct ForwardKernel {
  int tile_rows;  // rows per inner tile
  int task_rows;  // rows that share one pass over the keys, at most
  int64_t (*workspace_bytes)(int64_t head_dim, int64_t value_dim);
  int64_t (*record_bytes)(int64_t rows, int64_t value_dim);  // the state of one split
  void (*forward)(ForwardTask& task);
  void (*join)(ForwardTask& task);  // after forward has left a record of every split
};

// The kernels of one dtype.
struct KernelSet {
  int lanes;             // numbers per vector
  ForwardKernel wide;    // queries along the lanes: many rows, limited by arithmetic
  ForwardKernel narrow;  // keys along the lanes: few rows, limited by the reading of keys
  BackwardKernel backward;
  // In place of backward.step, for the gradient of a bias alone: adds d logits of the pair to
  // bias_sums.
  void (*bias_step)(BackwardTask& task);
  TangentKernel tangent;
  BackwardKernel second;  // gradients of what backward gives, along a direction
  void (*materialise)(const MaterialiseTask& task);  // with the workspace of `wide`
  void (*merge)(const MergeTask& task);
  void (*finish)(const FinishTask& task);
  void (*exp)(const void* t, void* result, int64_t count);   // the kernels' exp, for tests
  void (*tanh)(const void* x, void* result, int64_t count);  // the kernels' tanh, for tests
  double (*fma_chain)(int64_t rounds);  // flops of a register-only FMA loop, to time the peak with
  void (*read_stream)(const void* data, int64_t count);  // loads them all, to time memory with
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "neon", "scalar"
  KernelSet f32, f64;
};

}  // namespace poise
