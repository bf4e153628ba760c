// Memory asked for before it is needed: rows of the next block, of the next task, of the output.
//
// In: planes as a task has them, rows that may lie beyond their end. Nothing is read: a prefetch
// never faults, has no value, and is dropped where no memory is mapped. Rows behind a head's last
// one are the next head's in most layouts, and that is who comes next; elsewhere it is wasted.
// Rows are asked for a few at a time while the products run: a burst fills the buffers between the
// caches and holds up the loads behind it.

namespace poise::POISE_NAMESPACE {

inline constexpr int64_t kCacheLine = 64;

// Rows still to be asked for.
struct RowsAhead {
  uintptr_t at;  // of the next row, as a number: it may lie outside the tensor
  int64_t row_stride, row_bytes, rows, rows_a_step;
};

// Rows [row, row + rows) of a plane of elements of `size` bytes, spread over `steps` steps; none
// where columns are not adjacent, since each would take a prefetch of its own.
template <class View>
inline RowsAhead rows_ahead(const View& plane, int64_t size, int64_t row, int64_t rows,
                            int64_t columns, int64_t steps) {
  if (plane.data == nullptr || plane.col_stride != 1 || steps <= 0) return {};
  return {reinterpret_cast<uintptr_t>(plane.data) +
              static_cast<uintptr_t>(row * plane.row_stride * size),
          plane.row_stride * size, columns * size, rows, (rows + steps - 1) / steps};
}

// Inline always: g++ takes a function that only prefetches for one without effect and drops its
// calls.
template <bool kForWriting>
POISE_INLINE void prefetch_some(RowsAhead* ahead) {
  for (int64_t n = ahead->rows_a_step; n > 0 && ahead->rows > 0; --n, --ahead->rows) {
    for (int64_t b = 0; b < ahead->row_bytes; b += kCacheLine)
      __builtin_prefetch(reinterpret_cast<const void*>(ahead->at + static_cast<uintptr_t>(b)),
                         kForWriting, 2);
    ahead->at += static_cast<uintptr_t>(ahead->row_stride);
  }
}

// What a wide task will need: the next block, the next task's queries, its own rows of out, and
// bias and mask of the pair at work.
struct Ahead {
  RowsAhead keys, values, queries, out, bias, mask;
};

POISE_INLINE void prefetch_step(Ahead* ahead) {
  prefetch_some<false>(&ahead->keys);
  prefetch_some<false>(&ahead->values);
  prefetch_some<false>(&ahead->queries);
  prefetch_some<true>(&ahead->out);
}

// Far more bytes than the others in a pair's time, hence in smaller bites. False: nothing is left.
POISE_INLINE bool prefetch_extra(Ahead* ahead) {
  if (ahead->bias.rows <= 0 && ahead->mask.rows <= 0) return false;
  prefetch_some<false>(&ahead->bias);
  prefetch_some<false>(&ahead->mask);
  return true;
}

}  // namespace poise::POISE_NAMESPACE
