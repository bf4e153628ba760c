// The two matrix products on register tiles, queries along the lanes.
//
//   scores:  S[j][i] = scale * sum_d K[j][d] Q[d][i]     one fma chain over d from 0, one multiply
//   values:  O[c][i] = fma(alpha[i], O[c][i], sum_j V[j][c] P[j][i])   one fma chain over j
//
// Shapes: Q [head_dim][kQueries], S and P [keys][kQueries], O [value_dim][kQueries], K and V rows
// as packed. A tile is R rows of scalars, broadcast, by V vectors of queries. Each element has its
// own chain, so no bit depends on the tile shape.

namespace poise::POISE_NAMESPACE {

// Queries of one inner tile, and the row stride of everything that has queries along the lanes.
template <class S>
inline constexpr int kQueries = S::kLanes* S::kTileVectors;

// Columns of queries and keys between two askings for bias and mask.
inline constexpr int64_t kColumnsAStep = 16;

// About as many tiles as n rows of scalars are cut into; cut_rows() is exact.
template <class S>
POISE_INLINE int64_t row_tiles(int64_t n) {
  return (n + S::kTileRows - 1) / S::kTileRows;
}

// S rows for keys k[0 ... R), vectors of queries [0, V). With kMax, max[v] takes in the scores;
// without, bias and mask of the tile are asked for meanwhile.
template <class S, int R, int V, bool kMax>
POISE_INLINE void score_tile(const typename S::T* query, const typename S::T* key,
                             int64_t key_stride, int64_t head_dim, const typename S::T* scale,
                             typename S::T* scores, typename S::Vec* max, Ahead* ahead) {
  using Vec = typename S::Vec;
  Vec acc[R][V];
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) acc[r][v] = S::zero();
  }
  int64_t d = 0;
  do {
    int64_t end = head_dim;
    if constexpr (!kMax) {
      if (prefetch_extra(ahead) && head_dim - d > kColumnsAStep) end = d + kColumnsAStep;
    }
    POISE_UNROLL(1)
    for (; d < end; ++d) {
      Vec q[V];
      POISE_UNROLL(8)
      for (int v = 0; v < V; ++v) q[v] = S::load(query + d * kQueries<S> + v * S::kLanes);
      POISE_UNROLL(8)
      for (int r = 0; r < R; ++r) {
        const Vec k = S::set(key[r * key_stride + d]);
        POISE_UNROLL(8)
        for (int v = 0; v < V; ++v) acc[r][v] = S::fma(k, q[v], acc[r][v]);
      }
    }
  } while (d < head_dim);
  // The stores of scores may reach `max` for all a compiler knows: apart, it stays in registers.
  Vec most[V];
  if constexpr (kMax) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) most[v] = max[v];
  }
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      const Vec s = S::mul(S::load(scale + v * S::kLanes), acc[r][v]);
      S::store(scores + r * kQueries<S> + v * S::kLanes, s);
      if constexpr (kMax) most[v] = S::max(s, most[v]);
    }
  }
  if constexpr (kMax) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) max[v] = most[v];
  }
}

// What tiles of one block share that want the same vectors, those at `query`, `scale` and `max`.
template <class S>
struct ScoreRun {
  const typename S::T* query;
  const typename S::T* key;  // row 0 of the block
  int64_t key_stride, head_dim;
  const typename S::T* scale;
  typename S::T* scores;  // row 0 of the block
  typename S::Vec* max;
  Ahead* ahead;
};

// Tiles of R keys from j on, one at least: every further one starts before `start_before` and ends
// at `end_at` at most. Returns the key behind the last. Between two tiles little may happen, and
// nothing that takes long: the multiply-adds wait for it.
template <class S, int R, int V, bool kMax>
POISE_INLINE int64_t score_run(const ScoreRun<S>& run, int64_t j, int64_t start_before,
                               int64_t end_at) {
  int64_t key = j * run.key_stride;  // offsets walk along: no pointer past the last row is formed
  POISE_UNROLL(1)
  do {
    prefetch_step(run.ahead);
    score_tile<S, R, V, kMax>(run.query, run.key + key, run.key_stride, run.head_dim, run.scale,
                              run.scores + j * kQueries<S>, run.max, run.ahead);
    key += R * run.key_stride;
    j += R;
  } while (j < start_before && j + R <= end_at);
  return j;
}

// score_run() for a number of vectors known at run time.
template <class S, int R, bool kMax>
POISE_INLINE int64_t score_rows(int vectors, const ScoreRun<S>& run, int64_t j,
                                int64_t start_before, int64_t end_at) {
  static_assert(S::kTileVectors <= 4);
  switch (vectors) {
    case 1:
      return score_run<S, R, 1, kMax>(run, j, start_before, end_at);
    case 2:
      return score_run<S, R, 2, kMax>(run, j, start_before, end_at);
    case 3:
      if constexpr (S::kTileVectors >= 3)
        return score_run<S, R, 3, kMax>(run, j, start_before, end_at);
      break;
    case 4:
      if constexpr (S::kTileVectors >= 4)
        return score_run<S, R, 4, kMax>(run, j, start_before, end_at);
      break;
  }
  return j + R;  // no vector wants these keys: one tile is passed over
}

// How n rows are cut into tiles of R, R - 1 and 1: 6a + 5b covers every n >= 20, so only short
// tails fall to single rows.
struct RowCut {
  int64_t full, less;  // tiles of R rows, then tiles of R - 1 rows; what is left goes one by one
};
template <int R>
POISE_INLINE RowCut cut_rows(int64_t n) {
  const int64_t tiles = (n + R - 1) / R;
  const int64_t missing = tiles * R - n;
  if (missing <= tiles) return {tiles - missing, missing};
  return {n / R, 0};
}

// Keys [begin, end) of a packed block against the first `vectors` vectors of queries. Vector v is
// wanted for keys [key_begin[v], key_end[v]) only; both ascend in v, and vectors dead for a whole
// row tile are left out of it. `scale` is that of each query.
template <class S, bool kMax>
inline void score_block(const typename S::T* query, const typename S::T* key, int64_t key_stride,
                        int64_t head_dim, const typename S::T* scale, int64_t begin, int64_t end,
                        int vectors, const int64_t* key_begin, const int64_t* key_end,
                        typename S::T* scores, typename S::Vec* max, Ahead* ahead) {
  constexpr int R = S::kTileRows;
  const RowCut cut = cut_rows<R>(end - begin);
  const int64_t full_end = begin + cut.full * R;
  const int64_t less_end = full_end + cut.less * (R - 1);
  for (int64_t j = begin; j < end;) {
    const int64_t stop = j < full_end ? full_end : j < less_end ? less_end : end;
    const int64_t rows = j < full_end ? R : j < less_end ? R - 1 : 1;
    int first = 0, last = vectors;
    while (first < last && key_end[first] <= j) ++first;
    while (last > first && key_begin[last - 1] >= j + rows) --last;
    const int64_t lane = first * S::kLanes;
    const ScoreRun<S> run{query + lane, key,           key_stride,  head_dim,
                          scale + lane, scores + lane, max + first, ahead};
    // The same vectors want the tiles that follow, up to where the first drops out or one joins.
    const int64_t start_before = first < last && key_end[first] < stop ? key_end[first] : stop;
    const int64_t end_at = last < vectors && key_begin[last] < stop ? key_begin[last] : stop;
    if (rows == R)
      j = score_rows<S, R, kMax>(last - first, run, j, start_before, end_at);
    else if (rows == R - 1 && R > 2)
      j = score_rows<S, (R > 2 ? R - 1 : 1), kMax>(last - first, run, j, start_before, end_at);
    else
      j = score_rows<S, 1, kMax>(last - first, run, j, start_before, end_at);
  }
}

// Continues the chains of vectors kFrom ... V - 1 through the keys that vector kFrom still sees,
// then drops it: key_end ascends.
template <class S, int R, int V, int kFrom>
POISE_INLINE void value_segment(typename S::Vec (&acc)[R][V], const typename S::T* weights,
                                const typename S::T* value, int64_t value_stride, int64_t j,
                                const int64_t* key_end) {
  using Vec = typename S::Vec;
  POISE_UNROLL(1)
  for (; j < key_end[kFrom]; ++j) {
    Vec p[V];
    POISE_UNROLL(8)
    for (int v = kFrom; v < V; ++v) p[v] = S::load(weights + j * kQueries<S> + v * S::kLanes);
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vec x = S::set(value[j * value_stride + r]);
      POISE_UNROLL(8)
      for (int v = kFrom; v < V; ++v) acc[r][v] = S::fma(x, p[v], acc[r][v]);
    }
  }
  if constexpr (kFrom + 1 < V)
    value_segment<S, R, V, kFrom + 1>(acc, weights, value, value_stride, j, key_end);
}

template <class S, int R, int V>
POISE_INLINE void value_tile(const typename S::T* weights, const typename S::T* value,
                             int64_t value_stride, int64_t begin, const int64_t* key_end,
                             const typename S::T* alpha, bool empty, typename S::T* out) {
  using Vec = typename S::Vec;
  Vec acc[R][V];
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) acc[r][v] = S::zero();
  }
  value_segment<S, R, V, 0>(acc, weights, value, value_stride, begin, key_end);
  if (empty) {
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      POISE_UNROLL(8)
      for (int v = 0; v < V; ++v)
        S::store(out + r * kQueries<S> + v * S::kLanes, S::add(acc[r][v], S::zero()));
    }
    return;
  }
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      typename S::T* o = out + r * kQueries<S> + v * S::kLanes;
      S::store(o, S::fma(S::load(alpha + v * S::kLanes), S::load(o), acc[r][v]));
    }
  }
}

template <class S, int V>
inline void value_columns(const typename S::T* weights, const typename S::T* value,
                          int64_t value_stride, int64_t value_dim, int64_t begin,
                          const int64_t* key_end, const typename S::T* alpha, bool empty,
                          typename S::T* out, Ahead* ahead) {
  constexpr int R = S::kTileRows;
  const RowCut cut = cut_rows<R>(value_dim);
  int64_t c = 0;
  for (int64_t t = 0; t < cut.full; ++t, c += R) {
    if (ahead != nullptr) prefetch_step(ahead);
    value_tile<S, R, V>(weights, value + c, value_stride, begin, key_end, alpha, empty,
                        out + c * kQueries<S>);
  }
  if constexpr (R > 2)
    for (int64_t t = 0; t < cut.less; ++t, c += R - 1) {
      if (ahead != nullptr) prefetch_step(ahead);
      value_tile<S, R - 1, V>(weights, value + c, value_stride, begin, key_end, alpha, empty,
                              out + c * kQueries<S>);
    }
  for (; c < value_dim; ++c)
    value_tile<S, 1, V>(weights, value + c, value_stride, begin, key_end, alpha, empty,
                        out + c * kQueries<S>);
}

// O = alpha O + P V for keys [begin, key_end[v]) of a packed block, the first `vectors` vectors.
// With `empty`, what `out` holds is not read: O is 0 before, its factor a number that is not
// negative. Meanwhile memory is asked for, unless `ahead` is null.
template <class S>
inline void value_block(const typename S::T* weights, const typename S::T* value,
                        int64_t value_stride, int64_t value_dim, int64_t begin, int vectors,
                        const int64_t* key_end, const typename S::T* alpha, bool empty,
                        typename S::T* out, Ahead* ahead) {
  switch (vectors) {
    case 1:
      return value_columns<S, 1>(weights, value, value_stride, value_dim, begin, key_end, alpha,
                                 empty, out, ahead);
    case 2:
      return value_columns<S, 2>(weights, value, value_stride, value_dim, begin, key_end, alpha,
                                 empty, out, ahead);
    case 3:
      if constexpr (S::kTileVectors >= 3)
        return value_columns<S, 3>(weights, value, value_stride, value_dim, begin, key_end, alpha,
                                   empty, out, ahead);
      return;
    case 4:
      if constexpr (S::kTileVectors >= 4)
        return value_columns<S, 4>(weights, value, value_stride, value_dim, begin, key_end, alpha,
                                   empty, out, ahead);
      return;
  }
}

// The weight -0 marks a key that its row does not see. A NaN that is seen is no mark, whatever its
// sign bit, which processors choose: inf - inf is negative on x86.
template <class S>
POISE_INLINE typename S::Mask is_mark(typename S::Vec weight) {
  return S::negative(S::select(S::equal(weight, weight), weight, S::zero()));
}

// value_block for a block that holds NaN or infinity: 0 * NaN would leak a key into rows that do
// not see it, so a marked pair (block.inl marks them) skips the fma. On finite data the bits are
// those of value_block. Forward's weights are their own marks.
template <class S>
inline void value_block_isolated(const typename S::T* weights, const typename S::T* marks,
                                 const typename S::T* value, int64_t value_stride,
                                 int64_t value_dim, int64_t begin, int vectors,
                                 const int64_t* key_end, const typename S::T* alpha, bool empty,
                                 typename S::T* out) {
  for (int64_t c = 0; c < value_dim; ++c) {
    for (int v = 0; v < vectors; ++v) {
      typename S::Vec acc = S::zero();
      for (int64_t j = begin; j < key_end[v]; ++j) {
        const typename S::Vec p = S::load(weights + j * kQueries<S> + v * S::kLanes);
        const typename S::Vec x = S::set(value[j * value_stride + c]);
        const typename S::Vec mark = S::load(marks + j * kQueries<S> + v * S::kLanes);
        acc = S::select(is_mark<S>(mark), acc, S::fma(x, p, acc));
      }
      typename S::T* o = out + c * kQueries<S> + v * S::kLanes;
      const typename S::Vec before = empty ? S::zero() : S::load(o);
      S::store(o, S::fma(S::load(alpha + v * S::kLanes), before, acc));
    }
  }
}

}  // namespace poise::POISE_NAMESPACE
