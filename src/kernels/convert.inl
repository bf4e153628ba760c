// Moving rows between the caller's strided memory and the packed shapes the tiles read.
//
//   block_rows:  keys or values of one block, in place or packed; tells whether all are finite
//   load_lanes:  query rows -> [column][lane], transposed in registers
//   store_lanes: [column][lane] -> out rows
// No element outside the named rows and columns is ever read or written: tails use masked loads.

namespace poise::POISE_NAMESPACE {

// Keys or values of one block as the tiles read them: row j of the block at data + j * stride.
template <class S>
struct BlockRows {
  const typename S::T* data;
  int64_t stride;
  bool finite;  // no element is NaN or infinite
};

// Rows a multiple of 2 KiB apart share a cache set: six of a tile and the rest evict each other.
template <class T>
POISE_INLINE bool rows_collide(int64_t stride) {
  return stride * static_cast<int64_t>(sizeof(T)) % 2048 == 0;
}

// Whether `rows` rows are all finite; they have adjacent columns.
template <class S>
inline bool rows_are_finite(const typename S::T* data, int64_t stride, int64_t rows,
                            int64_t columns) {
  using Vec = typename S::Vec;
  Vec poison = S::zero();  // x * 0 is NaN exactly when x is not finite
  for (int64_t r = 0; r < rows; ++r) {
    const typename S::T* from = data + r * stride;
    int64_t c = 0;
    for (; c + S::kLanes <= columns; c += S::kLanes)
      poison = S::fma(S::load_any(from + c), S::zero(), poison);
    if (c < columns) poison = S::fma(S::load_first(from + c, columns - c), S::zero(), poison);
  }
  return !S::any(S::first_only(S::equal(S::zero(), S::zero()), S::equal(poison, S::zero())));
}

// Copies `rows` rows of `columns` elements; row r goes to packed + r * packed_stride.
template <class S>
inline void pack_rows(const ConstPlane& source, int64_t row, int64_t rows, int64_t columns,
                      typename S::T* packed, int64_t packed_stride) {
  using T = typename S::T;
  if (columns == 0) return;  // its data may be null
  const T* data = static_cast<const T*>(source.data);
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = data + (row + r) * source.row_stride;
    T* to = packed + r * packed_stride;
    int64_t c = 0;
    if (source.col_stride == 1)
      for (; c + S::kLanes <= columns; c += S::kLanes) S::store_any(to + c, S::load_any(from + c));
    for (; c < columns; ++c) to[c] = from[c * source.col_stride];
  }
}

// Rows [begin, end) of the block that starts at row `first`: in place where they lie as dense as
// packing would lay them, else packed into `packed`.
template <class S>
inline BlockRows<S> block_rows(const ConstPlane& source, int64_t first, int64_t begin, int64_t end,
                               int64_t columns, typename S::T* packed, int64_t packed_stride) {
  using T = typename S::T;
  const bool dense = source.col_stride == 1 && source.row_stride >= columns &&
                     source.row_stride <= packed_stride && !rows_collide<T>(source.row_stride);
  BlockRows<S> rows{packed, packed_stride, true};
  if (dense && columns > 0)
    rows = {static_cast<const T*>(source.data) + first * source.row_stride, source.row_stride,
            true};
  else
    pack_rows<S>(source, first + begin, end - begin, columns, packed + begin * packed_stride,
                 packed_stride);
  rows.finite =
      rows_are_finite<S>(rows.data + begin * rows.stride, rows.stride, end - begin, columns);
  return rows;
}

// Query rows [row, row + rows), rows <= kQueries, into lanes [column][kQueries]; lanes without a
// row hold 0.
template <class S>
inline void load_lanes(const ConstPlane& source, int64_t row, int64_t rows, int64_t columns,
                       typename S::T* lanes) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  if (columns == 0) return;
  const T* data = static_cast<const T*>(source.data);
  for (int64_t v = 0; v < S::kTileVectors; ++v) {
    const int64_t here = rows - v * W < W ? (rows - v * W > 0 ? rows - v * W : 0) : W;
    const T* from = data + (row + v * W) * source.row_stride;
    T* to = lanes + v * W;
    int64_t c = 0;
    if (source.col_stride == 1) {
      for (; c < columns; c += W) {
        const int64_t width = columns - c < W ? columns - c : W;
        typename S::Vec block[W];
        POISE_UNROLL(16)
        for (int i = 0; i < W; ++i)
          block[i] = i < here
                         ? (width == W ? S::load_any(from + i * source.row_stride + c)
                                       : S::load_first(from + i * source.row_stride + c, width))
                         : S::zero();
        S::transpose(block);
        for (int64_t i = 0; i < width; ++i) S::store(to + (c + i) * kQueries<S>, block[i]);
      }
      continue;
    }
    for (; c < columns; ++c)
      for (int64_t i = 0; i < W; ++i)
        to[c * kQueries<S> + i] =
            i < here ? from[i * source.row_stride + c * source.col_stride] : T(0);
  }
}

// lanes [column][kQueries] times factor[lane] into rows [row, row + rows) of target.
template <class S>
inline void store_lanes(const typename S::T* lanes, const typename S::T* factor, int64_t row,
                        int64_t rows, int64_t columns, const Plane& target) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  if (columns == 0) return;
  T* data = static_cast<T*>(target.data);
  for (int64_t v = 0; v * W < rows; ++v) {
    const int64_t here = rows - v * W < W ? rows - v * W : W;
    const typename S::Vec f = S::load(factor + v * W);
    const T* from = lanes + v * W;
    T* to = data + (row + v * W) * target.row_stride;
    for (int64_t c = 0; c < columns; c += W) {
      const int64_t width = columns - c < W ? columns - c : W;
      typename S::Vec block[W];
      POISE_UNROLL(16)
      for (int64_t i = 0; i < W; ++i)
        block[i] = i < width ? S::mul(S::load(from + (c + i) * kQueries<S>), f) : S::zero();
      S::transpose(block);
      for (int64_t i = 0; i < here; ++i) {
        T* row_data = to + i * target.row_stride + c * target.col_stride;
        if (target.col_stride == 1) {
          if (width == W)
            S::store_any(row_data, block[i]);
          else
            S::store_first(row_data, block[i], width);
          continue;
        }
        alignas(64) T values[W];
        S::store(values, block[i]);
        for (int64_t k = 0; k < width; ++k) row_data[k * target.col_stride] = values[k];
      }
    }
  }
}

// Exact widening of the 16-bit formats a bias may have.
inline float widen_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}
inline float widen_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float size = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return sign != 0 ? -size : size;
  }
  const uint32_t wide_exponent = exponent == 0x1fu ? 0xffu : exponent + 112u;
  const uint32_t wide = sign | (wide_exponent << 23) | (mantissa << 13);
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

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

}  // namespace poise::POISE_NAMESPACE
