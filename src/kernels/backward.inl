// The backward pass of one tile of queries against one block of keys.
//
//   S = scale K Q, logits as forward makes them            score_block, mask.inl
//   P = e^(logits - row_max) / row_sum                     the state forward saved, forward's exp
//   dP = V dO,  U = dP - delta                             score_block; delta = sum_c dO out
//   dS = P (U + dlse) cap',  dD = scale dS                 cap' = 4 e / (1 + e)^2, e = e^(-2|x|)
//   dV += P dO,  dK += dD Q                                rows_block, tile by tile in order
//   dQ_split = dQ_split + K dD per block; dQ += dQ_split   value_block, splits in ascending order
// Dropout multiplies dP, and P where values were multiplied by it, by forward's factors.
// A pair that is not seen has P = dD = 0 whatever its memory holds. Nothing here knows threads or
// the order in which tiles of other blocks run, so no bit depends on them.

namespace poise::POISE_NAMESPACE {

// What a tile of queries needs from its first block of keys to its last.
template <class S>
struct GradientTile {
  using T = typename S::T;
  struct Head {
    KnownRows<S> query, dout;  // natural rows, in place or packed
    T query_square;
    bool part_open;  // the split at work has touched dq_part
    Measure measure;
  };
  Head* head;
  T *query, *dout;                   // [head_dim][kQueries], [value_dim][kQueries]
  T *dq_part, *dq_whole;             // [head_dim][kQueries]: of the split at work, of all before
  T *packed_query, *packed_dout;     // [kQueries][stride], where rows do not lie densely
  T *max, *inverse, *delta, *dlse;   // [kQueries]
  T *measure_scale, *measure_shift;  // [kQueries], of shifted sums
  double* sums;                      // [kGradientFields][kQueries]
  int64_t query_stride, dout_stride;
};

template <class S>
inline int64_t carve_tile(int64_t head_dim, int64_t value_dim, void* base, GradientTile<S>* tile) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  Carver carver(base);
  tile->query_stride = packed_stride<S>(head_dim);
  tile->dout_stride = packed_stride<S>(value_dim);
  tile->head = carver.take<typename GradientTile<S>::Head>(1);
  tile->query = carver.take<T>(head_dim * Q);
  tile->dout = carver.take<T>(value_dim * Q);
  tile->dq_part = carver.take<T>(head_dim * Q);
  tile->dq_whole = carver.take<T>(head_dim * Q);
  tile->packed_query = carver.take<T>(Q * tile->query_stride);
  tile->packed_dout = carver.take<T>(Q * tile->dout_stride);
  tile->max = carver.take<T>(Q);
  tile->inverse = carver.take<T>(Q);
  tile->delta = carver.take<T>(Q);
  tile->dlse = carver.take<T>(Q);
  tile->measure_scale = carver.take<T>(Q);
  tile->measure_shift = carver.take<T>(Q);
  tile->sums = carver.take<double>(kGradientFields * Q);
  return carver.used();
}

// What a thread keeps of its block of keys, and the pairs of the tile at work.
template <class S>
struct GradientBlock {
  using T = typename S::T;
  struct Head {
    KnownRows<S> key, value;
  };
  Head* head;
  T *packed_key, *packed_value;  // [kBlockKeys][stride]
  T *weights, *dots_gradient;    // [kBlockKeys][kQueries]: P and dD
  T *extra, *dots, *factor;      // bias and mask; dots where d scale is wanted; cap'
  T *scale, *ones;               // [kQueries]
  T* turned;                     // [value_dim][kQueries]
  ForwardTask* unmasked;         // the problem without its bool mask
  int64_t key_stride, value_stride;
};

template <class S>
inline int64_t carve_block(int64_t head_dim, int64_t value_dim, void* base,
                           GradientBlock<S>* block) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  Carver carver(base);
  block->key_stride = packed_stride<S>(head_dim);
  block->value_stride = packed_stride<S>(value_dim);
  block->head = carver.take<typename GradientBlock<S>::Head>(1);
  block->packed_key = carver.take<T>(kBlockKeys * block->key_stride);
  block->packed_value = carver.take<T>(kBlockKeys * block->value_stride);
  block->weights = carver.take<T>(kBlockKeys * Q);
  block->dots_gradient = carver.take<T>(kBlockKeys * Q);
  block->extra = carver.take<T>(kBlockKeys * Q);
  block->dots = carver.take<T>(kBlockKeys * Q);
  block->factor = carver.take<T>(kBlockKeys * Q);
  block->scale = carver.take<T>(Q);
  block->ones = carver.take<T>(Q);
  block->turned = carver.take<T>(value_dim * Q);
  block->unmasked = carver.take<ForwardTask>(1);
  return carver.used();
}

// Gradients of the rows of one block of keys: dk [kBlockKeys][columns], then dv.
template <class S>
struct KeySums {
  typename S::T *dk, *dv;
};
template <class S>
inline int64_t carve_sums(int64_t head_dim, int64_t value_dim, void* base, KeySums<S>* sums) {
  Carver carver(base);
  sums->dk = carver.take<typename S::T>(kBlockKeys * whole_vectors<S>(head_dim));
  sums->dv = carver.take<typename S::T>(kBlockKeys * whole_vectors<S>(value_dim));
  return carver.used();
}

template <class S>
int64_t gradient_tile_bytes(int64_t head_dim, int64_t value_dim) {
  GradientTile<S> tile;
  return carve_tile<S>(head_dim, value_dim, nullptr, &tile);
}
template <class S>
int64_t gradient_block_bytes(int64_t head_dim, int64_t value_dim) {
  GradientBlock<S> block;
  return carve_block<S>(head_dim, value_dim, nullptr, &block);
}
template <class S>
int64_t gradient_sums_bytes(int64_t head_dim, int64_t value_dim) {
  KeySums<S> sums;
  return carve_sums<S>(head_dim, value_dim, nullptr, &sums);
}

// ---- a block of keys ---------------------------------------------------------------------------

template <class S>
__attribute__((noinline)) void run_open_block(BackwardTask& task) {
  const ForwardTask& problem = task.problem;
  GradientBlock<S> block;
  carve_block<S>(problem.head_dim, problem.value_dim, task.block, &block);
  block.head->key = known_rows<S>(problem.key, problem.element, task.key, task.keys,
                                  problem.head_dim, block.packed_key, block.key_stride);
  block.head->value = known_rows<S>(problem.value, problem.element, task.key, task.keys,
                                    problem.value_dim, block.packed_value, block.value_stride);
  fill<S>(block.ones, kQueries<S>, 1);
  fill<S>(block.scale, kQueries<S>, static_cast<typename S::T>(problem.numbers[0].scale));
  *block.unmasked = problem;
  block.unmasked->mask.data = nullptr;
  if (!task.first_head) return;
  KeySums<S> sums;
  carve_sums<S>(problem.head_dim, problem.value_dim, task.sums, &sums);
  fill<S>(sums.dk, kBlockKeys * whole_vectors<S>(problem.head_dim), 0);
  fill<S>(sums.dv, kBlockKeys * whole_vectors<S>(problem.value_dim), 0);
}

// Rows of sums into rows [key, key + keys) of target.
template <class S>
inline void write_key_rows(const typename S::T* sums, const BackwardTask& task, int64_t columns,
                           const Plane& target) {
  constexpr int64_t W = S::kLanes;
  const int64_t stride = whole_vectors<S>(columns);
  for (int64_t j = 0; j < task.keys; ++j) {
    const int64_t row = (task.key + j) * target.row_stride;
    for (int64_t c = 0; c < columns; c += W)
      store_columns<S>(S::load(sums + j * stride + c), columns - c < W ? columns - c : W, target,
                       task.problem.element, row + c * target.col_stride);
  }
}

// Numbers between this and its inverse have squares that leave a sum of many as exact as it is.
template <class T>
inline constexpr T kSmallSize = sizeof(T) == 4 ? T(0x1p-30) : T(0x1p-300);

// The sum of (scale x)^2 over `count` numbers, whole vectors, in four chains.
template <class S>
inline double sum_of_scaled_squares(const typename S::T* x, int64_t count, typename S::T scale) {
  using Vec = typename S::Vec;
  constexpr int64_t W = S::kLanes;
  const Vec by = S::set(scale);
  Vec sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
  for (int64_t i = 0; i < count; i += 4 * W) POISE_UNROLL(4)
  for (int64_t k = 0; k < 4; ++k) {
    if (i + k * W >= count) break;
    const Vec scaled = S::mul(S::load(x + i + k * W), by);
    sums[k] = S::fma(scaled, scaled, sums[k]);
  }
  return static_cast<double>(
      add_lanes<S>(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]))));
}

// The sum of squares of numbers of any size: looked at a second time where squares may have
// vanished or overflown.
template <class S>
inline double sum_of_squares(const typename S::T* x, int64_t count) {
  using T = typename S::T;
  const double plain = sum_of_scaled_squares<S>(x, count, T(1));
  const double small = static_cast<double>(kSmallSize<T>) * static_cast<double>(kSmallSize<T>);
  if (plain > small && plain < 1 / small) return plain;
  T most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T size = x[i] < 0 ? -x[i] : x[i];
    most = size > most ? size : most;
  }
  const T scale = inverse_size(most);
  return sum_of_scaled_squares<S>(x, count, scale) / static_cast<double>(scale) /
         static_cast<double>(scale);
}

template <class S>
__attribute__((noinline)) void run_close_block(BackwardTask& task) {
  const ForwardTask& problem = task.problem;
  if (!task.last_head) return;
  KeySums<S> sums;
  carve_sums<S>(problem.head_dim, problem.value_dim, task.sums, &sums);
  if (task.dk.data != nullptr) write_key_rows<S>(sums.dk, task, problem.head_dim, task.dk);
  if (task.dv.data != nullptr) write_key_rows<S>(sums.dv, task, problem.value_dim, task.dv);
  if (task.key_squares == nullptr) return;
  task.key_squares[0] = sum_of_squares<S>(sums.dk, task.keys * whole_vectors<S>(problem.head_dim));
  task.key_squares[1] = sum_of_squares<S>(sums.dv, task.keys * whole_vectors<S>(problem.value_dim));
}

// ---- a tile of queries -------------------------------------------------------------------------

// p_sink = e^(sink - row_max) / row_sum, per row.
template <class S>
inline void sink_weights(const BackwardTask& task, const GradientTile<S>& tile,
                         typename S::T* weights) {
  using T = typename S::T;
  const double sink = task.problem.numbers[0].sink;
  const bool none = !(sink > -Limits<double>::kInfinity);
  for (int64_t i = 0; i < kQueries<S>; i += S::kLanes) {
    const typename S::Vec t =
        S::sub(S::set(none ? -Limits<T>::kInfinity : static_cast<T>(sink)), S::load(tile.max + i));
    const typename S::Vec p = S::mul(exp<S>(t), S::load(tile.inverse + i));
    S::store(weights + i, none ? S::zero() : p);
  }
}

// Whether the vector of rows that begins at `row` is one of those measured.
template <class S>
inline bool is_sampled(const BackwardTask& task, int64_t row) {
  return row / S::kLanes % task.problem.every == 0;
}

// How the tile's rows are measured, and scale and shift of u where that is by shifted sums.
template <class S>
inline void choose_measure(const BackwardTask& task, GradientTile<S>& tile) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int64_t Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  tile.head->measure = Measure::none;
  if (!task.want_statistics) return;
  // Between these sizes of dout no square of u that counts leaves the type's range.
  constexpr T kSmall = kSmallSize<T>, kLarge = 1 / kSmall;
  bool centred = problem.element == kOwnElement<T> && !problem.has_sink &&
                 problem.bias.data == nullptr && task.dlse.data == nullptr;
  for (int64_t v = 0; v < Q; v += S::kLanes) {
    Vec largest = S::zero();
    for (int64_t c = 0; c < problem.value_dim; ++c)
      largest = S::max(S::abs(S::load(tile.dout + c * Q + v)), largest);
    S::store(tile.measure_scale + v, largest);
    centred = centred && !S::any(S::first_only(S::less(S::zero(), largest),
                                               S::both(S::less(S::set(kSmall), largest),
                                                       S::less(largest, S::set(kLarge)))));
  }
  tile.head->measure = centred ? Measure::centred : Measure::shifted;
  if (centred) return;
  alignas(64) T sink[Q];
  sink_weights<S>(task, tile, sink);
  for (int64_t i = 0; i < Q; ++i) {
    tile.measure_scale[i] = inverse_size(tile.measure_scale[i]);
    // Where the sink leaves little, 1 - p_sink has no digits: the sums find the place of delta.
    const T rest = 1 - sink[i];
    const T delta = rest > T(0x1p-12) ? tile.delta[i] / rest : tile.delta[i];
    tile.measure_shift[i] = -delta * tile.measure_scale[i];
  }
}

// delta = sum_c dout out of every row. It is 0 where out is 0 throughout, as in a row without keys,
// whatever dout holds there.
template <class S>
inline void row_deltas(const typename S::T* dout, const typename S::T* out, int64_t value_dim,
                       typename S::T* deltas) {
  constexpr int64_t Q = kQueries<S>;
  for (int64_t v = 0; v < Q; v += S::kLanes) {
    typename S::Vec delta = S::zero(), size = S::zero();
    for (int64_t c = 0; c < value_dim; ++c) {
      const typename S::Vec x = S::load(out + c * Q + v);
      delta = S::fma(S::load(dout + c * Q + v), x, delta);
      size = S::add(size, S::abs(x));
    }
    S::store(deltas + v, S::select(S::equal(size, S::zero()), S::zero(), delta));
  }
}

template <class S>
__attribute__((noinline)) void run_open_tile(BackwardTask& task) {
  constexpr int Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  const int64_t row = problem.row_begin, rows = problem.row_end - row;
  GradientTile<S> tile;
  carve_tile<S>(problem.head_dim, problem.value_dim, task.tile, &tile);
  GradientBlock<S> block;
  carve_block<S>(problem.head_dim, problem.value_dim, task.block, &block);

  load_lanes<S>(problem.query, problem.element, 1, row, rows, problem.head_dim, tile.query);
  load_lanes<S>(task.dout, problem.element, 1, row, rows, problem.value_dim, tile.dout);
  load_lanes<S>(task.out, problem.element, 1, row, rows, problem.value_dim, block.turned);
  row_deltas<S>(tile.dout, block.turned, problem.value_dim, tile.delta);
  load_state<S>(task.row_max, task.row_sum, task.lse, row, rows, tile.max, tile.inverse);
  // Rows without keys and sink ignore it.
  for (int64_t i = 0; i < Q; ++i)
    tile.dlse[i] = i < rows && task.dlse.data != nullptr && tile.inverse[i] != 0
                       ? read_row<typename S::T>(task.dlse, row + i)
                       : 0;
  tile.head->query = known_rows<S>(problem.query, problem.element, row, rows, problem.head_dim,
                                   tile.packed_query, tile.query_stride);
  tile.head->dout = known_rows<S>(task.dout, problem.element, row, rows, problem.value_dim,
                                  tile.packed_dout, tile.dout_stride);
  tile.head->query_square = query_squares<S>(tile.query, problem.head_dim);
  tile.head->part_open = false;
  fill<S>(tile.dq_whole, problem.head_dim * Q, 0);
  choose_measure<S>(task, tile);
  for (int64_t i = 0; i < kGradientFields * Q; ++i) tile.sums[i] = 0;
}

// dQ += dQ_split.
template <class S>
inline void close_gradient_split(GradientTile<S>& tile, int64_t head_dim) {
  if (!tile.head->part_open) return;
  tile.head->part_open = false;
  for (int64_t i = 0; i < head_dim * kQueries<S>; i += S::kLanes)
    S::store(tile.dq_whole + i, S::add(S::load(tile.dq_whole + i), S::load(tile.dq_part + i)));
}

// Lanes without a row count for nothing. Their query of zeros sees every key, those that hold NaN
// and that no row sees among them, and a bias or a slope may make it a logit whose exp is infinite.
template <class S>
inline void clear_lanes_without_rows(int64_t rows, int64_t columns, typename S::T* lanes) {
  constexpr int64_t Q = kQueries<S>;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t i = rows; i < Q; ++i) lanes[c * Q + i] = 0;
}

// What the tile's rows have summed up for statistics, into task.rows.
template <class S>
inline void store_measured(const BackwardTask& task, const GradientTile<S>& tile) {
  using T = typename S::T;
  constexpr int64_t W = S::kLanes, Q = kQueries<S>;
  const int64_t row = task.problem.row_begin, rows = task.problem.row_end - row;
  const Measure measure = tile.head->measure;
  constexpr double kLeastShare = sizeof(T) == 4 ? 0x1p-40 : 0x1p-400;
  clear_lanes_without_rows<S>(rows, task.problem.head_dim, tile.dq_whole);
  task.rows[0].dq_squares = sum_of_squares<S>(tile.dq_whole, task.problem.head_dim * Q);
  for (int64_t v = 0; v < rows; v += W) {
    if (!is_sampled<S>(task, row + v)) continue;
    for (int64_t i = v; i < rows && i < v + W; ++i)
      read_transmission(tile.sums + i, Q, measure, static_cast<double>(tile.measure_scale[i]),
                        kLeastShare, &task.rows[i]);
  }
}

template <class S>
__attribute__((noinline)) void run_close_tile(BackwardTask& task) {
  constexpr int64_t Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  const int64_t row = problem.row_begin, rows = problem.row_end - row;
  GradientTile<S> tile;
  carve_tile<S>(problem.head_dim, problem.value_dim, task.tile, &tile);
  GradientBlock<S> block;
  carve_block<S>(problem.head_dim, problem.value_dim, task.block, &block);
  close_gradient_split<S>(tile, problem.head_dim);
  if (task.dq.data != nullptr)
    store_lanes<S>(tile.dq_whole, S::zero(), block.ones, 1, row, rows, problem.head_dim, task.dq,
                   problem.element);
  if (task.rows == nullptr) return;
  alignas(64) typename S::T sink[Q];
  if (problem.has_sink) sink_weights<S>(task, tile, sink);
  for (int64_t i = 0; i < rows; ++i) {
    RowGradient& to = task.rows[i];
    to = {};
    to.dscale = tile.sums[kDScale * Q + i];
    to.dslope = tile.sums[kDSlope * Q + i];
    if (problem.has_sink)
      to.dsink = static_cast<double>(sink[i]) *
                 (static_cast<double>(tile.dlse[i]) - static_cast<double>(tile.delta[i]));
  }
  if (task.want_statistics) store_measured<S>(task, tile);
}

// ---- their pairs -------------------------------------------------------------------------------

// Memory asked for while the two kinds of dots are formed.
struct GradientAhead {
  Ahead rows, keys;
};

// With the head's first block: the rows of the next tile, which is opened next. With its last: the
// rows of dq. With the last tiles: a share each of the next block's keys and values and of dk and
// dv.
template <class S>
inline GradientAhead look_ahead(const BackwardTask& task, const BlockView<S>& view) {
  constexpr int64_t Q = kQueries<S>, kTilesAtMost = 8;
  const ForwardTask& problem = task.problem;
  const int64_t size = element_bytes(problem.element);
  const int64_t steps = row_tiles<S>(view.end - view.begin);
  GradientAhead ahead{};
  if (task.key == 0) {
    ahead.rows.queries =
        rows_ahead(problem.query, size, problem.row_end, Q, problem.head_dim, steps);
    ahead.rows.keys = rows_ahead(task.dout, size, problem.row_end, Q, problem.value_dim, steps);
    ahead.rows.values = rows_ahead(task.out, size, problem.row_end, Q, problem.value_dim, steps);
  }
  if (task.key + kBlockKeys >= problem.kv_len)
    ahead.rows.out = rows_ahead(task.dq, size, problem.row_begin,
                                problem.row_end - problem.row_begin, problem.head_dim, steps);
  const int64_t shares = task.tiles < kTilesAtMost ? task.tiles : kTilesAtMost;
  const int64_t share = problem.row_begin / Q - (task.tiles - shares);
  if (share < 0) return ahead;
  const int64_t first = kBlockKeys * share / shares;
  const int64_t rows = kBlockKeys * (share + 1) / shares - first;
  const int64_t next = task.key + kBlockKeys + first, here = task.key + first;
  ahead.keys.keys = rows_ahead(problem.key, size, next, rows, problem.head_dim, steps);
  ahead.keys.values = rows_ahead(problem.value, size, next, rows, problem.value_dim, steps);
  if (!task.last_head) return ahead;
  ahead.keys.queries = rows_ahead(task.dv, size, here, rows, problem.value_dim, steps);
  ahead.keys.out = rows_ahead(task.dk, size, here, rows, problem.head_dim, steps);
  return ahead;
}

// P and dD of the tile against the block, where the view has keys. Returns whether pairs are
// marked.
template <class S>
inline Unseen fill_pairs(const BackwardTask& task, const ForwardTask& problem,
                         const GradientTile<S>& tile, const GradientBlock<S>& block,
                         const BlockView<S>& view, GradientAhead* ahead) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  const KnownRows<S>&key = block.head->key, &value = block.head->value;
  const bool has_extra = problem.bias.data != nullptr || problem.mask.data != nullptr;
  const bool changed = changes_scores(problem);
  const bool finite =
      key.finite && value.finite && tile.head->query.finite && tile.head->dout.finite;
  const Unseen kind = unseen_in<S>(problem, view, finite, tile.head->query_square, key.square);
  const int64_t row = task.problem.row_begin;  // `problem` may be the copy without a mask
  const Measure measure = tile.head->measure;

  // Of a bias, d logits are wanted: neither capped nor scaled.
  const bool bias = task.bias_sums != nullptr;
  const T* scale = task.want_scale ? block.ones : block.scale;
  dots_block<S>(view, tile.query, key, problem.head_dim, scale, block.weights, &ahead->rows);
  dots_block<S>(view, tile.dout, value, problem.value_dim, block.ones, block.dots_gradient,
                &ahead->keys);
  if (has_extra)
    load_extra<S>(problem, row, view.rows, task.key, view.begin, view.end, block.extra);

  clear_outside<S>(view, kind == Unseen::marked ? T(-0.0) : T(0), block.weights);
  clear_outside<S>(view, 0, block.dots_gradient);
  for (int v = 0; v < view.vectors; ++v) {
    const int64_t lane = v * W, begin = view.key_begin[v], end = view.key_end[v];
    T* s = block.weights + lane;
    T* d = block.dots_gradient + lane;
    PairJob<S> job{begin,
                   end,
                   S::load(tile.max + lane),
                   S::load(tile.inverse + lane),
                   S::load(tile.delta + lane),
                   S::load(tile.dlse + lane),
                   S::load((bias ? block.ones : block.scale) + lane),
                   nullptr,
                   nullptr,
                   task.want_slope,
                   lane_distances<S>(problem, row + lane, task.key),
                   tile.sums + lane,
                   S::load(tile.measure_scale + lane),
                   S::load(tile.measure_shift + lane),
                   problem.bias.data != nullptr ? block.extra + lane : nullptr,
                   static_cast<T>(problem.stand_in_bias)};
    const bool measured = measure != Measure::none && is_sampled<S>(task, row + lane);
    const Measure here = measured ? measure : Measure::none;
    if (task.want_scale) {
      scale_dots<S>(job.scale, begin, end, s, block.dots + lane);
      job.dots = block.dots + lane;
    }
    if (problem.softcap > 0) {
      if (!bias) cap_slopes<S>(static_cast<T>(problem.softcap), begin, end, s, block.factor + lane);
      cap_scores<S>(static_cast<T>(problem.softcap), begin, end, s);
      job.factor = bias ? nullptr : block.factor + lane;
    }
    if (kind != Unseen::none || changed)
      finish_logits<S>(problem, view, v, row, task.key, has_extra ? block.extra : nullptr,
                       block.weights, S::zero(), nullptr);
    const bool general = task.want_scale || task.want_slope || job.factor != nullptr;
    if (problem.dropout.on)  // dP of the weights before it
      drop_weights<S>(problem.dropout, 1, row + lane, task.key, begin, end, d);
    switch (kind) {
      case Unseen::none:
        weigh_pairs_at<S, Unseen::none>(job, here, general, s, d);
        break;
      case Unseen::masked:
        weigh_pairs_at<S, Unseen::masked>(job, here, general, s, d);
        break;
      case Unseen::marked:
        weigh_pairs_at<S, Unseen::marked>(job, here, general, s, d);
        break;
    }
    if (problem.dropout.on)  // P as values were multiplied by it
      drop_weights<S>(problem.dropout, 1, row + lane, task.key, begin, end, s);
  }
  return kind;
}

// What P and dD add to. `weights` is the tile of P that the values were multiplied by.
template <class S>
inline void spread_pairs(const BackwardTask& task, GradientTile<S>& tile,
                         const GradientBlock<S>& block, const BlockView<S>& view, Unseen unseen) {
  const ForwardTask& problem = task.problem;
  KeySums<S> sums;
  carve_sums<S>(problem.head_dim, problem.value_dim, task.sums, &sums);
  if (task.dv.data != nullptr)
    rows_products<S>(view, unseen, block.weights, block.weights, tile.head->dout, problem.value_dim,
                     sums.dv);
  if (task.dk.data != nullptr)
    rows_products<S>(view, unseen, block.dots_gradient, block.weights, tile.head->query,
                     problem.head_dim, sums.dk);
  if (task.dq.data == nullptr) return;
  if (!tile.head->part_open) clear_rowless<S>(view, problem.head_dim, tile.dq_part);
  add_products<S>(view, unseen, block.dots_gradient, block.weights, block.head->key,
                  problem.head_dim, block.ones, !tile.head->part_open, tile.dq_part);
  tile.head->part_open = true;
}

template <class S>
__attribute__((noinline)) void run_step(BackwardTask& task) {
  const int64_t head_dim = task.problem.head_dim, value_dim = task.problem.value_dim;
  GradientTile<S> tile;
  carve_tile<S>(head_dim, value_dim, task.tile, &tile);
  GradientBlock<S> block;
  carve_block<S>(head_dim, value_dim, task.block, &block);
  if (task.key % kSplitKeys == 0) close_gradient_split<S>(tile, head_dim);
  const ForwardTask* problem;
  BlockView<S> view;
  if (!look_at_keys<S>(task.problem, *block.unmasked, task.problem.row_begin,
                       task.problem.row_end - task.problem.row_begin, task.key, task.keys, &problem,
                       &view))
    return;
  GradientAhead ahead = look_ahead<S>(task, view);
  const Unseen unseen = fill_pairs<S>(task, *problem, tile, block, view, &ahead);
  spread_pairs<S>(task, tile, block, view, unseen);
}

template <class S>
__attribute__((noinline)) void run_bias_step(BackwardTask& task) {
  constexpr int W = S::kLanes, Q = kQueries<S>;
  GradientTile<S> tile;
  carve_tile<S>(task.problem.head_dim, task.problem.value_dim, task.tile, &tile);
  GradientBlock<S> block;
  carve_block<S>(task.problem.head_dim, task.problem.value_dim, task.block, &block);
  const ForwardTask* problem;
  BlockView<S> view;
  if (!look_at_keys<S>(task.problem, *block.unmasked, task.problem.row_begin,
                       task.problem.row_end - task.problem.row_begin, task.key, task.keys, &problem,
                       &view))
    return;
  GradientAhead nothing{};
  fill_pairs<S>(task, *problem, tile, block, view, &nothing);
  auto* sums = static_cast<typename S::T*>(task.bias_sums);
  for (int v = 0; v < view.vectors; ++v) {
    const typename S::Mask rows = S::rows_mask(view.rows - v * W);
    for (int64_t j = view.key_begin[v]; j < view.key_end[v]; ++j) {
      typename S::T* to = sums + j * Q + v * W;
      S::store(to, S::add_where(rows, S::load(to), S::load(block.dots_gradient + j * Q + v * W)));
    }
  }
}

template <class S, void (*kRun)(BackwardTask&)>
void guarded(BackwardTask& task) {
  const FloatControl control;
  kRun(task);
}

template <class S>
constexpr BackwardKernel make_backward() {
  return {static_cast<int>(kQueries<S>),  &gradient_block_bytes<S>,
          &gradient_tile_bytes<S>,        &gradient_sums_bytes<S>,
          &guarded<S, run_open_block<S>>, &guarded<S, run_open_tile<S>>,
          &guarded<S, run_step<S>>,       &guarded<S, run_close_tile<S>>,
          &guarded<S, run_close_block<S>>};
}

}  // namespace poise::POISE_NAMESPACE
