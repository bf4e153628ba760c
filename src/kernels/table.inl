// The table of one instruction set, and the small entry points around the kernels: merging states
// of whole rows, finishing them, exp and tanh for tests, the multiply-add chain that measures the
// peak.

namespace poise::POISE_NAMESPACE {

template <class T>
POISE_INLINE T& at(const Column& column, int64_t row) {
  return static_cast<T*>(column.data)[row * column.stride];
}
template <class T>
POISE_INLINE T& at(const Plane& plane, int64_t row, int64_t column) {
  return static_cast<T*>(plane.data)[row * plane.row_stride + column * plane.col_stride];
}

// The maximum of a stored state, whose empty rows callers see as -inf.
template <class T>
POISE_INLINE T stored_max(T m, T l) {
  return l == T(0) ? Limits<T>::kLowest : m;
}

template <class S>
__attribute__((noinline)) void run_merge(const MergeTask& task) {
  using T = typename S::T;
  for (int64_t i = 0; i < task.rows; ++i) {
    T& sum = at<T>(task.whole_sum, i);
    T& max = at<T>(task.whole_max, i);
    const T part_sum = at<T>(task.part_sum, i);
    const MergeFactors<S> f = merge_factors<S>(
        S::set(stored_max(max, sum)), S::set(stored_max(at<T>(task.part_max, i), part_sum)));
    sum = first_lane<S>(join<S>(f, S::set(sum), S::set(part_sum)));
    max = seen_max(first_lane<S>(f.max), sum);
    for (int64_t c = 0; c < task.value_dim; ++c) {
      T& o = at<T>(task.whole, i, c);
      o = first_lane<S>(join<S>(f, S::set(o), S::set(at<T>(task.part, i, c))));
    }
  }
}

template <class S>
void merge(const MergeTask& task) {
  const FloatControl control;
  run_merge<S>(task);
}

template <class S>
__attribute__((noinline)) void run_finish(const FinishTask& task) {
  using T = typename S::T;
  for (int64_t i = 0; i < task.rows; ++i) {
    const T l = at<T>(task.row_sum, i);
    const T inverse = first_lane<S>(inverse_sum<S>(S::set(l)));
    if (task.lse.data != nullptr)
      at<T>(task.lse, i) = log_sum_exp(stored_max(at<T>(task.row_max, i), l), l);
    const int64_t row = i * task.out.row_stride;
    for (int64_t c = 0; c < task.value_dim; ++c)
      write_element<T>(task.out.data, task.out_element, row + c * task.out.col_stride,
                       at<T>(task.accumulator, i, c) * inverse);
  }
}

template <class S>
void finish(const FinishTask& task) {
  const FloatControl control;
  run_finish<S>(task);
}

template <class S, typename S::Vec (*kFunction)(typename S::Vec)>
__attribute__((noinline)) void apply(const void* from, void* to, int64_t count) {
  const auto* x = static_cast<const typename S::T*>(from);
  auto* y = static_cast<typename S::T*>(to);
  for (int64_t i = 0; i < count; i += S::kLanes) {
    const int64_t n = count - i < S::kLanes ? count - i : S::kLanes;
    S::store_first(y + i, kFunction(S::load_first(x + i, n)), n);
  }
}
template <class S>
inline typename S::Vec exp_of(typename S::Vec t) {
  return exp<S>(t);
}
template <class S>
inline typename S::Vec tanh_of(typename S::Vec x) {
  return tanh<S>(x);
}
template <class S>
void exp_array(const void* from, void* to, int64_t count) {
  const FloatControl control;
  apply<S, exp_of<S>>(from, to, count);
}
template <class S>
void tanh_array(const void* from, void* to, int64_t count) {
  const FloatControl control;
  apply<S, tanh_of<S>>(from, to, count);
}

// `rounds` dependent steps of as many independent multiply-adds as the tile has accumulators:
// nothing but registers, so its rate is the machine's peak. Returns the flops done.
template <class S>
__attribute__((noinline)) double fma_chain(int64_t rounds) {
  constexpr int kChains = S::kTileRows * S::kTileVectors;
  using Vec = typename S::Vec;
  Vec acc[kChains];
  POISE_UNROLL(32)
  for (int i = 0; i < kChains; ++i) acc[i] = S::set(static_cast<typename S::T>(i + 1));
  // Rounds away, so that the sums stay where they are. The sum itself is the addend, the operand
  // that an instruction set without a form for every choice overwrites. Volatile, or a compiler
  // works out that nothing changes and drops the loop.
  volatile typename S::T tiny = static_cast<typename S::T>(1e-20);
  const Vec a = S::set(tiny);
  POISE_UNROLL(1)
  for (int64_t r = 0; r < rounds; ++r) {
    POISE_UNROLL(32)
    for (int i = 0; i < kChains; ++i) acc[i] = S::fma(acc[i], a, acc[i]);
  }
  Vec sum = S::zero();
  POISE_UNROLL(32)
  for (int i = 0; i < kChains; ++i) sum = S::add(sum, acc[i]);
  volatile typename S::T keep = first_lane<S>(sum);
  (void)keep;
  return 2.0 * S::kLanes * kChains * static_cast<double>(rounds);
}

template <class S>
constexpr ForwardKernel make_forward() {
  return {static_cast<int>(kTileRowsMost<S>),
          static_cast<int>(kTileRowsMost<S> * kTaskTiles<S>),
          &workspace_bytes<S>,
          &record_bytes<S>,
          &forward<S>,
          &join_splits<S>};
}

template <class S>
constexpr KernelSet make_set() {
  return {S::kLanes,
          make_forward<S>(),
          make_forward<Narrow<S>>(),
          make_backward<S>(),
          &guarded<S, run_bias_step<S>>,
          make_tangent<S>(),
          make_second<S>(),
          &materialise<S>,
          &merge<S>,
          &finish<S>,
          &exp_array<S>,
          &tanh_array<S>,
          &fma_chain<S>,
          &read_stream<S>};
}

constexpr Kernels make_kernels(const char* name) {
  return {name, make_set<Simd<float>>(), make_set<Simd<double>>()};
}

}  // namespace poise::POISE_NAMESPACE
