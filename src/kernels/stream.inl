// Reading memory as fast as the instruction set can: what a kernel that is bound by memory is
// compared with.
//
//   sums[0 ... 7] = 0                    eight, so that no add waits for the one before it
//   for every 8 vectors of data: sums[k] += vector k
//   a volatile keeps the total, so that no compiler drops the reads
//
// One pointer that walks upward, which every hardware prefetcher follows.

namespace poise::POISE_NAMESPACE {

template <class S>
__attribute__((noinline)) void run_read_stream(const typename S::T* data, int64_t count) {
  using Vec = typename S::Vec;
  constexpr int kSums = 8;
  constexpr int64_t kStep = int64_t{kSums} * S::kLanes;
  Vec sums[kSums];
  POISE_UNROLL(8)
  for (int k = 0; k < kSums; ++k) sums[k] = S::zero();
  int64_t i = 0;
  POISE_UNROLL(1)
  for (; i + kStep <= count; i += kStep) {
    POISE_UNROLL(8)
    for (int k = 0; k < kSums; ++k)
      sums[k] = S::add(sums[k], S::load_any(data + i + int64_t{k} * S::kLanes));
  }
  POISE_UNROLL(1)
  for (; i < count; i += S::kLanes) {
    const int64_t left = count - i < S::kLanes ? count - i : S::kLanes;
    sums[0] = S::add(sums[0], S::load_first(data + i, left));
  }
  Vec total = S::zero();
  POISE_UNROLL(8)
  for (int k = 0; k < kSums; ++k) total = S::add(total, sums[k]);
  alignas(64) typename S::T lanes[S::kLanes];
  S::store(lanes, total);
  volatile typename S::T keep = lanes[0];
  (void)keep;
}

template <class S>
void read_stream(const void* data, int64_t count) {
  const FloatControl control;  // subnormal bit patterns must not cost time
  run_read_stream<S>(static_cast<const typename S::T*>(data), count);
}

}  // namespace poise::POISE_NAMESPACE
