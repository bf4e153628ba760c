// The forward pass of one task: rows of one head against all the keys they see.
//
//   queries -> lanes
//   for each split of kSplitKeys keys, ascending:
//     for each block of kBlockKeys keys some row sees: pack K and V once, step every tile
//     each tile's part joins its whole by the one merge
//   the sink joins; rows of out, lse, max_score, row_max, row_sum and tallies are written
// With records, parts stay apart, split by split, and join_splits does the rest.
// Splits and blocks lie at absolute multiples of the sequence's positions, so no bit depends on the
// task's rows, the masks' extent or the threads.

namespace poise::POISE_NAMESPACE {

template <class S>
inline void open_part(const ForwardTask& task, Tile<S>& tile) {
  constexpr int Q = kQueries<S>;
  if (tile.part_open) return;
  tile.part_open = true;
  tile.part_empty = true;
  if constexpr (kIsNarrow<S>) fill<S>(tile.part_out, tile_numbers<S>(task.value_dim), 0);
  fill<S>(tile.part_max, Q, Limits<typename S::T>::kLowest);
  fill<S>(tile.part_sum, Q, 0);
  for (int v = 0; v < S::kTileVectors; ++v) {
    if (tile.level[v] == TallyLevel::off) continue;
    constexpr int W = S::kLanes;
    clear_tally<S>(tile.level[v], changes_scores(task), tile.part_tally + v * W);
    fill<S>(tile.part_shift + v * W, W, Limits<typename S::T>::kNaN);
    fill<S>(tile.part_shift + Q + v * W, W, Limits<typename S::T>::kNaN);
  }
}

// whole = merge(whole, part) for every row of the tile.
template <class S>
inline void close_part(const ForwardTask& task, const Workspace<S>& space, Tile<S>& tile) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  if (!tile.part_open) return;
  tile.part_open = false;
  T *max = space.merged_max, *alpha = space.alpha, *beta = space.beta;
  bool infinite = false;
  for (int64_t lane = 0; lane < tile.rows; lane += W) {
    const MergeFactors<S> f =
        merge_factors<S>(S::load(tile.whole_max + lane), S::load(tile.part_max + lane));
    S::store(tile.whole_sum + lane,
             join<S>(f, S::load(tile.whole_sum + lane), S::load(tile.part_sum + lane)));
    S::store(max + lane, f.max);
    S::store(alpha + lane, f.alpha);
    S::store(beta + lane, f.beta);
    infinite = infinite || S::any(S::equal(f.max, S::set(Limits<T>::kInfinity)));
    const TallyLevel level = tile.level[lane / W];
    if (level != TallyLevel::off) {
      const bool changed = changes_scores(task);
      raise_max<S>(level, changed, tile.whole_tally + lane, tile.whole_max + lane, max + lane,
                   alpha + lane);
      raise_max<S>(level, changed, tile.part_tally + lane, tile.part_max + lane, max + lane,
                   beta + lane);
      add_tally<S>(level, changed, tile.whole_tally + lane, tile.part_tally + lane);
    }
    S::store(tile.whole_max + lane, f.max);
  }
  if (!tile.whole_empty) {
    join_sums<S>(tile, task.value_dim, alpha, tile.whole_out, beta, tile.part_out, tile.whole_out);
    tile.whole_first = false;
    return;
  }
  // The first part becomes the whole where it lies. Its factor is 1, or NaN for an infinite
  // maximum.
  if (infinite)
    join_sums<S>(tile, task.value_dim, alpha, nullptr, beta, tile.part_out, tile.part_out);
  T* const spare = tile.whole_out;
  tile.whole_out = tile.part_out;
  tile.part_out = spare;
  tile.whole_empty = false;
  tile.whole_first = !infinite;
}

// One number for each row of the tile, if the caller wants it.
template <class S, class NumberOf>
inline void put_rows(const ForwardTask& task, const Column& column, const Tile<S>& tile,
                     const NumberOf& number_of) {
  if (column.data == nullptr) return;
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t row = tile.row + i;
    const int64_t at =
        query_of(task, row) * column.stride + head_of(task, row) * column.head_stride;
    static_cast<typename S::T*>(column.data)[at] = number_of(i);
  }
}

template <class S>
inline void emit_tallies(ForwardTask& task, const Tile<S>& tile) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  for (int64_t i = 0; i < tile.rows; ++i) {
    if (tile.level[i / W] == TallyLevel::off) continue;
    const double* f = tile.whole_tally + i;
    const double ones = f[kOnes * Q];
    const double max = static_cast<double>(tile.whole_max[i]);
    const double sum = static_cast<double>(tile.whole_sum[i]);
    RowTally& row = task.tallies[task.tally_count++];
    row.head = head_of(task, tile.row + i);
    row.row = query_of(task, tile.row + i);
    row.max = max;
    row.second = ones >= 2 ? max : f[kSecond * Q];
    row.rest = f[kRest * Q] + (ones - 1);
    row.visible = f[kVisible * Q];
    row.stand_ins = f[kStandIns * Q];
    row.bad = sum != sum || max == Limits<double>::kInfinity ? 1 : 0;
    if (task.level < TallyLevel::core) continue;
    row.rest_t = f[kRestT * Q];
    row.rest_e2 = f[kRestE2 * Q] + (ones - 1);
    const double* scores = f + kScoreMoments * Q;
    row.score_shift = scores[kShift * Q];
    row.score_s1 = scores[kS1 * Q];
    row.score_s2 = scores[kS2 * Q];
    row.score_min = scores[kMin * Q];
    row.score_max = changes_scores(task) ? scores[kMax * Q] : max;
    // Under a softcap the logits of infinite scores are finite; the scores have no mean.
    if (row.score_min == -Limits<double>::kInfinity || row.score_max == Limits<double>::kInfinity)
      row.bad = 1;
    if (changes_scores(task)) {
      const double* logits = f + kLogitMoments * Q;
      row.logit_shift = logits[kShift * Q];
      row.logit_s1 = logits[kS1 * Q];
      row.logit_s2 = logits[kS2 * Q];
      row.logit_min = logits[kMin * Q];
      row.logit_max = logits[kMax * Q];
    }
    if (task.level < TallyLevel::full) continue;
    row.rest_t2 = f[kRestT2 * Q];
    row.rest_e3 = f[kRestE3 * Q] + (ones - 1);
    row.drive = changes_scores(task) ? f[kDrive * Q] : 0;
    row.drive_t = changes_scores(task) ? f[kDriveT * Q] : 0;
    row.argmax = f[kArgmax * Q] < kNoKey ? static_cast<int64_t>(f[kArgmax * Q]) : -1;
    for (int k = 0; k < kTallyTracked; ++k) {
      row.tracked_logit[k] = tile.tracked[k * Q + i];
      row.tracked_score[k] = tile.tracked[(kTallyTracked + k) * Q + i];
      row.tracked_bias[k] = tile.tracked[(2 * kTallyTracked + k) * Q + i];
    }
  }
}

// Lets the sink join and writes every output of the tile's rows.
template <class S>
inline void write_tile(ForwardTask& task, const Workspace<S>& space, Tile<S>& tile) {
  using T = typename S::T;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  if (task.level != TallyLevel::off) emit_tallies<S>(task, tile);
  if (tile.whole_empty) fill<S>(tile.whole_out, tile_numbers<S>(task.value_dim), 0);
  tile.whole_empty = false;
  put_rows(task, task.lse_without_sink, tile,
           [&](int64_t i) { return log_sum_exp(tile.whole_max[i], tile.whole_sum[i]); });
  put_rows(task, task.max_score, tile,
           [&](int64_t i) { return visible_max(tile.whole_max[i], tile.whole_sum[i]); });
  if (task.has_sink) {
    // A sink of -inf joins as the empty state that it is.
    typename S::T *alpha = space.alpha, *beta = space.beta;
    alignas(64) T sink[W], one[W];
    for (int64_t lane = 0; lane < tile.rows; lane += W) {
      for (int64_t i = 0; i < W; ++i) {
        const double logit = task.numbers[head_of(task, tile.row + lane + i)].sink;
        one[i] = logit > -Limits<double>::kInfinity ? T(1) : T(0);
        sink[i] = one[i] > 0 ? static_cast<T>(logit) : Limits<T>::kLowest;
      }
      const MergeFactors<S> f = merge_factors<S>(S::load(tile.whole_max + lane), S::load(sink));
      S::store(tile.whole_sum + lane, join<S>(f, S::load(tile.whole_sum + lane), S::load(one)));
      S::store(tile.whole_max + lane, f.max);
      S::store(alpha + lane, f.alpha);
      S::store(beta + lane, f.beta);
    }
    join_sums<S>(tile, task.value_dim, alpha, tile.whole_out, beta, nullptr, tile.whole_out);
    tile.whole_first = false;
  }
  put_rows(task, task.lse, tile,
           [&](int64_t i) { return log_sum_exp(tile.whole_max[i], tile.whole_sum[i]); });
  put_rows(task, task.row_max, tile,
           [&](int64_t i) { return seen_max(tile.whole_max[i], tile.whole_sum[i]); });
  put_rows(task, task.row_sum, tile, [&](int64_t i) { return tile.whole_sum[i]; });
  if (task.accumulator.data != nullptr) {
    fill<S>(space.alpha, Q, 1);
    write_sums<S>(task, tile, space.alpha, task.accumulator, kOwnElement<T>);
  }
  for (int64_t lane = 0; lane < Q; lane += W)
    S::store(space.alpha + lane, inverse_sum<S>(S::load(tile.whole_sum + lane)));
  write_sums<S>(task, tile, space.alpha, task.out, task.element);
}

// An empty whole, where a join or the task's own splits come together.
template <class S>
inline void open_whole(const ForwardTask& task, Tile<S>& tile) {
  constexpr int Q = kQueries<S>;
  tile.whole_empty = true;
  tile.whole_first = false;
  fill<S>(tile.whole_max, Q, Limits<typename S::T>::kLowest);
  fill<S>(tile.whole_sum, Q, 0);
  for (int v = 0; v < S::kTileVectors; ++v)
    clear_tally<S>(tile.level[v], changes_scores(task), tile.whole_tally + v * S::kLanes);
}

template <class S>
inline void open_tracked(const ForwardTask& task, Tile<S>& tile) {
  constexpr int Q = kQueries<S>;
  if (task.level != TallyLevel::full) return;
  for (int i = 0; i < 2 * kTallyTracked * Q; ++i) tile.tracked[i] = -Limits<double>::kInfinity;
  for (int i = 0; i < kTallyTracked * Q; ++i) tile.tracked[2 * kTallyTracked * Q + i] = 0;
}

// The values of those tracked keys that lie in the split at `split`.
template <class S>
inline void join_tracked(const ForwardTask& task, int64_t split, const double* part,
                         double* whole) {
  constexpr int Q = kQueries<S>;
  if (task.level != TallyLevel::full) return;
  for (int k = 0; k < kTallyTracked; ++k) {
    const int64_t j = task.tracked_keys[k] - split;
    if (j < 0 || j >= kSplitKeys) continue;
    for (int kind = 0; kind < 3; ++kind)
      for (int i = 0; i < Q; ++i)
        whole[(kind * kTallyTracked + k) * Q + i] = part[(kind * kTallyTracked + k) * Q + i];
  }
}

// The level of one vector of rows under sampling: every n-th vector of queries is measured, and a
// vector of rows whole or not at all, since lanes times heads rows belong to one vector of queries.
template <class S>
POISE_INLINE TallyLevel level_of(const ForwardTask& task, int64_t row) {
  if (task.level == TallyLevel::off || row >= task.row_end) return TallyLevel::off;
  return query_of(task, row) / S::kLanes % task.every == 0 ? task.level : TallyLevel::off;
}

template <class S>
POISE_INLINE bool measures_some(const Tile<S>& tile) {
  bool some = false;
  for (const TallyLevel level : tile.level) some = some || level != TallyLevel::off;
  return some;
}

// Lays out the tiles of the task's rows; returns how many.
template <class S>
inline int64_t place_tiles(const ForwardTask& task, Workspace<S>& space) {
  constexpr int64_t kRows = kTileRowsMost<S>;
  int64_t count = 0;
  for (int64_t row = task.row_begin; row < task.row_end; row += kRows) {
    Tile<S>& tile = space.tiles[count++];
    tile.row = row;
    tile.rows = task.row_end - row < kRows ? task.row_end - row : kRows;
    tile.part_open = false;
    for (int v = 0; v < S::kTileVectors; ++v)
      tile.level[v] = level_of<S>(task, row + v * S::kLanes);
  }
  return count;
}

// Points the part of every tile at the record of the split at `split`.
template <class S>
inline void aim_at_record(const ForwardTask& task, Workspace<S>& space, int64_t tiles,
                          int64_t split, Record<S>* records) {
  const int64_t bytes = record_bytes<S>(task.row_end - task.row_begin, task.value_dim);
  Carver carver(static_cast<char*>(task.records) + split / kSplitKeys * bytes);
  for (int64_t t = 0; t < tiles; ++t) {
    records[t] = carve_record<S>(task.value_dim, carver);
    Tile<S>& tile = space.tiles[t];
    tile.part_out = records[t].out;
    tile.part_max = records[t].max;
    tile.part_sum = records[t].sum;
    tile.part_tally = records[t].tally;
  }
}

// Lets the scores of a pair ask for its bias and mask, keys key + [begin, end): rows lie far apart,
// and what turns them would wait for each.
template <class S>
inline void look_at_extra(const ForwardTask& task, const Tile<S>& tile, int64_t key, int64_t begin,
                          int64_t end, Ahead* ahead) {
  ahead->bias = ahead->mask = {};
  if (task.heads > 1) return;
  const auto rows_of = [&](ConstPlane plane, Element element) -> RowsAhead {
    if (!has_dense_rows(task, plane)) return {};
    const int64_t size = element_bytes(element), tiles = (end - begin) / S::kTileRows;
    const int64_t steps = tiles * ((task.head_dim + kColumnsAStep - 1) / kColumnsAStep);
    plane.data = static_cast<const char*>(plane.data) + (key + begin) * size;
    return rows_ahead(plane, size, tile.row, tile.rows, end - begin, steps);
  };
  ahead->bias = rows_of(task.bias, task.bias_element);
  ahead->mask = rows_of(task.mask, Element::boolean);
}

// The packed block [key, key + keys) against every tile that sees some of it.
template <class S>
inline void process_keys(const ForwardTask& task, Workspace<S>& space, int64_t tiles, int64_t key,
                         int64_t keys) {
  // Only keys some row of the task sees are read.
  int64_t begin = clamp_key(query_of(task, task.row_begin) + task.lower - key, keys);
  int64_t end = clamp_key(query_of(task, task.row_end - 1) + 1 + task.upper - key, keys);
  if (begin >= end) return;
  if (shared_by_rows(task, task.mask)) {  // padding: one row of the mask speaks for all
    const MaskExtent extent = mask_extent(task, 0, 1, key, begin, end);
    begin = extent.begin;
    end = extent.end;
    if (begin >= end) return;
  }
  BlockInputs<S> inputs;
  if constexpr (kIsNarrow<S>) {
    inputs.keys_in_place = rows_in_place<S>(task.key, task.element, key, begin, end, task.head_dim,
                                            space.key, space.key_stride);
    inputs.values_in_place = rows_in_place<S>(task.value, task.element, key, begin, end,
                                              task.value_dim, space.value, space.value_stride);
  } else {
    const int64_t steps = tiles * (row_tiles<S>(keys) + row_tiles<S>(task.value_dim));
    const int64_t size = element_bytes(task.element);
    space.ahead->keys = rows_ahead(task.key, size, key + keys, keys, task.head_dim, steps);
    space.ahead->values = rows_ahead(task.value, size, key + keys, keys, task.value_dim, steps);
    inputs.keys = block_rows<S>(task.key, task.element, key, begin, end, task.head_dim, space.key,
                                space.key_stride);
    inputs.key_square = sum_of_squares<S>(inputs.keys);
    inputs.values = block_rows<S>(task.value, task.element, key, begin, end, task.value_dim,
                                  space.value, space.value_stride);
  }
  const bool plain = task.bias.data == nullptr && !changes_scores(task) && !task.dropout.on;
  for (int64_t t = 0; t < tiles; ++t) {
    Tile<S>& tile = space.tiles[t];
    BlockView<S> view;
    view_block<S>(task, tile.row, tile.rows, key, keys, &view);
    if (view.begin >= view.end) continue;
    const MaskExtent extent = mask_extent(task, tile.row, tile.rows, key, view.begin, view.end);
    if (extent.begin >= extent.end) continue;
    clip_view<S>(extent, &view);
    open_part<S>(task, tile);
    if constexpr (kIsNarrow<S>) {
      if (plain && extent.whole && !measures_some(tile)) {
        process_plain_block<S>(task, space, tile, view, key, keys, inputs.keys_in_place,
                               inputs.values_in_place);
        continue;
      }
    }
    const bool forget_mask = task.mask.data != nullptr && extent.whole;
    const ForwardTask& problem = forget_mask ? *space.unmasked : task;
    if constexpr (!kIsNarrow<S>)
      look_at_extra<S>(problem, tile, key, view.begin, view.end, space.ahead);
    process_block<S>(problem, space, tile, view, key, inputs);
  }
}

template <class S>
inline Workspace<S> enter(ForwardTask& task) {
  Workspace<S> space;
  carve<S>(task.head_dim, task.value_dim, task.workspace, &space);
  // Where logits differ from scores the largest score and the stand-ins come with the moments.
  if (task.level == TallyLevel::max && changes_scores(task)) task.level = TallyLevel::core;
  if (task.mask.data != nullptr) {
    *space.unmasked = task;
    space.unmasked->mask.data = nullptr;
  }
  return space;
}

// Lets the products ask for the queries of the next task and for the lines of this one's rows of
// out. Below a causal edge tasks come from the last rows to the first (plan.cpp, unit_at).
template <class S>
inline void look_ahead(const ForwardTask& task, int64_t tiles, Ahead* ahead) {
  *ahead = {};
  if (task.heads > 1) return;
  const int64_t rows = task.row_end - task.row_begin;
  const int64_t keys = task.kv_len < kSplitKeys ? task.kv_len : kSplitKeys;
  const int64_t steps = tiles * (row_tiles<S>(keys) + row_tiles<S>(task.value_dim));
  const int64_t size = element_bytes(task.element);
  const bool backwards = task.upper < task.kv_len - 1 && task.row_begin >= rows;
  const int64_t next = backwards ? task.row_begin - rows : task.row_end;
  ahead->queries = rows_ahead(task.query, size, next, rows, task.head_dim, steps);
  ahead->out = rows_ahead(task.out, size, task.row_begin, rows, task.value_dim, steps);
}

template <class S>
__attribute__((noinline)) void run_forward(ForwardTask& task) {
  Workspace<S> space = enter<S>(task);
  const int64_t tiles = place_tiles<S>(task, space);
  if (task.level == TallyLevel::full) clear_histogram<S>(space.histogram);
  Record<S> records[kTaskTiles<S>] = {};
  if constexpr (!kIsNarrow<S>) look_ahead<S>(task, tiles, space.ahead);
  for (int64_t t = 0; t < tiles; ++t) {
    load_queries<S>(task, space.tiles[t]);
    if (task.records != nullptr) continue;
    open_whole<S>(task, space.tiles[t]);
    open_tracked<S>(task, space.tiles[t]);
  }
  for (int64_t split = task.key_begin; split < task.key_end; split += kSplitKeys) {
    if (task.records != nullptr) {
      aim_at_record<S>(task, space, tiles, split, records);
      for (int64_t t = 0; t < tiles; ++t) {
        space.tiles[t].tracked = records[t].tracked;
        open_tracked<S>(task, space.tiles[t]);
      }
    }
    const int64_t split_end = split + kSplitKeys < task.kv_len ? split + kSplitKeys : task.kv_len;
    for (int64_t key = split; key < split_end; key += kBlockKeys)
      process_keys<S>(task, space, tiles, key,
                      key + kBlockKeys < split_end ? kBlockKeys : split_end - key);
    for (int64_t t = 0; t < tiles; ++t) {
      Tile<S>& tile = space.tiles[t];
      if (task.records == nullptr) {
        close_part<S>(task, space, tile);
      } else {
        *records[t].open = tile.part_open ? 1 : 0;
        tile.part_open = false;
      }
    }
  }
  if (task.level == TallyLevel::full) flush_histogram<S>(task, space.histogram);
  if (task.records != nullptr) return;
  for (int64_t t = 0; t < tiles; ++t) write_tile<S>(task, space, space.tiles[t]);
}

template <class S>
__attribute__((noinline)) void run_join(ForwardTask& task) {
  Workspace<S> space = enter<S>(task);
  const int64_t tiles = place_tiles<S>(task, space);
  Record<S> records[kTaskTiles<S>] = {};
  for (int64_t t = 0; t < tiles; ++t) {
    open_whole<S>(task, space.tiles[t]);
    open_tracked<S>(task, space.tiles[t]);
  }
  for (int64_t split = 0; split < task.kv_len; split += kSplitKeys) {
    aim_at_record<S>(task, space, tiles, split, records);
    for (int64_t t = 0; t < tiles; ++t) {
      space.tiles[t].part_open = *records[t].open != 0;
      join_tracked<S>(task, split, records[t].tracked, space.tiles[t].tracked);
      close_part<S>(task, space, space.tiles[t]);
    }
  }
  for (int64_t t = 0; t < tiles; ++t) write_tile<S>(task, space, space.tiles[t]);
}

template <class S>
void forward(ForwardTask& task) {
  const FloatControl control;
  run_forward<S>(task);
}

template <class S>
void join_splits(ForwardTask& task) {
  const FloatControl control;
  run_join<S>(task);
}

}  // namespace poise::POISE_NAMESPACE
