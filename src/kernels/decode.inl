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

// Every load is preceded by a request for as much of the block to come, which for long sequences
// lies right behind this one. It goes to the second cache, since a block is more than the first one
// holds, and fewer rows ahead do not cover the time that memory takes. Where rows lie without gaps
// ("dense") the requests walk upward through them, whatever the order of the loads: hardware that
// sees memory read so runs ahead by itself, and of a walk through many rows side by side it does
// not. One request to a load: several at once keep loads waiting that find theirs in the cache.

// Continues the chains of W keys through the columns from d on that one vector of each row holds.
// bf16 goes by pairs of columns: half the turning, and widening is a shift or a mask.
template <class S, Element kElement>
inline constexpr int64_t kColumnsAtOnce = kElement == Element::bf16 ? 2 * S::kLanes : S::kLanes;

template <class S, Element kElement, int R>
POISE_INLINE void score_columns(const char* const* rows, int64_t d, int64_t stride_bytes,
                                bool dense, const typename S::T* query, int64_t query_stride,
                                typename S::Vec (&acc)[R]) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  constexpr int64_t kBytes = kColumnsAtOnce<S, kElement> * element_bytes(kElement);
  Vec block[W];
  // Elsewhere it pays to share what was spread over the lanes once.
  if constexpr (S::kReadsScalars) POISE_IN_ORDER();
  const int64_t column = d * element_bytes(kElement);
  const char* next = rows[0] + kBlockKeys * stride_bytes + (dense ? column * W : column);
  const int64_t next_step = dense ? kBytes : stride_bytes;
  POISE_UNROLL(16)
  for (int i = 0; i < W; ++i) {
    const char* at = rows[i] + column;
    __builtin_prefetch(next, 0, 2);
    next += next_step;
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
  const bool dense = keys.stride_bytes == head_dim * element_bytes(kElement);
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
        score_columns<S, kElement, R>(rows + k * W, d, keys.stride_bytes, dense, query,
                                      query_stride, acc[k]);
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

// C vectors of columns of one value, widened, each after its request `next`. Pairs of bf16 columns
// are left apart: even columns first, then odd ones.
template <class S, Element kElement, int C, bool kPairs>
POISE_INLINE void load_values(const char* at, const char* next, int64_t width,
                              typename S::Vec (&v)[C]) {
  constexpr int64_t kBytes = S::kLanes * element_bytes(kElement);
  POISE_UNROLL(4)
  for (int c = 0; c < C; c += kPairs ? 2 : 1) {
    __builtin_prefetch(next + c * kBytes, 0, 2);
    if constexpr (kPairs) {
      const typename S::Vec pairs = S::load_bf16_pairs(at + c * kBytes);
      v[c] = S::first_of_bf16_pairs(pairs);
      v[c + 1] = S::second_of_bf16_pairs(pairs);
    } else {
      v[c] = load_elements<S>(at + c * kBytes, kElement, 0, width);
    }
  }
}

// What of a block weigh_columns is to do: keys [begin, end), columns from `column` on.
struct ValuePiece {
  int64_t first;  // key of weights[.][0]
  int64_t begin, end;
  int64_t column, width;  // width: columns of the last vector
};

// acc[r][c] += sum over j in [begin, end) of value j times weights[r][j - first], one chain per
// element, C vectors of columns side by side. With kTotals, total[r] += the weights, one chain too:
// on its own it would take as long as half of the sums.
template <class S, Element kElement, int R, int C, bool kTotals>
POISE_INLINE void weigh_columns(const typename S::T* weights, const RowsInPlace& values,
                                int64_t value_dim, const ValuePiece& piece, typename S::T* acc,
                                int64_t acc_stride, typename S::T* total) {
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  constexpr bool kPairs = kElement == Element::bf16 && C > 1;
  const int64_t column_bytes = piece.column * element_bytes(kElement);
  const bool dense = values.stride_bytes == value_dim * element_bytes(kElement);
  const char* next = values.data + (piece.begin + kBlockKeys) * values.stride_bytes +
                     column_bytes * (dense ? piece.end - piece.begin : 1);
  const int64_t next_step = dense ? C * W * element_bytes(kElement) : values.stride_bytes;
  Vec a[R][C], sum[R];
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    POISE_UNROLL(4)
    for (int c = 0; c < C; ++c) a[r][c] = S::load(acc + r * acc_stride + piece.column + c * W);
    if constexpr (kPairs) {
      POISE_UNROLL(4)
      for (int c = 0; c < C; c += 2) S::part_pairs(a[r][c], a[r][c + 1]);
    }
    if constexpr (kTotals) sum[r] = S::set(total[r]);
  }
  POISE_UNROLL(1)
  for (int64_t j = piece.begin; j < piece.end; ++j) {
    Vec v[C];
    load_values<S, kElement, C, kPairs>(values.data + j * values.stride_bytes + column_bytes, next,
                                        piece.width, v);
    next += next_step;
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vec p = S::set(weights[r * kScoreStride + j - piece.first]);
      if constexpr (kTotals) sum[r] = S::add(sum[r], p);
      POISE_UNROLL(4)
      for (int c = 0; c < C; ++c) a[r][c] = S::fma(v[c], p, a[r][c]);
    }
  }
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    if constexpr (kPairs) {
      POISE_UNROLL(4)
      for (int c = 0; c < C; c += 2) S::join_pairs(a[r][c], a[r][c + 1]);
    }
    POISE_UNROLL(4)
    for (int c = 0; c < C; ++c) S::store(acc + r * acc_stride + piece.column + c * W, a[r][c]);
    if constexpr (kTotals) total[r] = first_lane<S>(sum[r]);
  }
}

template <class S, Element kElement, int R>
inline void weigh_values(const typename S::T* weights, const RowsInPlace& values, int64_t value_dim,
                         int64_t begin, int64_t end, typename S::T* acc, int64_t acc_stride,
                         typename S::T* total) {
  // As many vectors of columns as leave 32 registers room for a value, a weight and the totals.
  constexpr int W = S::kLanes, C = R <= 4 ? 4 : 2;
  // Rows that stay in the first cache while columns are walked.
  constexpr int64_t kKeys = 128 / element_bytes(kElement);
  if (value_dim == 0)
    for (int64_t j = begin; j < end; ++j)
      for (int r = 0; r < R; ++r) total[r] += weights[r * kScoreStride + j - begin];
  POISE_UNROLL(1)
  for (int64_t j = begin; j < end; j += kKeys) {
    const int64_t stop = end - j < kKeys ? end : j + kKeys;
    ValuePiece piece{begin, j, stop, 0, W};
    int64_t& c = piece.column;
    if (C * W <= value_dim) {
      weigh_columns<S, kElement, R, C, true>(weights, values, value_dim, piece, acc, acc_stride,
                                             total);
      c = C * W;
    }
    for (; c + C * W <= value_dim; c += C * W)
      weigh_columns<S, kElement, R, C, false>(weights, values, value_dim, piece, acc, acc_stride,
                                              total);
    for (; c < value_dim; c += W) {
      piece.width = value_dim - c < W ? value_dim - c : W;
      if (c == 0)
        weigh_columns<S, kElement, R, 1, true>(weights, values, value_dim, piece, acc, acc_stride,
                                               total);
      else
        weigh_columns<S, kElement, R, 1, false>(weights, values, value_dim, piece, acc, acc_stride,
                                                total);
    }
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

// out = alpha out + weights * values, total += weights. Weights of keys that a row does not see are
// -0. A sum that is not finite may owe it to such a key (0 * NaN), so it is taken again, without
// them.
template <class S>
inline void narrow_values(const ForwardTask& task, const Tile<S>& tile, const RowsInPlace& values,
                          int64_t begin, int64_t end, const typename S::T* weights,
                          const typename S::T* alpha, typename S::T* acc, typename S::T* total) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes;
  const int64_t stride = narrow_stride<S>(task.value_dim);
  for (int64_t i = 0; i < kNarrowRows * stride; i += W) S::store(acc + i, S::zero());
  with_constants<S>(values.element, tile.rows, [&](auto constants) {
    using C = decltype(constants);
    weigh_values<S, C::element, C::rows>(weights, values, task.value_dim, begin, end, acc, stride,
                                         total);
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
          sum = S::select(is_mark<S>(p), sum, S::fma(x, p, sum));
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

// The same for weights whose sums are known.
template <class S>
inline void narrow_values(const ForwardTask& task, const Tile<S>& tile, const RowsInPlace& values,
                          int64_t begin, int64_t end, const typename S::T* weights,
                          const typename S::T* alpha, typename S::T* acc) {
  typename S::T total[kNarrowRows] = {};
  narrow_values<S>(task, tile, values, begin, end, weights, alpha, acc, total);
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
  for (int64_t lane = 0; lane < Q; lane += W)
    S::store(space.alpha + lane,
             exp<S>(S::sub(S::load(tile.part_max + lane), S::load(max + lane))));
  narrow_values<S>(task, tile, values_here, view.begin, view.end, scores, space.alpha,
                   space.narrow_acc, total);
  for (int64_t lane = 0; lane < Q; lane += W) {
    const Vec sum = S::load(tile.part_sum + lane), alpha = S::load(space.alpha + lane);
    S::store(tile.part_sum + lane, S::fma(sum, alpha, S::load(total + lane)));
    S::store(tile.part_max + lane, S::load(max + lane));
  }
}

}  // namespace poise::POISE_NAMESPACE
