// From a tile of queries and a block of keys to logits, as derivatives of attention need them
// again.
//
//   scores = scale K Q; where capped: cap' = 4 e / (1 + e)^2, e = e^(-2 |x|), x = scores / softcap,
//   and cap'' = -2 tanh(x) cap' / softcap; logits as forward makes them, -inf where not seen
// In: query lanes, key rows, a view of what is seen. Out: tiles [key][kQueries]. The bits of the
// logits are forward's: the same chains, the same steps.

namespace poise::POISE_NAMESPACE {

template <class T>
POISE_INLINE T read_row(const ConstColumn& column, int64_t row) {
  return static_cast<const T*>(column.data)[row * column.stride];
}

// row_max and 1 / row_sum of rows [row, row + rows), 0 and 0 beyond. From an lse alone: lse and 1,
// and 0 for a row without keys.
template <class S>
inline void load_state(const ConstColumn& row_max, const ConstColumn& row_sum,
                       const ConstColumn& lse, int64_t row, int64_t rows, typename S::T* max,
                       typename S::T* inverse) {
  using T = typename S::T;
  for (int64_t i = 0; i < kQueries<S>; ++i) {
    T m = T(0), sum = T(0);
    if (i < rows && lse.data != nullptr) {
      m = read_row<T>(lse, row + i);
      sum = m == -Limits<T>::kInfinity ? T(0) : T(1);
    } else if (i < rows) {
      m = read_row<T>(row_max, row + i);
      sum = read_row<T>(row_sum, row + i);
    }
    // Of a row without keys: a number that -inf has a distance to, for logits that are -inf without
    // being masked.
    max[i] = sum == T(0) ? T(0) : m;
    inverse[i] = sum;
  }
  for (int64_t i = 0; i < kQueries<S>; i += S::kLanes)
    S::store(inverse + i, inverse_sum<S>(S::load(inverse + i)));
}

// Rows of a block or a tile, and what their elements allow.
template <class S>
struct KnownRows {
  BlockRows<S> rows;     // data null = there are none
  typename S::T square;  // sum of the squares of all elements
  bool finite;           // none is NaN, infinite or too large to be squared
  bool given() const { return rows.data != nullptr; }
};
template <class S>
inline KnownRows<S> no_rows() {
  return {{}, 0, true};
}

// Rows [row, row + rows) of `source`, in place or packed.
template <class S>
inline KnownRows<S> known_rows(const ConstPlane& source, Element element, int64_t row, int64_t rows,
                               int64_t columns, typename S::T* packed, int64_t packed_stride) {
  KnownRows<S> known = no_rows<S>();
  if (source.data == nullptr && columns > 0) return known;
  known.rows = block_rows<S>(source, element, row, 0, rows, columns, packed, packed_stride);
  known.square = sum_of_squares<S>(known.rows);
  known.finite = known.square < Limits<typename S::T>::kInfinity;
  return known;
}

// Every pair of the view: `to`[key][query] = scale * lanes . rows. Meanwhile memory is asked for.
template <class S>
inline void dots_block(const BlockView<S>& view, const typename S::T* lanes,
                       const KnownRows<S>& rows, int64_t columns, const typename S::T* scale,
                       typename S::T* to, Ahead* ahead) {
  typename S::Vec unused[S::kTileVectors];
  score_block<S, false>(lanes, rows.rows.data, rows.rows.stride, columns, scale, view.begin,
                        view.end, view.vectors, view.key_begin, view.key_end, to, unused, ahead);
}

template <class S>
inline void dots_block(const BlockView<S>& view, const typename S::T* lanes,
                       const KnownRows<S>& rows, int64_t columns, const typename S::T* scale,
                       typename S::T* to) {
  Ahead nothing{};
  dots_block<S>(view, lanes, rows, columns, scale, to, &nothing);
}

// sums += W rows for the view's keys, or = with `empty`; W is a tile of weights, `marks` the one
// that marks unseen pairs.
template <class S>
inline void add_products(const BlockView<S>& view, Unseen unseen, const typename S::T* weights,
                         const typename S::T* marks, const KnownRows<S>& rows, int64_t columns,
                         const typename S::T* ones, bool empty, typename S::T* sums) {
  const BlockRows<S>& from = rows.rows;
  if (unseen == Unseen::marked)
    value_block_isolated<S>(weights, marks, from.data, from.stride, columns, view.begin,
                            view.vectors, view.key_end, ones, empty, sums);
  else
    value_block<S>(weights, from.data, from.stride, columns, view.begin, view.vectors, view.key_end,
                   ones, empty, sums, nullptr);
}

// A part that add_products() is to begin with `empty`: it leaves vectors without rows alone, and
// they must be 0.
template <class S>
inline void clear_rowless(const BlockView<S>& view, int64_t columns, typename S::T* part) {
  if (view.vectors < S::kTileVectors) fill<S>(part, columns * kQueries<S>, 0);
}

// Whether some of rows [row_begin, row_end) sees a key of [key, key + keys) by position.
POISE_INLINE bool sees_some(const ForwardTask& problem, int64_t key, int64_t keys) {
  const int64_t begin = clamp_key(problem.row_begin + problem.lower - key, keys);
  const int64_t end = clamp_key(problem.row_end + problem.upper - key, keys);
  return begin < end;
}

// The keys of [key, key + keys) that a tile of rows sees. False: none. *problem becomes `unmasked`
// where the mask hides nothing.
template <class S>
inline bool look_at_keys(const ForwardTask& given, const ForwardTask& unmasked, int64_t row,
                         int64_t rows, int64_t key, int64_t keys, const ForwardTask** problem,
                         BlockView<S>* view) {
  *problem = &given;
  view_block<S>(given, row, rows, key, keys, view);
  if (view->begin >= view->end) return false;
  const MaskExtent extent = mask_extent(given, row, rows, key, view->begin, view->end);
  if (extent.begin >= extent.end) return false;
  clip_view<S>(extent, view);
  if (given.mask.data != nullptr && extent.whole) *problem = &unmasked;
  return true;
}

// Where the tiles lie; null = not wanted.
template <class S>
struct LogitTiles {
  typename S::T* logits;
  typename S::T* extra;      // room for bias and mask
  typename S::T* slope;      // cap', written where the problem has a softcap
  typename S::T* curvature;  // cap''
};

// What the view may hold besides pairs that are seen. `finite`: no NaN or infinity in anything that
// later products multiply weights with.
template <class S>
inline Unseen unseen_in(const ForwardTask& problem, const BlockView<S>& view, bool finite,
                        typename S::T query_square, typename S::T key_square) {
  if (!finite) return Unseen::marked;
  const bool masked = view.partial || problem.bias.data != nullptr ||
                      problem.mask.data != nullptr ||
                      may_overflow<typename S::T>(largest_scale(problem), query_square, key_square);
  return masked ? Unseen::masked : Unseen::none;
}

// cap'(scores) = 4 e / (1 + e)^2 with e = e^(-2 |scores / softcap|): 1 - tanh^2 would cancel.
template <class S>
inline void cap_slopes(typename S::T softcap, int64_t begin, int64_t end,
                       const typename S::T* scores, typename S::T* factor) {
  using Vec = typename S::Vec;
  for (int64_t j = begin; j < end; ++j) {
    const Vec x = S::abs(S::div(S::load(scores + j * kQueries<S>), S::set(softcap)));
    const Vec e = exp<S>(S::mul(x, S::set(-2)));
    const Vec above = S::add(S::set(1), e);
    S::store(factor + j * kQueries<S>, S::div(S::mul(S::set(4), e), S::mul(above, above)));
  }
}

template <class S>
inline void clear_keys(int64_t begin, int64_t end, typename S::T x, typename S::T* to) {
  for (int64_t j = begin; j < end; ++j) S::store(to + j * kQueries<S>, S::set(x));
}

// Weights outside each vector's own keys: 0, marked where marks are read.
template <class S>
inline void clear_outside(const BlockView<S>& view, typename S::T x, typename S::T* tile) {
  for (int v = 0; v < view.vectors; ++v) {
    clear_keys<S>(view.begin, view.key_begin[v], x, tile + v * S::kLanes);
    clear_keys<S>(view.key_end[v], view.end, x, tile + v * S::kLanes);
  }
}

// cap' and, where wanted, cap''; scores become capped scores. Keys [begin, end) of one vector.
template <class S>
inline void cap_with_slopes(typename S::T softcap, int64_t begin, int64_t end,
                            typename S::T* scores, typename S::T* slope, typename S::T* curvature) {
  using Vec = typename S::Vec;
  cap_slopes<S>(softcap, begin, end, scores, slope);
  cap_scores<S>(softcap, begin, end, scores);
  if (curvature == nullptr) return;
  const Vec factor = S::set(-2 / (softcap * softcap));
  for (int64_t j = begin; j < end; ++j) {
    const int64_t at = j * kQueries<S>;
    const Vec capped = S::mul(factor, S::load(scores + at));
    S::store(curvature + at, S::mul(capped, S::load(slope + at)));
  }
}

// `row`: the tile's first; `key`: the block's first; `scale`: [kQueries].
template <class S>
inline void fill_logits(const ForwardTask& problem, const BlockView<S>& view, Unseen unseen,
                        int64_t row, int64_t key, const typename S::T* query,
                        const KnownRows<S>& keys, const typename S::T* scale,
                        const LogitTiles<S>& tiles) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  dots_block<S>(view, query, keys, problem.head_dim, scale, tiles.logits);
  const bool has_extra = problem.bias.data != nullptr || problem.mask.data != nullptr;
  if (has_extra) load_extra<S>(problem, row, view.rows, key, view.begin, view.end, tiles.extra);
  for (int v = 0; v < view.vectors; ++v) {
    if (problem.softcap > 0)
      cap_with_slopes<S>(static_cast<T>(problem.softcap), view.key_begin[v], view.key_end[v],
                         tiles.logits + v * W, tiles.slope + v * W,
                         tiles.curvature == nullptr ? nullptr : tiles.curvature + v * W);
    if (unseen != Unseen::none || changes_scores(problem))
      finish_logits<S>(problem, view, v, row, key, has_extra ? tiles.extra : nullptr, tiles.logits,
                       S::zero(), nullptr);
  }
}

}  // namespace poise::POISE_NAMESPACE
