// Forward mode: the derivative of out and lse along a direction (q', k', v').
//
//   P = e^(logits - row_max) / row_sum                       logits.inl, forward's state and exp
//   L' = cap' scale (K q' + k' Q)                            masks, bias, sinks and slopes stand
//   still W = P L',  t = sum_j W                                   = d lse out' = sum_j (W V + P
//   v') - t out
// One pass over the keys, blocks in ascending order; sums of a split join those before it, so no
// bit depends on rows that share a task. A key that is not seen has P = W = 0.

namespace poise::POISE_NAMESPACE {

// P and L' of one vector of queries from logits and the two halves of d dots, in place: `logits`
// become P, `half` becomes W. Adds sum_j W to t.
template <class S, Unseen kUnseen>
inline typename S::Vec move_weights(int64_t begin, int64_t end, typename S::Vec max,
                                    typename S::Vec inverse, const typename S::T* slope,
                                    typename S::T* logits, typename S::T* half,
                                    const typename S::T* other) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  const Vec unseen = S::set(-Limits<T>::kInfinity);
  Vec sum = S::zero();
  for (int64_t j = begin; j < end; ++j) {
    const int64_t at = j * kQueries<S>;
    const Vec s = S::load(logits + at);
    Vec p = S::mul(exp<S>(S::sub(s, max)), inverse);
    Vec moved = S::add(S::load(half + at), S::load(other + at));
    if (slope != nullptr) moved = S::mul(moved, S::load(slope + at));
    Vec w = S::mul(p, moved);
    if constexpr (kUnseen != Unseen::none) {
      const typename S::Mask hidden = S::equal(s, unseen);
      if constexpr (kUnseen == Unseen::marked) p = S::abs(p);
      p = S::select(hidden, S::set(kUnseen == Unseen::marked ? T(-0.0) : T(0)), p);
      w = S::select(hidden, S::zero(), w);
    }
    sum = S::add(sum, w);
    S::store(logits + at, p);
    S::store(half + at, w);
  }
  return sum;
}

template <class S>
inline typename S::Vec move_weights_at(Unseen unseen, int64_t begin, int64_t end,
                                       typename S::Vec max, typename S::Vec inverse,
                                       const typename S::T* slope, typename S::T* logits,
                                       typename S::T* half, const typename S::T* other) {
  switch (unseen) {
    case Unseen::none:
      return move_weights<S, Unseen::none>(begin, end, max, inverse, slope, logits, half, other);
    case Unseen::masked:
      return move_weights<S, Unseen::masked>(begin, end, max, inverse, slope, logits, half, other);
    case Unseen::marked:
      break;
  }
  return move_weights<S, Unseen::marked>(begin, end, max, inverse, slope, logits, half, other);
}

// Rows of keys or values and of their direction, ready for the tiles.
template <class S>
struct MovedRows {
  KnownRows<S> rows, moved;  // moved without rows = stands still
};

template <class S>
inline MovedRows<S> moved_rows(const ConstPlane& rows, const ConstPlane& moved, Element element,
                               int64_t key, int64_t keys, int64_t columns,
                               typename S::T* packed_rows, typename S::T* packed_moved,
                               int64_t stride) {
  return {known_rows<S>(rows, element, key, keys, columns, packed_rows, stride),
          moved.data == nullptr
              ? no_rows<S>()
              : known_rows<S>(moved, element, key, keys, columns, packed_moved, stride)};
}

// Both halves of scale d dots: K q' into `half`, k' Q into `other`; zeros for what stands still.
template <class S>
inline void move_dots(const BlockView<S>& view, int64_t head_dim, const typename S::T* scale,
                      const typename S::T* query, const typename S::T* moved_query,
                      const MovedRows<S>& key, typename S::T* half, typename S::T* other) {
  const auto dots = [&](const typename S::T* lanes, const KnownRows<S>& rows, typename S::T* to) {
    if (lanes == nullptr || !rows.given())
      return fill<S>(to + view.begin * kQueries<S>, (view.end - view.begin) * kQueries<S>, 0);
    dots_block<S>(view, lanes, rows, head_dim, scale, to);
  };
  dots(moved_query, key.rows, half);
  dots(query, key.moved, other);
}

template <class S>
struct TangentTile {
  using T = typename S::T;
  int64_t row, rows;
  T query_square;
  bool finite, part_open;
  T *query, *moved_query;         // [head_dim][kQueries]; moved_query null = stands still
  T *part, *whole;                // [value_dim][kQueries]
  T *max, *inverse, *part_t, *t;  // [kQueries]
};

template <class S>
struct TangentSpace {
  using T = typename S::T;
  TangentTile<S> tiles[kTaskTiles<S>];
  T *key, *moved_key, *value, *moved_value;   // [kBlockKeys][stride]
  T *weights, *half, *other, *extra, *slope;  // [kBlockKeys][kQueries]
  T *scale, *ones, *minus_one;                // [kQueries]
  ForwardTask* unmasked;
  int64_t key_stride, value_stride;
};

template <class S>
inline int64_t carve_tangent(int64_t head_dim, int64_t value_dim, void* base,
                             TangentSpace<S>* space) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  Carver carver(base);
  space->key_stride = packed_stride<S>(head_dim);
  space->value_stride = packed_stride<S>(value_dim);
  space->key = carver.take<T>(kBlockKeys * space->key_stride);
  space->moved_key = carver.take<T>(kBlockKeys * space->key_stride);
  space->value = carver.take<T>(kBlockKeys * space->value_stride);
  space->moved_value = carver.take<T>(kBlockKeys * space->value_stride);
  space->weights = carver.take<T>(kBlockKeys * Q);
  space->half = carver.take<T>(kBlockKeys * Q);
  space->other = carver.take<T>(kBlockKeys * Q);
  space->extra = carver.take<T>(kBlockKeys * Q);
  space->slope = carver.take<T>(kBlockKeys * Q);
  space->scale = carver.take<T>(Q);
  space->ones = carver.take<T>(Q);
  space->unmasked = carver.take<ForwardTask>(1);
  for (TangentTile<S>& tile : space->tiles) {
    tile.query = carver.take<T>(head_dim * Q);
    tile.moved_query = carver.take<T>(head_dim * Q);
    tile.part = carver.take<T>(value_dim * Q);
    tile.whole = carver.take<T>(value_dim * Q);
    tile.max = carver.take<T>(Q);
    tile.inverse = carver.take<T>(Q);
    tile.part_t = carver.take<T>(Q);
    tile.t = carver.take<T>(Q);
  }
  return carver.used();
}

template <class S>
int64_t tangent_bytes(int64_t head_dim, int64_t value_dim) {
  TangentSpace<S> space;
  return carve_tangent<S>(head_dim, value_dim, nullptr, &space);
}

template <class S>
inline void open_tangent(const TangentTask& task, TangentTile<S>& tile) {
  constexpr int64_t Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  load_lanes<S>(problem.query, problem.element, 1, tile.row, tile.rows, problem.head_dim,
                tile.query);
  tile.query_square = query_squares<S>(tile.query, problem.head_dim);
  tile.finite = tile.query_square < Limits<typename S::T>::kInfinity;
  if (task.dquery.data == nullptr) {
    tile.moved_query = nullptr;
  } else {
    load_lanes<S>(task.dquery, problem.element, 1, tile.row, tile.rows, problem.head_dim,
                  tile.moved_query);
  }
  load_state<S>(task.row_max, task.row_sum, task.lse, tile.row, tile.rows, tile.max, tile.inverse);
  tile.part_open = false;
  fill<S>(tile.whole, problem.value_dim * Q, 0);
  fill<S>(tile.t, Q, 0);
}

template <class S>
inline void close_tangent_split(int64_t value_dim, TangentTile<S>& tile) {
  if (!tile.part_open) return;
  tile.part_open = false;
  for (int64_t i = 0; i < value_dim * kQueries<S>; i += S::kLanes)
    S::store(tile.whole + i, S::add(S::load(tile.whole + i), S::load(tile.part + i)));
  for (int64_t i = 0; i < kQueries<S>; i += S::kLanes)
    S::store(tile.t + i, S::add(S::load(tile.t + i), S::load(tile.part_t + i)));
}

// One tile against one block.
template <class S>
inline void step_tangent(const TangentTask& task, const TangentSpace<S>& space,
                         TangentTile<S>& tile, int64_t key, int64_t keys,
                         const MovedRows<S>& key_rows, const MovedRows<S>& value_rows) {
  using T = typename S::T;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  const ForwardTask* problem;
  BlockView<S> view;
  if (!look_at_keys<S>(task.problem, *space.unmasked, tile.row, tile.rows, key, keys, &problem,
                       &view))
    return;
  const bool empty = !tile.part_open;
  if (empty) {
    fill<S>(tile.part_t, Q, 0);
    clear_rowless<S>(view, task.problem.value_dim, tile.part);
  }
  tile.part_open = true;
  const bool finite = value_rows.rows.finite && value_rows.moved.finite;
  const Unseen unseen =
      unseen_in<S>(*problem, view, finite, tile.query_square, key_rows.rows.square);
  fill_logits<S>(*problem, view, unseen, tile.row, key, tile.query, key_rows.rows, space.scale,
                 {space.weights, space.extra, space.slope, nullptr});
  move_dots<S>(view, problem->head_dim, space.scale, tile.query, tile.moved_query, key_rows,
               space.half, space.other);
  clear_outside<S>(view, unseen == Unseen::marked ? T(-0.0) : T(0), space.weights);
  clear_outside<S>(view, 0, space.half);
  for (int v = 0; v < view.vectors; ++v) {
    const int64_t lane = v * W;
    const typename S::Vec sum = move_weights_at<S>(
        unseen, view.key_begin[v], view.key_end[v], S::load(tile.max + lane),
        S::load(tile.inverse + lane), problem->softcap > 0 ? space.slope + lane : nullptr,
        space.weights + lane, space.half + lane, space.other + lane);
    S::store(tile.part_t + lane, S::add(S::load(tile.part_t + lane), sum));
    if (!problem->dropout.on) continue;
    T* dropped[] = {space.weights + lane, space.half + lane};
    for (T* weights : dropped)
      drop_weights<S>(problem->dropout, 1, tile.row + lane, key, view.key_begin[v], view.key_end[v],
                      weights);
  }
  add_products<S>(view, unseen, space.half, space.weights, value_rows.rows, problem->value_dim,
                  space.ones, empty, tile.part);
  if (value_rows.moved.given())
    add_products<S>(view, unseen, space.weights, space.weights, value_rows.moved,
                    problem->value_dim, space.ones, false, tile.part);
}

// out' = sums - t out, and d lse.
template <class S>
inline void close_tangent(const TangentTask& task, const TangentSpace<S>& space,
                          TangentTile<S>& tile) {
  constexpr int64_t Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  close_tangent_split<S>(problem.value_dim, tile);
  load_lanes<S>(task.out, problem.element, 1, tile.row, tile.rows, problem.value_dim, tile.part);
  for (int64_t i = 0; i < problem.value_dim * Q; i += S::kLanes) {
    const typename S::Vec minus_t = S::sub(S::zero(), S::load(tile.t + i % Q));
    S::store(tile.whole + i, S::fma(minus_t, S::load(tile.part + i), S::load(tile.whole + i)));
  }
  store_lanes<S>(tile.whole, S::zero(), space.ones, 1, tile.row, tile.rows, problem.value_dim,
                 task.dout, problem.element);
  if (task.dlse.data == nullptr) return;
  for (int64_t i = 0; i < tile.rows; ++i)
    static_cast<typename S::T*>(task.dlse.data)[(tile.row + i) * task.dlse.stride] = tile.t[i];
}

template <class S>
__attribute__((noinline)) void run_tangent(TangentTask& task) {
  constexpr int64_t Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  TangentSpace<S> space;
  carve_tangent<S>(problem.head_dim, problem.value_dim, task.workspace, &space);
  fill<S>(space.ones, Q, 1);
  fill<S>(space.scale, Q, static_cast<typename S::T>(problem.numbers[0].scale));
  *space.unmasked = problem;
  space.unmasked->mask.data = nullptr;
  int64_t count = 0;
  for (int64_t row = problem.row_begin; row < problem.row_end; row += Q) {
    TangentTile<S>& tile = space.tiles[count++];
    tile.row = row;
    tile.rows = problem.row_end - row < Q ? problem.row_end - row : Q;
    open_tangent<S>(task, tile);
  }
  for (int64_t key = 0; key < problem.kv_len; key += kBlockKeys) {
    const int64_t keys = problem.kv_len - key < kBlockKeys ? problem.kv_len - key : kBlockKeys;
    if (key % kSplitKeys == 0)
      for (int64_t t = 0; t < count; ++t) close_tangent_split<S>(problem.value_dim, space.tiles[t]);
    if (!sees_some(problem, key, keys)) continue;
    const MovedRows<S> key_rows =
        moved_rows<S>(problem.key, task.dkey, problem.element, key, keys, problem.head_dim,
                      space.key, space.moved_key, space.key_stride);
    const MovedRows<S> value_rows =
        moved_rows<S>(problem.value, task.dvalue, problem.element, key, keys, problem.value_dim,
                      space.value, space.moved_value, space.value_stride);
    for (int64_t t = 0; t < count; ++t)
      step_tangent<S>(task, space, space.tiles[t], key, keys, key_rows, value_rows);
  }
  for (int64_t t = 0; t < count; ++t) close_tangent<S>(task, space, space.tiles[t]);
}

template <class S>
void tangent(TangentTask& task) {
  const FloatControl control;
  run_tangent<S>(task);
}

template <class S>
constexpr TangentKernel make_tangent() {
  return {static_cast<int>(kQueries<S> * kTaskTiles<S>), &tangent_bytes<S>, &tangent<S>};
}

}  // namespace poise::POISE_NAMESPACE
