// The third matrix product of backward: columns along the lanes, sums over query rows.
//
//   G[j][c] += sum_i W[j][i] X[i][c]     one fma chain over i from 0, then one addition
//
// W [keys][kQueries] are weights or d dots as a tile of queries leaves them, X natural rows of dout
// or queries, G the gradient of the block's keys or values, its rows padded to whole vectors. A
// register tile is R keys, broadcast, by V vectors of columns; each element has its own chain, so
// no bit depends on the tile.

namespace poise::POISE_NAMESPACE {

// Numbers in a row of G.
template <class S>
POISE_INLINE int64_t whole_vectors(int64_t columns) {
  return (columns + S::kLanes - 1) / S::kLanes * S::kLanes;
}

// The first n lanes of x; kWhole says that n is all of them.
template <class S, bool kWhole>
POISE_INLINE typename S::Vec load_some(const typename S::T* x, int64_t n) {
  if constexpr (kWhole) return S::load_any(x);
  return S::load_first(x, n);
}

// Rows [begin, end) of X; the last vector of columns has `last` of them.
template <class S, int R, int V, bool kWhole>
POISE_INLINE void rows_tile(const typename S::T* weights, const typename S::T* rows,
                            int64_t row_stride, int64_t begin, int64_t end, int64_t last,
                            typename S::T* sums, int64_t sums_stride) {
  using Vec = typename S::Vec;
  Vec acc[R][V];
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) acc[r][v] = S::zero();
  }
  POISE_UNROLL(1)
  for (int64_t i = begin; i < end; ++i) {
    const typename S::T* row = rows + i * row_stride;
    Vec x[V];
    POISE_UNROLL(8)
    for (int v = 0; v + 1 < V; ++v) x[v] = S::load_any(row + v * S::kLanes);
    x[V - 1] = load_some<S, kWhole>(row + (V - 1) * S::kLanes, last);
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vec w = S::set(weights[r * kQueries<S> + i]);
      POISE_UNROLL(8)
      for (int v = 0; v < V; ++v) acc[r][v] = S::fma(w, x[v], acc[r][v]);
    }
  }
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      typename S::T* g = sums + r * sums_stride + v * S::kLanes;
      S::store(g, S::add(S::load(g), acc[r][v]));
    }
  }
}

template <class S, int R, int V>
POISE_INLINE void rows_columns(const typename S::T* weights, const typename S::T* rows,
                               int64_t row_stride, int64_t begin, int64_t end, int64_t last,
                               typename S::T* sums, int64_t sums_stride) {
  if (last == S::kLanes)
    rows_tile<S, R, V, true>(weights, rows, row_stride, begin, end, last, sums, sums_stride);
  else
    rows_tile<S, R, V, false>(weights, rows, row_stride, begin, end, last, sums, sums_stride);
}

// One tile of R keys, all columns: as many vectors at a time as the registers hold, evenly, so that
// no lonely vector is left.
template <class S, int R>
inline void rows_keys(const typename S::T* weights, const typename S::T* rows, int64_t row_stride,
                      int64_t begin, int64_t end, int64_t columns, typename S::T* sums,
                      int64_t sums_stride) {
  constexpr int64_t W = S::kLanes, kMost = S::kTileVectors;
  static_assert(kMost <= 4);
  const int64_t vectors = (columns + W - 1) / W;
  const int64_t turns = (vectors + kMost - 1) / kMost;
  for (int64_t t = 0, v = 0; t < turns; ++t) {
    const int64_t here = (vectors - v + turns - t - 1) / (turns - t);
    const int64_t last = v + here < vectors ? W : columns - (vectors - 1) * W;
    const typename S::T* x = rows + v * W;
    typename S::T* g = sums + v * W;
    switch (here) {
      case 1:
        rows_columns<S, R, 1>(weights, x, row_stride, begin, end, last, g, sums_stride);
        break;
      case 2:
        rows_columns<S, R, 2>(weights, x, row_stride, begin, end, last, g, sums_stride);
        break;
      case 3:
        if constexpr (kMost >= 3)
          rows_columns<S, R, 3>(weights, x, row_stride, begin, end, last, g, sums_stride);
        break;
      case 4:
        if constexpr (kMost >= 4)
          rows_columns<S, R, 4>(weights, x, row_stride, begin, end, last, g, sums_stride);
        break;
    }
    v += here;
  }
}

// Which rows of a tile some key of [j, j + keys) is seen by.
struct RowRange {
  int64_t begin, end;
};
template <class S>
POISE_INLINE RowRange rows_that_see(const BlockView<S>& view, int64_t j, int64_t keys) {
  int first = 0, last = view.vectors;
  while (first < last && view.key_end[first] <= j) ++first;
  while (last > first && view.key_begin[last - 1] >= j + keys) --last;
  const int64_t end = last * S::kLanes;
  return {first * S::kLanes, end < view.rows ? end : view.rows};
}

// G += W X for the keys of the view.
template <class S>
inline void rows_block(const BlockView<S>& view, const typename S::T* weights,
                       const BlockRows<S>& rows, int64_t columns, typename S::T* sums) {
  constexpr int R = S::kTileRows;
  const int64_t stride = whole_vectors<S>(columns);
  const RowCut cut = cut_rows<R>(view.end - view.begin);
  const int64_t full_end = view.begin + cut.full * R;
  const int64_t less_end = full_end + cut.less * (R - 1);
  for (int64_t j = view.begin; j < view.end;) {
    const int64_t keys = j < full_end ? R : j < less_end ? R - 1 : 1;
    const RowRange range = rows_that_see<S>(view, j, keys);
    const typename S::T* w = weights + j * kQueries<S>;
    typename S::T* g = sums + j * stride;
    if (keys == R)
      rows_keys<S, R>(w, rows.data, rows.stride, range.begin, range.end, columns, g, stride);
    else if (keys == R - 1 && R > 2)
      rows_keys<S, (R > 2 ? R - 1 : 1)>(w, rows.data, rows.stride, range.begin, range.end, columns,
                                        g, stride);
    else
      rows_keys<S, 1>(w, rows.data, rows.stride, range.begin, range.end, columns, g, stride);
    j += keys;
  }
}

// rows_block where 0 * NaN would leak a row into keys it does not see: a marked pair
// (is_mark() of tile.inl) skips the fma. On finite data the bits are those of rows_block.
template <class S>
inline void rows_block_isolated(const BlockView<S>& view, const typename S::T* weights,
                                const typename S::T* marks, const BlockRows<S>& rows,
                                int64_t columns, typename S::T* sums) {
  constexpr int64_t W = S::kLanes;
  const int64_t stride = whole_vectors<S>(columns);
  for (int64_t j = view.begin; j < view.end; ++j) {
    const typename S::T* w = weights + j * kQueries<S>;
    const typename S::T* mark = marks + j * kQueries<S>;
    for (int64_t c = 0; c < columns; c += W) {
      const int64_t width = columns - c < W ? columns - c : W;
      typename S::Vec acc = S::zero();
      for (int64_t i = 0; i < view.rows; ++i) {
        if (mark[i] == 0 && __builtin_signbit(mark[i]) != 0) continue;
        acc = S::fma(S::set(w[i]), S::load_first(rows.data + i * rows.stride + c, width), acc);
      }
      typename S::T* g = sums + j * stride + c;
      S::store(g, S::add(S::load(g), acc));
    }
  }
}

// Either of the two, as the pairs need it.
template <class S>
inline void rows_products(const BlockView<S>& view, Unseen unseen, const typename S::T* weights,
                          const typename S::T* marks, const KnownRows<S>& rows, int64_t columns,
                          typename S::T* sums) {
  if (unseen == Unseen::marked)
    rows_block_isolated<S>(view, weights, marks, rows.rows, columns, sums);
  else
    rows_block<S>(view, weights, rows.rows, columns, sums);
}

}  // namespace poise::POISE_NAMESPACE
