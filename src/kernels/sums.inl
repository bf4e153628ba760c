// What a tile's queries and weighted sums of values need besides the products, in both shapes of
// tile (layout.inl): filling, joining by the factors of a merge, writing out.

namespace poise::POISE_NAMESPACE {

template <class S>
inline void fill(typename S::T* to, int64_t count, typename S::T x) {
  for (int64_t i = 0; i < count; i += S::kLanes) S::store(to + i, S::set(x));
}

// The inverse of the power of two at or below a size >= 0, so that numbers of that size times it
// lie near 1 and their squares cannot vanish; 1 for 0 and for what is not finite.
template <class T>
POISE_INLINE T inverse_size(T size) {
  constexpr T kLeast = sizeof(T) == 4 ? T(0x1p-100) : T(0x1p-900);
  constexpr T kMost = 1 / kLeast;
  if (!(size > 0 && size < Limits<T>::kInfinity)) return T(1);
  if (size <= kLeast) return kMost;
  if (size >= kMost) return kLeast;
  const double wide = static_cast<double>(size);
  uint64_t bits;
  memcpy(&bits, &wide, sizeof bits);
  bits = (uint64_t{2046} - (bits >> 52)) << 52;  // 2046: twice the exponent's bias
  double inverse;
  memcpy(&inverse, &bits, sizeof inverse);
  return static_cast<T>(inverse);
}

// The sum of squares of all queries along the lanes: no single one is larger.
template <class S>
inline typename S::T query_squares(const typename S::T* query, int64_t head_dim) {
  return sum_of_squares<S>(query, kQueries<S>, head_dim, kQueries<S>);
}

template <class S>
inline void load_queries(const ForwardTask& task, Tile<S>& tile) {
  using T = typename S::T;
  constexpr int Q = kQueries<S>;
  for (int64_t i = 0; i < Q; ++i)
    tile.scale[i] = static_cast<T>(task.numbers[head_of(task, tile.row + i)].scale);
  if constexpr (!kIsNarrow<S>) {
    load_lanes<S>(task.query, task.element, task.heads, tile.row, tile.rows, task.head_dim,
                  tile.query);
    tile.query_square = query_squares<S>(tile.query, task.head_dim);
    return;
  }
  const int64_t stride = narrow_stride<S>(task.head_dim);
  fill<S>(tile.query, tile_numbers<S>(task.head_dim), 0);
  for (int64_t i = 0; i < tile.rows; ++i) {
    ConstPlane row = task.query;
    row.data = static_cast<const char*>(row.data) +
               row_offset(row, task.heads, tile.row + i) * element_bytes(task.element);
    pack_rows<S>(row, task.element, 0, 1, task.head_dim, tile.query + i * stride, stride);
  }
}

// What turns sums into those of a whole: joining zeros makes 0 of -0, and so does adding 0; adding
// -0 changes nothing.
template <class S>
POISE_INLINE typename S::Vec whole_addend(const Tile<S>& tile) {
  return S::set(static_cast<typename S::T>(tile.whole_first ? 0.0 : -0.0));
}

// sums = alpha whole + beta part for every row of the tile; the factors are [kQueries]. Null stands
// for zeros: a whole without keys, a sink's part.
template <class S>
inline void join_sums(const Tile<S>& tile, int64_t value_dim, const typename S::T* alpha,
                      const typename S::T* whole, const typename S::T* beta,
                      const typename S::T* part, typename S::T* sums) {
  constexpr int W = S::kLanes, Q = kQueries<S>;
  const typename S::Vec addend = whole_addend<S>(tile);
  const auto join_at = [&](const MergeFactors<S>& f, int64_t at) {
    const typename S::Vec ours = whole == nullptr ? S::zero() : S::add(S::load(whole + at), addend);
    const typename S::Vec theirs = part == nullptr ? S::zero() : S::load(part + at);
    S::store(sums + at, join<S>(f, ours, theirs));
  };
  if constexpr (kIsNarrow<S>) {
    const int64_t stride = narrow_stride<S>(value_dim);
    for (int64_t i = 0; i < tile.rows; ++i) {
      const MergeFactors<S> f{S::zero(), S::set(alpha[i]), S::set(beta[i])};
      for (int64_t c = 0; c < stride; c += W) join_at(f, i * stride + c);
    }
  } else {
    for (int64_t lane = 0; lane < tile.rows; lane += W) {
      const MergeFactors<S> f{S::zero(), S::load(alpha + lane), S::load(beta + lane)};
      for (int64_t c = 0; c < value_dim; ++c) join_at(f, c * Q + lane);
    }
  }
}

// Rows of sums times factor[row], written to the caller's rows.
template <class S>
inline void write_sums(const ForwardTask& task, const Tile<S>& tile, const typename S::T* factor,
                       const Plane& target, Element element) {
  constexpr int W = S::kLanes;
  if constexpr (!kIsNarrow<S>) {
    store_lanes<S>(tile.whole_out, whole_addend<S>(tile), factor, task.heads, tile.row, tile.rows,
                   task.value_dim, target, element);
    return;
  }
  const int64_t stride = narrow_stride<S>(task.value_dim);
  const typename S::Vec addend = whole_addend<S>(tile);
  for (int64_t i = 0; i < tile.rows; ++i) {
    const typename S::Vec f = S::set(factor[i]);
    const int64_t row = row_offset(target, task.heads, tile.row + i);
    for (int64_t c = 0; c < task.value_dim; c += W) {
      const int64_t width = task.value_dim - c < W ? task.value_dim - c : W;
      const typename S::Vec x = S::mul(S::add(S::load(tile.whole_out + i * stride + c), addend), f);
      store_columns<S>(x, width, target, element, row + c * target.col_stride);
    }
  }
}

}  // namespace poise::POISE_NAMESPACE
