// The forward pass of one task: rows of one head against all the keys they see.
//
//   queries -> lanes
//   for each split of kSplitKeys keys, ascending:
//     for each block of kBlockKeys keys some row sees: pack K and V once, step every tile
//     each tile's part joins its whole by the one merge
//   the sink joins; rows of out, lse, max_score, row_max, row_sum and tallies are written
// Splits and blocks lie at absolute multiples of the sequence's positions, so no bit depends on the
// task's rows, the masks' extent or the threads.

namespace poise::POISE_NAMESPACE {

template <class S>
inline void fill(typename S::T* to, int64_t count, typename S::T x) {
  for (int64_t i = 0; i < count; i += S::kLanes) S::store(to + i, S::set(x));
}

template <class S>
inline void open_part(const ForwardTask& task, Tile<S>& tile) {
  constexpr int Q = kQueries<S>;
  if (tile.part_open) return;
  tile.part_open = true;
  fill<S>(tile.part_out, task.value_dim * Q, 0);
  fill<S>(tile.part_max, Q, Limits<typename S::T>::kLowest);
  fill<S>(tile.part_sum, Q, 0);
  if (task.level != TallyLevel::off)
    clear_tally<S>(task.level, changes_scores(task), tile.part_tally);
}

// whole = merge(whole, part) for every row of the tile.
template <class S>
inline void close_part(const ForwardTask& task, Tile<S>& tile) {
  using T = typename S::T;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  if (!tile.part_open) return;
  tile.part_open = false;
  for (int64_t lane = 0; lane < tile.rows; lane += W) {
    const MergeFactors<S> f =
        merge_factors<S>(S::load(tile.whole_max + lane), S::load(tile.part_max + lane));
    S::store(tile.whole_sum + lane,
             join<S>(f, S::load(tile.whole_sum + lane), S::load(tile.part_sum + lane)));
    for (int64_t c = 0; c < task.value_dim; ++c) {
      T* o = tile.whole_out + c * Q + lane;
      S::store(o, join<S>(f, S::load(o), S::load(tile.part_out + c * Q + lane)));
    }
    const TallyLevel level = level_of<S>(task, tile.row + lane);
    if (level != TallyLevel::off) {
      alignas(64) T max[W], alpha[W], beta[W];
      S::store(max, f.max);
      S::store(alpha, f.alpha);
      S::store(beta, f.beta);
      raise_max<S>(level, tile.whole_tally + lane, tile.whole_max + lane, max, alpha);
      raise_max<S>(level, tile.part_tally + lane, tile.part_max + lane, max, beta);
      add_tally<S>(level, changes_scores(task), tile.whole_tally + lane, tile.part_tally + lane);
    }
    S::store(tile.whole_max + lane, f.max);
  }
}

template <class T>
inline void put(const Column& column, int64_t row, T x) {
  if (column.data != nullptr) static_cast<T*>(column.data)[row * column.stride] = x;
}

template <class S>
inline void emit_tallies(ForwardTask& task, const Tile<S>& tile) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  for (int64_t i = 0; i < tile.rows; ++i) {
    if (level_of<S>(task, tile.row + i / W * W) == TallyLevel::off) continue;
    const double* f = tile.whole_tally + i;
    const double ones = f[kOnes * Q];
    const double max = static_cast<double>(tile.whole_max[i]);
    const double sum = static_cast<double>(tile.whole_sum[i]);
    RowTally& row = task.tallies[task.tally_count++];
    row.row = tile.row + i;
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
  for (int64_t i = 0; i < tile.rows; ++i) {
    if (task.lse_without_sink.data != nullptr)  // a logarithm costs as much as four keys
      put(task.lse_without_sink, tile.row + i, log_sum_exp(tile.whole_max[i], tile.whole_sum[i]));
    put(task.max_score, tile.row + i, visible_max(tile.whole_max[i], tile.whole_sum[i]));
  }
  if (task.sink > -Limits<double>::kInfinity) {
    for (int64_t lane = 0; lane < tile.rows; lane += W) {
      const MergeFactors<S> f =
          merge_factors<S>(S::load(tile.whole_max + lane), S::set(static_cast<T>(task.sink)));
      S::store(tile.whole_sum + lane, join<S>(f, S::load(tile.whole_sum + lane), S::set(1)));
      S::store(tile.whole_max + lane, f.max);
      for (int64_t c = 0; c < task.value_dim; ++c) {
        T* o = tile.whole_out + c * Q + lane;
        S::store(o, join<S>(f, S::load(o), S::zero()));
      }
    }
  }
  for (int64_t i = 0; i < tile.rows; ++i) {
    const T m = tile.whole_max[i], l = tile.whole_sum[i];
    if (task.lse.data != nullptr) put(task.lse, tile.row + i, log_sum_exp(m, l));
    put(task.row_max, tile.row + i, l == T(0) ? -Limits<T>::kInfinity : m);
    put(task.row_sum, tile.row + i, l);
  }
  if (task.accumulator.data != nullptr) {
    fill<S>(space.alpha, Q, 1);
    store_lanes<S>(tile.whole_out, space.alpha, tile.row, tile.rows, task.value_dim,
                   task.accumulator, kOwnElement<T>);
  }
  for (int64_t lane = 0; lane < Q; lane += W)
    S::store(space.alpha + lane, inverse_sum<S>(S::load(tile.whole_sum + lane)));
  store_lanes<S>(tile.whole_out, space.alpha, tile.row, tile.rows, task.value_dim, task.out,
                 task.element);
}

template <class S>
inline int64_t open_tiles(const ForwardTask& task, Workspace<S>& space) {
  constexpr int Q = kQueries<S>;
  int64_t count = 0;
  for (int64_t row = task.row_begin; row < task.row_end; row += Q) {
    Tile<S>& tile = space.tiles[count++];
    tile.row = row;
    tile.rows = task.row_end - row < Q ? task.row_end - row : Q;
    tile.part_open = false;
    load_lanes<S>(task.query, task.element, row, tile.rows, task.head_dim, tile.query);
    fill<S>(tile.whole_out, task.value_dim * Q, 0);
    fill<S>(tile.whole_max, Q, Limits<typename S::T>::kLowest);
    fill<S>(tile.whole_sum, Q, 0);
    if (task.level == TallyLevel::off) continue;
    clear_tally<S>(task.level, changes_scores(task), tile.whole_tally);
    if (task.level != TallyLevel::full) continue;
    for (int i = 0; i < 2 * kTallyTracked * Q; ++i) tile.tracked[i] = -Limits<double>::kInfinity;
    for (int i = 0; i < kTallyTracked * Q; ++i) tile.tracked[2 * kTallyTracked * Q + i] = 0;
  }
  return count;
}

// The packed block [key, key + keys) against every tile that sees some of it.
template <class S>
inline void process_keys(const ForwardTask& task, Workspace<S>& space, int64_t tiles, int64_t key,
                         int64_t keys) {
  // Only keys some row of the task sees are read.
  const int64_t begin = clamp_key(task.row_begin + task.lower - key, keys);
  const int64_t end = clamp_key(task.row_end + task.upper - key, keys);
  if (begin >= end) return;
  const BlockRows<S> keys_here = block_rows<S>(task.key, task.element, key, begin, end,
                                               task.head_dim, space.key, space.key_stride);
  const BlockRows<S> values_here = block_rows<S>(task.value, task.element, key, begin, end,
                                                 task.value_dim, space.value, space.value_stride);
  for (int64_t t = 0; t < tiles; ++t) {
    BlockView<S> view;
    view_block<S>(task, space.tiles[t].row, space.tiles[t].rows, key, keys, &view);
    if (view.begin >= view.end) continue;
    open_part<S>(task, space.tiles[t]);
    process_block<S>(task, space, space.tiles[t], view, key, keys_here, values_here);
  }
}

template <class S>
__attribute__((noinline)) void run_forward(ForwardTask& task) {
  Workspace<S> space;
  carve<S>(task.head_dim, task.value_dim, task.workspace, &space);
  // Where logits differ from scores the largest score and the stand-ins come with the moments.
  if (task.level == TallyLevel::max && changes_scores(task)) task.level = TallyLevel::core;
  const int64_t tiles = open_tiles<S>(task, space);
  for (int64_t split = 0; split < task.kv_len; split += kSplitKeys) {
    const int64_t split_end = split + kSplitKeys < task.kv_len ? split + kSplitKeys : task.kv_len;
    for (int64_t key = split; key < split_end; key += kBlockKeys)
      process_keys<S>(task, space, tiles, key,
                      key + kBlockKeys < split_end ? kBlockKeys : split_end - key);
    for (int64_t t = 0; t < tiles; ++t) close_part<S>(task, space.tiles[t]);
  }
  for (int64_t t = 0; t < tiles; ++t) write_tile<S>(task, space, space.tiles[t]);
}

template <class S>
void forward(ForwardTask& task) {
  const FloatControl control;
  run_forward<S>(task);
}

}  // namespace poise::POISE_NAMESPACE
