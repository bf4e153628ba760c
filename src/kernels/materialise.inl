// The L x L outputs, for callers who ask for them: scores, capped, logits, weights.
//
// The same tiles, exp and masks as forward, block by block, then turned and written to the caller's
// strides. Runs after forward and takes its row_max and row_sum, so weights are those that made
// out. scores and capped cover masked keys too; keys at and after kv_len are never read.

namespace poise::POISE_NAMESPACE {

// Rows of a [key][query] block into [row][key] memory.
template <class S>
inline void write_block(const typename S::T* block, int64_t row, int64_t rows, int64_t key,
                        int64_t keys, const Plane& target) {
  using T = typename S::T;
  if (target.data == nullptr) return;
  for (int64_t i = 0; i < rows; ++i) {
    T* to = static_cast<T*>(target.data) + (row + i) * target.row_stride + key * target.col_stride;
    for (int64_t j = 0; j < keys; ++j) to[j * target.col_stride] = block[j * kQueries<S> + i];
  }
}

template <class T>
inline void fill_columns(const Plane& target, int64_t row_begin, int64_t row_end, int64_t from,
                         int64_t to, T x) {
  if (target.data == nullptr) return;
  for (int64_t i = row_begin; i < row_end; ++i)
    for (int64_t j = from; j < to; ++j)
      static_cast<T*>(target.data)[i * target.row_stride + j * target.col_stride] = x;
}

template <class S>
inline void materialise_block(const MaterialiseTask& task, const Workspace<S>& space,
                              const Tile<S>& tile, int64_t key, int64_t keys) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  const bool has_extra = problem.bias.data != nullptr || problem.mask.data != nullptr;
  T* scores = space.scores;
  BlockView<S> view;
  view_whole_block<S>(problem, tile.row, tile.rows, key, keys, &view);
  Vec unused[S::kTileVectors];
  score_block<S, false>(tile.query, space.key, space.key_stride, problem.head_dim, tile.scale, 0,
                        keys, view.vectors, view.key_begin, view.key_end, scores, unused,
                        space.ahead);
  write_block<S>(scores, tile.row, tile.rows, key, keys, task.scores);
  if (problem.softcap > 0)
    for (int v = 0; v < view.vectors; ++v)
      cap_scores<S>(static_cast<T>(problem.softcap), 0, keys, scores + v * W);
  write_block<S>(scores, tile.row, tile.rows, key, keys, task.capped);
  if (has_extra) load_extra<S>(problem, tile.row, tile.rows, key, 0, keys, space.extra);
  Vec visible = S::zero();
  for (int v = 0; v < view.vectors; ++v)
    finish_logits<S>(problem, view, v, tile.row, key, has_extra ? space.extra : nullptr, scores,
                     S::zero(), &visible);
  write_block<S>(scores, tile.row, tile.rows, key, keys, task.logits);
  if (task.weights.data == nullptr) return;
  for (int v = 0; v < view.vectors; ++v) {
    const Vec max = S::load(tile.whole_max + v * W);
    const Vec inverse = inverse_sum<S>(S::load(tile.whole_sum + v * W));
    for (int64_t j = 0; j < keys; ++j) {
      // A masked key has weight 0 in a row that is NaN, too.
      T* at = scores + j * Q + v * W;
      const Vec s = S::load(at);
      const Vec weight = S::mul(exp<S>(S::sub(s, max)), inverse);
      S::store(at, S::select(S::equal(s, S::set(-Limits<T>::kInfinity)), S::zero(), weight));
    }
    if (problem.dropout.on)
      drop_weights<S>(problem.dropout, problem.heads, tile.row + v * W, key, 0, keys,
                      scores + v * W);
  }
  write_block<S>(scores, tile.row, tile.rows, key, keys, task.weights);
}

template <class S>
__attribute__((noinline)) void run_materialise(const MaterialiseTask& task) {
  using T = typename S::T;
  constexpr int Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  Workspace<S> space;
  carve<S>(problem.head_dim, problem.value_dim, problem.workspace, &space);
  *space.ahead = {};
  int64_t tiles = 0;
  for (int64_t row = problem.row_begin; row < problem.row_end; row += Q) {
    Tile<S>& tile = space.tiles[tiles++];
    tile.row = row;
    tile.rows = problem.row_end - row < Q ? problem.row_end - row : Q;
    load_queries<S>(problem, tile);
    for (int64_t i = 0; i < Q; ++i) {
      const int64_t r = row + (i < tile.rows ? i : tile.rows - 1);
      const T l = static_cast<const T*>(problem.row_sum.data)[r * problem.row_sum.stride];
      tile.whole_sum[i] = l;
      tile.whole_max[i] =
          l == T(0) ? Limits<T>::kLowest
                    : static_cast<const T*>(problem.row_max.data)[r * problem.row_max.stride];
    }
  }
  for (int64_t key = 0; key < problem.kv_len; key += kBlockKeys) {
    const int64_t keys = problem.kv_len - key < kBlockKeys ? problem.kv_len - key : kBlockKeys;
    pack_rows<S>(problem.key, problem.element, key, keys, problem.head_dim, space.key,
                 space.key_stride);
    for (int64_t t = 0; t < tiles; ++t)
      materialise_block<S>(task, space, space.tiles[t], key, keys);
  }
  const int64_t begin = problem.row_begin, end = problem.row_end;
  fill_columns(task.scores, begin, end, problem.kv_len, task.kv_total, T(0));
  fill_columns(task.capped, begin, end, problem.kv_len, task.kv_total, T(0));
  fill_columns(task.logits, begin, end, problem.kv_len, task.kv_total, -Limits<T>::kInfinity);
  fill_columns(task.weights, begin, end, problem.kv_len, task.kv_total, T(0));
}

template <class S>
void materialise(const MaterialiseTask& task) {
  const FloatControl control;
  run_materialise<S>(task);
}

}  // namespace poise::POISE_NAMESPACE
