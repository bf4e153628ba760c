// Memory asked for before it is needed: rows of the next block, of the next tiles, of the output.
//
// In: planes as a task has them, rows that may lie beyond their end. Nothing is read: a prefetch
// never faults, has no value, and is dropped where no memory is mapped. Rows behind a head's last
// one are the next head's in most layouts, and that is who comes next; elsewhere it is wasted.

namespace poise::POISE_NAMESPACE {

inline constexpr int64_t kCacheLine = 64;

// Rows [row, row + rows) with adjacent columns; others would take a prefetch per element. Inline
// always: g++ takes a function that only prefetches for one without effect and drops its calls.
template <bool kForWriting>
POISE_INLINE void prefetch_rows(const void* data, int64_t row_stride, int64_t col_stride,
                                Element element, int64_t row, int64_t rows, int64_t columns) {
  if (data == nullptr || col_stride != 1) return;
  const int64_t size = element_bytes(element);
  for (int64_t r = row; r < row + rows; ++r) {
    // As a number: the address may lie outside the tensor.
    const auto at =
        reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(r * row_stride * size);
    for (int64_t b = 0; b < columns * size; b += kCacheLine)
      __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<uintptr_t>(b)), kForWriting,
                         2);
  }
}

}  // namespace poise::POISE_NAMESPACE
