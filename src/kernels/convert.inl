// Moving rows between the caller's strided memory and the packed shapes the tiles read.
//
//   block_rows:  keys or values of one block, in place or packed
//   load_lanes:  query rows -> [column][lane], transposed in registers
//   store_lanes: [column][lane] -> out rows
// 16-bit elements are widened exactly on the way in and rounded to nearest even on the way out. No
// element outside the named rows and columns is ever read or written: tails use masked loads.

namespace poise::POISE_NAMESPACE {

// A double as T; a finite one stays finite, since only -inf means masked.
template <class T>
inline T narrow(double x) {
  const double largest = -static_cast<double>(Limits<T>::kLowest);
  if (x > largest && x < Limits<double>::kInfinity) return -Limits<T>::kLowest;
  if (x < -largest && x > -Limits<double>::kInfinity) return Limits<T>::kLowest;
  return static_cast<T>(x);
}

template <class T>
inline T read_element(const void* data, Element element, int64_t offset) {
  switch (element) {
    case Element::f32:
      return static_cast<T>(static_cast<const float*>(data)[offset]);
    case Element::f64:
      return narrow<T>(static_cast<const double*>(data)[offset]);
    case Element::f16:
      return static_cast<T>(widen_f16(static_cast<const uint16_t*>(data)[offset]));
    case Element::bf16:
      return static_cast<T>(widen_bf16(static_cast<const uint16_t*>(data)[offset]));
    case Element::boolean:
      return static_cast<T>(static_cast<const uint8_t*>(data)[offset] != 0);
  }
  return T(0);
}

constexpr int64_t element_bytes(Element element) {
  switch (element) {
    case Element::f64:
      return 8;
    case Element::f32:
      return 4;
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::boolean:
      return 1;
  }
  return 0;
}

// The element type whose bits are T's own.
template <class T>
inline constexpr Element kOwnElement = sizeof(T) == 4 ? Element::f32 : Element::f64;

// n <= kLanes adjacent elements from offset `at` on, widened to T; lanes beyond n hold 0. Only the
// f32 kernels see 16-bit elements.
template <class S>
POISE_INLINE typename S::Vec load_elements(const void* data, Element element, int64_t at,
                                           int64_t n) {
  using T = typename S::T;
  if constexpr (sizeof(T) == 4) {
    if (element == Element::f16) return S::load_f16(static_cast<const uint16_t*>(data) + at, n);
    if (element == Element::bf16) return S::load_bf16(static_cast<const uint16_t*>(data) + at, n);
  }
  const T* own = static_cast<const T*>(data) + at;
  return n == S::kLanes ? S::load_any(own) : S::load_first(own, n);
}

// The reverse, rounded to nearest even.
template <class S>
POISE_INLINE void store_elements(void* data, Element element, int64_t at, typename S::Vec v,
                                 int64_t n) {
  using T = typename S::T;
  if constexpr (sizeof(T) == 4) {
    if (element == Element::f16) return S::store_f16(static_cast<uint16_t*>(data) + at, v, n);
    if (element == Element::bf16) return S::store_bf16(static_cast<uint16_t*>(data) + at, v, n);
  }
  T* own = static_cast<T*>(data) + at;
  if (n == S::kLanes)
    S::store_any(own, v);
  else
    S::store_first(own, v, n);
}

template <class T>
inline void write_element(void* data, Element element, int64_t at, T x) {
  if (element == Element::f16)
    static_cast<uint16_t*>(data)[at] = narrow_f16(static_cast<float>(x));
  else if (element == Element::bf16)
    static_cast<uint16_t*>(data)[at] = narrow_bf16(static_cast<float>(x));
  else
    static_cast<T*>(data)[at] = x;
}

// Keys or values of one block as the tiles read them: row j of [begin, end) at data + j * stride.
template <class S>
struct BlockRows {
  const typename S::T* data;
  int64_t stride, begin, end, columns;
};

template <class S>
POISE_INLINE typename S::T first_lane(typename S::Vec v) {
  alignas(64) typename S::T lanes[S::kLanes];
  S::store(lanes, v);
  return lanes[0];
}

template <class S>
inline typename S::T add_lanes(typename S::Vec v) {
  alignas(64) typename S::T lanes[S::kLanes];
  S::store(lanes, v);
  typename S::T sum = 0;
  for (int i = 0; i < S::kLanes; ++i) sum += lanes[i];
  return sum;
}

// Rows a multiple of 2 KiB apart share a cache set: six of a tile and the rest evict each other.
template <class T>
POISE_INLINE bool rows_collide(int64_t stride) {
  return stride * static_cast<int64_t>(sizeof(T)) % 2048 == 0;
}

// sum[r] takes in the squares of row r of R rows with adjacent columns.
template <class S, int R>
POISE_INLINE void add_squares(const typename S::T* data, int64_t stride, int64_t columns,
                              typename S::Vec (&sum)[R]) {
  using Vec = typename S::Vec;
  int64_t c = 0;
  for (; c + S::kLanes <= columns; c += S::kLanes) {
    POISE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vec x = S::load_any(data + r * stride + c);
      sum[r] = S::fma(x, x, sum[r]);
    }
  }
  if (c == columns) return;
  POISE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    const Vec x = S::load_first(data + r * stride + c, columns - c);
    sum[r] = S::fma(x, x, sum[r]);
  }
}

// Squares of all elements of `rows` rows with adjacent columns, summed: a number only if they are
// all finite (and none so large that its square is not). Eight chains of additions at once: one
// would wait for itself.
template <class S>
inline typename S::T sum_of_squares(const typename S::T* data, int64_t stride, int64_t rows,
                                    int64_t columns) {
  constexpr int R = 8;
  typename S::Vec sum[R], rest[1] = {S::zero()};
  POISE_UNROLL(8)
  for (int i = 0; i < R; ++i) sum[i] = S::zero();
  int64_t r = 0;
  for (; r + R <= rows; r += R) add_squares<S, R>(data + r * stride, stride, columns, sum);
  for (; r < rows; ++r) add_squares<S, 1>(data + r * stride, stride, columns, rest);
  POISE_UNROLL(8)
  for (int i = 0; i < R; ++i) rest[0] = S::add(rest[0], sum[i]);
  return add_lanes<S>(rest[0]);
}

// Copies `rows` rows of `columns` elements, widened; row r goes to packed + r * packed_stride.
template <class S>
inline void pack_rows(const ConstPlane& source, Element element, int64_t row, int64_t rows,
                      int64_t columns, typename S::T* packed, int64_t packed_stride) {
  using T = typename S::T;
  if (columns == 0) return;  // its data may be null
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = (row + r) * source.row_stride;
    T* to = packed + r * packed_stride;
    if (source.col_stride == 1) {
      int64_t c = 0;
      for (; c + S::kLanes <= columns; c += S::kLanes)
        S::store_any(to + c, load_elements<S>(source.data, element, from + c, S::kLanes));
      if (c < columns)
        S::store_first(to + c, load_elements<S>(source.data, element, from + c, columns - c),
                       columns - c);
      continue;
    }
    for (int64_t c = 0; c < columns; ++c)
      to[c] = read_element<T>(source.data, element, from + c * source.col_stride);
  }
}

// Rows [begin, end) of the block that starts at row `first`: in place where they lie as dense as
// packing would lay them, else packed into `packed`, widened.
template <class S>
inline BlockRows<S> block_rows(const ConstPlane& source, Element element, int64_t first,
                               int64_t begin, int64_t end, int64_t columns, typename S::T* packed,
                               int64_t packed_stride) {
  using T = typename S::T;
  const bool dense = element == kOwnElement<T> && source.col_stride == 1 &&
                     source.row_stride >= columns && source.row_stride <= packed_stride &&
                     !rows_collide<T>(source.row_stride);
  if (dense && columns > 0)
    return {static_cast<const T*>(source.data) + first * source.row_stride, source.row_stride,
            begin, end, columns};
  pack_rows<S>(source, element, first + begin, end - begin, columns, packed + begin * packed_stride,
               packed_stride);
  return {packed, packed_stride, begin, end, columns};
}

// The sum of squares of all elements.
template <class S>
inline typename S::T sum_of_squares(const BlockRows<S>& rows) {
  return sum_of_squares<S>(rows.data + rows.begin * rows.stride, rows.stride, rows.end - rows.begin,
                           rows.columns);
}

// Where row `row` of a task of `heads` heads begins (kernels.h, ForwardTask).
template <class View>
POISE_INLINE int64_t row_offset(const View& view, int64_t heads, int64_t row) {
  if (heads == 1) return row * view.row_stride;
  return row / heads * view.row_stride + row % heads * view.head_stride;
}

// `width` adjacent elements from offset from[i] + column on, widened, for i < rows; 0 where there
// is no row or element.
template <class S>
POISE_INLINE void load_rows(const void* data, Element element, const int64_t* from, int64_t column,
                            int64_t rows, int64_t width, typename S::Vec (&block)[S::kLanes]) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  if (rows == W && width == W && element == kOwnElement<T>) {
    const T* own = static_cast<const T*>(data) + column;
    POISE_UNROLL(16)
    for (int i = 0; i < W; ++i) block[i] = S::load_any(own + from[i]);
    return;
  }
  POISE_UNROLL(16)
  for (int i = 0; i < W; ++i)
    block[i] = i < rows ? load_elements<S>(data, element, from[i] + column, width) : S::zero();
}

// Query rows [row, row + rows), rows <= kQueries, into lanes [column][kQueries]; lanes without a
// row hold 0.
template <class S>
inline void load_lanes(const ConstPlane& source, Element element, int64_t heads, int64_t row,
                       int64_t rows, int64_t columns, typename S::T* lanes) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  if (columns == 0) return;
  for (int64_t v = 0; v < S::kTileVectors; ++v) {
    const int64_t here = rows - v * W < W ? (rows - v * W > 0 ? rows - v * W : 0) : W;
    int64_t from[W] = {};
    for (int64_t i = 0; i < here; ++i) from[i] = row_offset(source, heads, row + v * W + i);
    T* to = lanes + v * W;
    if (source.col_stride == 1) {
      for (int64_t c = 0; c < columns; c += W) {
        const int64_t width = columns - c < W ? columns - c : W;
        typename S::Vec block[W];
        load_rows<S>(source.data, element, from, c, here, width, block);
        S::transpose(block);
        for (int64_t i = 0; i < width; ++i) S::store(to + (c + i) * kQueries<S>, block[i]);
      }
      continue;
    }
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = 0; i < W; ++i)
        to[c * kQueries<S> + i] =
            i < here ? read_element<T>(source.data, element, from[i] + c * source.col_stride)
                     : T(0);
  }
}

// The first n lanes into adjacent columns of `target`, from offset `at` on.
template <class S>
POISE_INLINE void store_columns(typename S::Vec x, int64_t n, const Plane& target, Element element,
                                int64_t at) {
  using T = typename S::T;
  if (target.col_stride == 1) return store_elements<S>(target.data, element, at, x, n);
  alignas(64) T values[S::kLanes];
  S::store(values, x);
  for (int64_t k = 0; k < n; ++k)
    write_element<T>(target.data, element, at + k * target.col_stride, values[k]);
}

// lanes [column][kQueries] plus `addend`, times factor[lane], into rows [row, row + rows) of
// target.
template <class S>
inline void store_lanes(const typename S::T* lanes, typename S::Vec addend,
                        const typename S::T* factor, int64_t heads, int64_t row, int64_t rows,
                        int64_t columns, const Plane& target, Element element) {
  constexpr int W = S::kLanes;
  if (columns == 0) return;
  for (int64_t v = 0; v * W < rows; ++v) {
    const int64_t here = rows - v * W < W ? rows - v * W : W;
    const typename S::Vec f = S::load(factor + v * W);
    const typename S::T* from = lanes + v * W;
    for (int64_t c = 0; c < columns; c += W) {
      const int64_t width = columns - c < W ? columns - c : W;
      typename S::Vec block[W];
      POISE_UNROLL(16)
      for (int i = 0; i < W; ++i)
        block[i] = i < width ? S::mul(S::add(S::load(from + (c + i) * kQueries<S>), addend), f)
                             : S::zero();
      S::transpose(block);
      for (int64_t i = 0; i < here; ++i)
        store_columns<S>(block[i], width, target, element,
                         row_offset(target, heads, row + v * W + i) + c * target.col_stride);
    }
  }
}

}  // namespace poise::POISE_NAMESPACE
