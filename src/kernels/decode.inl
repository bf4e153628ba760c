// Few rows against many keys, as when text is generated token by token: every key and value is read
// once, where it lies, for all rows of the tile.
//
//   scores:  W keys x W columns are turned in registers, then S[i][keys] = fma(K^T[d], q[i][d], S)
//   weights: e^(s - m), keys along the lanes; their sum key after key
//   values:  O[i][columns] = fma(V[j], p[i][j], O), columns along the lanes
//
// Every element has the chain that tile.inl and block.inl give it (over d from 0; over j ascending,
// from 0 in every block), so a row has the same bits here and there. Time is that of reading keys
// and values: 16-bit elements are widened in registers, and what comes next is asked for ahead,
// since a walk through W rows side by side is none that hardware foresees.

namespace poise::POISE_NAMESPACE {

// Keys or values of one block where they lie: element (j, c) at data[j * stride + c].
struct RowsInPlace {
  const char* data;
  Element element;
  int64_t stride_bytes;
};

// Keys or values [begin, end) of the block that starts at row `first`: where they lie if their
// columns are adjacent, else packed.
template <class S>
inline RowsInPlace rows_in_place(const ConstPlane& source, Element element, int64_t first,
                                 int64_t begin, int64_t end, int64_t columns, typename S::T* packed,
                                 int64_t packed_stride) {
  using T = typename S::T;
  const int64_t bytes = element_bytes(element);
  if (source.col_stride == 1)
    return {static_cast<const char*>(source.data) + first * source.row_stride * bytes, element,
            source.row_stride * bytes};
  pack_rows<S>(source, element, first + begin, end - begin, columns, packed + begin * packed_stride,
               packed_stride);
  return {reinterpret_cast<const char*>(packed), kOwnElement<T>,
          packed_stride * static_cast<int64_t>(sizeof(T))};
}

// Asks for one row of keys or values of the block to come, which for long sequences lies right
// behind this one, into the second cache: a block is more than the first one holds, and fewer rows
// ahead do not cover the time that memory takes.
POISE_INLINE void prefetch_next_block(const char* at, int64_t stride_bytes) {
  __builtin_prefetch(at + kBlockKeys * stride_bytes, 0, 2);
}

// Continues the chains of W keys through the columns from d on that one vector of each row holds.
// bf16 goes by pairs of columns: half the turning, and widening is a shift or a mask.
template <class S, Element kElement>
inline constexpr int64_t kColumnsAtOnce = kElement == Element::bf16 ? 2 * S::kLanes : S::kLanes;

template <class S, Element kElement, int R>
POISE_INLINE void score_columns(const char* const* rows, int64_t d, int64_t stride_bytes,
                                const typename S::T* query, int64_t query_stride,
                                typename S::Vec (&acc)[R]) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  Vec block[W];
  POISE_UNROLL(16)
  for (int i = 0; i < W; ++i) {
    const char* at = rows[i] + d * element_bytes(kElement);
    prefetch_next_block(at, stride_bytes);
    if constexpr (kElement == Element::bf16)
      block[i] = S::load_bf16_pairs(at);
    else
      block[i] = load_elements<S>(at, kElement, 0, W);
  }
  S::transpose(block);
  POISE_UNROLL(16)
  for (int i = 0; i < W; ++i) {
    if constexpr (kElement == Element::bf16) {
      const Vec even = S::first_of_bf16_pairs(block[i]), odd = S::second_of_bf16_pairs(block[i]);
      POISE_UNROLL(8)
      for (int r = 0; r < R; ++r) {
        const typename S::T* q = query + r * query_stride + d + 2 * i;
        acc[r] = S::fma(odd, S::set(q[1]), S::fma(even, S::set(q[0]), acc[r]));
      }
    } else {
      POISE_UNROLL(8)
      for (int r = 0; r < R; ++r)
        acc[r] = S::fma(block[i], S::set(query[r * query_stride + d + i]), acc[r]);
    }
  }
}

// The same for a last, partial vector of columns.
template <class S, Element kElement, int R>
inline void score_last_columns(const char* const* rows, int64_t d, int64_t width,
                               const typename S::T* query, int64_t query_stride,
                               typename S::Vec (&acc)[R]) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  Vec block[W];
  alignas(64) typename S::T turned[W * W];
  for (int i = 0; i < W; ++i)
    block[i] = load_elements<S>(rows[i] + d * element_bytes(kElement), kElement, 0, width);
  S::transpose(block);
  for (int i = 0; i < W; ++i) S::store(turned + i * W, block[i]);
  for (int64_t i = 0; i < width; ++i) {
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r)
      acc[r] = S::fma(S::load(turned + i * W), S::set(query[r * query_stride + d + i]), acc[r]);
  }
}

// scores[r][j - begin] = scale[r] * (key j . query r), keys [begin, end), R rows, K vectors of keys
// side by side.
template <class S, Element kElement, int R, int K>
inline void score_keys(const typename S::T* query, int64_t query_stride, const RowsInPlace& keys,
                       int64_t head_dim, const typename S::T* scale, int64_t begin, int64_t end,
                       typename S::T* scores) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  constexpr int64_t kColumns = kColumnsAtOnce<S, kElement>;
  POISE_UNROLL(1)
  for (int64_t j = begin; j < end; j += K * W) {
    const char* rows[K * W];  // lanes beyond the last key repeat it: their scores go nowhere
    for (int64_t i = 0; i < K * W; ++i)
      rows[i] = keys.data + (j + i < end ? j + i : end - 1) * keys.stride_bytes;
    Vec acc[K][R];
    POISE_UNROLL(8)
    for (int k = 0; k < K; ++k) {
      POISE_UNROLL(8)
      for (int r = 0; r < R; ++r) acc[k][r] = S::zero();
    }
    int64_t d = 0;
    POISE_UNROLL(1)
    for (; d + kColumns <= head_dim; d += kColumns) {
      POISE_UNROLL(2)
      for (int k = 0; k < K; ++k)
        score_columns<S, kElement, R>(rows + k * W, d, keys.stride_bytes, query, query_stride,
                                      acc[k]);
    }
    for (; d < head_dim; d += W) {
      const int64_t width = head_dim - d < W ? head_dim - d : W;
      POISE_UNROLL(2)
      for (int k = 0; k < K; ++k)
        score_last_columns<S, kElement, R>(rows + k * W, d, width, query, query_stride, acc[k]);
    }
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      POISE_UNROLL(2)
      for (int k = 0; k < K; ++k)
        S::store_any(scores + r * kScoreStride + (j - begin) + k * W,
                     S::mul(S::set(scale[r]), acc[k][r]));
    }
  }
}

// Two vectors of keys keep the chains of few rows apart; more rows need the registers.
template <class S, Element kElement, int R>
inline void score_rows_of(const typename S::T* query, int64_t query_stride, const RowsInPlace& keys,
                          int64_t head_dim, const typename S::T* scale, int64_t begin, int64_t end,
                          typename S::T* scores) {
  constexpr int K = R <= 4 ? 2 : 1;
  static_assert(K * S::kLanes <= kKeyRoom);
  score_keys<S, kElement, R, K>(query, query_stride, keys, head_dim, scale, begin, end, scores);
}

// acc[r][c] += sum over j in [begin, end) of value j times weights[r][j - begin], one chain per
// element. C vectors of columns side by side.
template <class S, Element kElement, int R, int C>
POISE_INLINE void weigh_columns(const typename S::T* weights, const RowsInPlace& values,
                                int64_t width, int64_t column, int64_t first, int64_t begin,
                                int64_t end, typename S::T* acc, int64_t acc_stride) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  Vec a[R][C];
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(4)
    for (int c = 0; c < C; ++c) a[r][c] = S::load(acc + r * acc_stride + column + c * W);
  }
  POISE_UNROLL(1)
  for (int64_t j = begin; j < end; ++j) {
    const char* at = values.data + j * values.stride_bytes + column * element_bytes(kElement);
    Vec v[C];
    POISE_UNROLL(4)
    for (int c = 0; c < C; ++c) {
      const char* here = at + c * W * element_bytes(kElement);
      prefetch_next_block(here, values.stride_bytes);
      v[c] = load_elements<S>(here, kElement, 0, width);
    }
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vec p = S::set(weights[r * kScoreStride + j - first]);
      POISE_UNROLL(4)
      for (int c = 0; c < C; ++c) a[r][c] = S::fma(v[c], p, a[r][c]);
    }
  }
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(4)
    for (int c = 0; c < C; ++c) S::store(acc + r * acc_stride + column + c * W, a[r][c]);
  }
}

template <class S, Element kElement, int R>
inline void weigh_values(const typename S::T* weights, const RowsInPlace& values, int64_t value_dim,
                         int64_t begin, int64_t end, typename S::T* acc, int64_t acc_stride) {
  constexpr int W = S::kLanes, C = 4;
  constexpr int64_t kKeys = 32;  // rows that stay in the first cache while columns are walked
  POISE_UNROLL(1)
  for (int64_t j = begin; j < end; j += kKeys) {
    const int64_t stop = end - j < kKeys ? end : j + kKeys;
    int64_t c = 0;
    for (; c + C * W <= value_dim; c += C * W)
      weigh_columns<S, kElement, R, C>(weights, values, W, c, begin, j, stop, acc, acc_stride);
    for (; c + W <= value_dim; c += W)
      weigh_columns<S, kElement, R, 1>(weights, values, W, c, begin, j, stop, acc, acc_stride);
    if (c < value_dim)
      weigh_columns<S, kElement, R, 1>(weights, values, value_dim - c, c, begin, j, stop, acc,
                                       acc_stride);
  }
}

// Calls f with the compile-time element type and a row count that covers `rows`; buffers hold
// kNarrowRows rows, so a few more than wanted are harmless.
template <Element kElement, int kRows>
struct Constants {
  static constexpr Element element = kElement;
  static constexpr int rows = kRows;
};
template <Element kElement, class F>
POISE_INLINE void with_rows(int64_t rows, F&& f) {
  if (rows <= 1) return f(Constants<kElement, 1>{});
  if (rows == 2) return f(Constants<kElement, 2>{});
  if (rows == 3) return f(Constants<kElement, 3>{});
  if (rows == 4) return f(Constants<kElement, 4>{});
  if (rows <= 6) return f(Constants<kElement, 6>{});
  f(Constants<kElement, kNarrowRows>{});
}
template <class S, class F>
POISE_INLINE void with_constants(Element element, int64_t rows, F&& f) {
  if constexpr (sizeof(typename S::T) == 4) {
    if (element == Element::f16) return with_rows<Element::f16>(rows, f);
    if (element == Element::bf16) return with_rows<Element::bf16>(rows, f);
  }
  with_rows<kOwnElement<typename S::T>>(rows, f);
}

template <class S>
inline void narrow_scores(const ForwardTask& task, const Tile<S>& tile, const RowsInPlace& keys,
                          int64_t begin, int64_t end, typename S::T* scores) {
  with_constants<S>(keys.element, tile.rows, [&](auto constants) {
    using C = decltype(constants);
    score_rows_of<S, C::element, C::rows>(tile.query, narrow_stride<S>(task.head_dim), keys,
                                          task.head_dim, tile.scale, begin, end, scores);
  });
}

// out = alpha out + weights * values. Weights of keys that a row does not see are -0. A sum that is
// not finite may owe it to such a key (0 * NaN), so it is taken again, without them.
template <class S>
inline void narrow_values(const ForwardTask& task, const Tile<S>& tile, const RowsInPlace& values,
                          int64_t begin, int64_t end, const typename S::T* weights,
                          const typename S::T* alpha, typename S::T* acc) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  const int64_t stride = narrow_stride<S>(task.value_dim);
  for (int64_t i = 0; i < kNarrowRows * stride; i += W) S::store(acc + i, S::zero());
  with_constants<S>(values.element, tile.rows, [&](auto constants) {
    using C = decltype(constants);
    weigh_values<S, C::element, C::rows>(weights, values, task.value_dim, begin, end, acc, stride);
  });
  for (int64_t r = 0; r < tile.rows; ++r) {
    T* row = acc + r * stride;
    if (!(sum_of_squares<S>(row, stride, 1, task.value_dim) < Limits<T>::kInfinity))
      for (int64_t c = 0; c < task.value_dim; ++c) {
        Vec sum = S::zero();
        for (int64_t j = begin; j < end; ++j) {
          const Vec p = S::set(weights[r * kScoreStride + j - begin]);
          const Vec x =
              S::set(read_element<T>(values.data + j * values.stride_bytes, values.element, c));
          sum = S::select(S::negative(p), sum, S::fma(x, p, sum));
        }
        alignas(64) T lanes[W];
        S::store(lanes, sum);
        row[c] = lanes[0];
      }
    const Vec a = S::set(alpha[r]);
    T* out = tile.part_out + r * stride;
    for (int64_t c = 0; c < stride; c += W)
      S::store(out + c, S::fma(a, S::load(out + c), S::load(row + c)));
  }
}

// [row][key] into [key][lane] and back, for steps that have rows along the lanes.
template <class S>
inline void turn_to_lanes(const typename S::T* rows, int64_t count, int64_t begin, int64_t end,
                          typename S::T* lanes) {
  constexpr int Q = kQueries<S>;
  for (int64_t j = begin; j < end; ++j)
    for (int64_t r = 0; r < Q; ++r)  // lanes without a row repeat the last one
      lanes[j * Q + r] = rows[(r < count ? r : count - 1) * kScoreStride + j - begin];
}
template <class S>
inline void turn_to_rows(const typename S::T* lanes, int64_t count, int64_t begin, int64_t end,
                         typename S::T* rows) {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t j = begin; j < end; ++j)
      rows[r * kScoreStride + j - begin] = lanes[j * kQueries<S> + r];
}

// One block of keys against a tile whose logits are its scores, seen or not by position alone.
template <class S>
inline void process_plain_block(const ForwardTask& task, const Workspace<S>& space, Tile<S>& tile,
                                const BlockView<S>& view, int64_t key, int64_t keys,
                                const RowsInPlace& keys_here, const RowsInPlace& values_here) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  const Vec masked = S::set(-Limits<T>::kInfinity);
  const int64_t count = view.end - view.begin;
  T* scores = space.narrow_scores;
  narrow_scores<S>(task, tile, keys_here, view.begin, view.end, scores);
  alignas(64) T total[Q] = {};
  alignas(64) T max[Q];
  for (int64_t lane = 0; lane < Q; lane += W) S::store(max + lane, S::load(tile.part_max + lane));
  for (int64_t r = 0; r < tile.rows; ++r) {
    T* s = scores + r * kScoreStride;
    const KeyRange seen = keys_of_row(task, tile.row + r, key, keys);
    const int64_t first = clamp_key(seen.begin - view.begin, count);
    const int64_t last = clamp_key(seen.end - view.begin, count);
    for (int64_t j = 0; j < first; ++j) s[j] = -Limits<T>::kInfinity;
    for (int64_t j = last; j < (count + W - 1) / W * W; ++j) s[j] = -Limits<T>::kInfinity;
    Vec largest = S::set(max[r]);
    for (int64_t j = 0; j < count; j += W) largest = S::max(S::load_any(s + j), largest);
    alignas(64) T lanes[W];
    S::store(lanes, largest);
    for (int i = 0; i < W; ++i) max[r] = lanes[i] > max[r] ? lanes[i] : max[r];
    const Vec m = S::set(max[r]);
    for (int64_t j = 0; j < count; j += W) {
      const Vec x = S::load_any(s + j);
      const Vec p = exp<S>(S::sub(x, m));
      S::store_any(s + j, S::select(S::equal(x, masked), S::set(T(-0.0)), p));
    }
  }
  with_rows<kOwnElement<T>>(tile.rows, [&](auto constants) {
    constexpr int R = decltype(constants)::rows;
    T sum[R] = {};
    for (int64_t j = 0; j < count; ++j) {
      POISE_UNROLL(8)
      for (int r = 0; r < R; ++r) sum[r] += scores[r * kScoreStride + j];
    }
    for (int r = 0; r < R; ++r) total[r] = sum[r];
  });
  for (int64_t lane = 0; lane < Q; lane += W) {
    const Vec m = S::load(max + lane), sum = S::load(tile.part_sum + lane);
    const Vec alpha = exp<S>(S::sub(S::load(tile.part_max + lane), m));
    S::store(tile.part_sum + lane, S::fma(sum, alpha, S::load(total + lane)));
    S::store(tile.part_max + lane, m);
    S::store(space.alpha + lane, alpha);
  }
  narrow_values<S>(task, tile, values_here, view.begin, view.end, scores, space.alpha,
                   space.narrow_acc);
}

}  // namespace poise::POISE_NAMESPACE
