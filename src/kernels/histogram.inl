// The histogram of scores, exact and counted without a branch or a counter per score.
//
//   bin = floor((score - low) / width); a score becomes one bit, 1 << bin, in a set of its lane
//   sets of equal weight are added three at a time, bit by bit (a carry-save adder: sum and carry)
//   plane k collects what has weight 2^k: after n keys of a lane the planes hold its kTallyBins
//   counters of n in binary, 1 + 1/2 + 1/4 + ... < 2 adders per key
// The planes live as long as the task: only flush_histogram turns them into numbers. Scores outside
// the bins leave no bit and are counted apart, in a second pass that blocks without them skip.

namespace poise::POISE_NAMESPACE {

// Planes added in registers; the others take in one carry per kGroupKeys keys.
inline constexpr int kGroupPlanes = 3;
inline constexpr int kGroupKeys = 1 << kGroupPlanes;
// 2^16 - 1 keys of one lane fit; more are flushed on the way.
inline constexpr int kCountPlanes = 16;

template <class S>
struct Histogram {
  using Bits = typename S::Bits;
  static constexpr int kParts = kTallyBins / S::kBinsPerPart;  // sets that hold a lane's bins
  int64_t row;     // a row of the vectors counted: says which lane belongs to which head
  int64_t groups;  // groups of kGroupKeys keys counted
  Bits planes[kCountPlanes][kParts];
  Bits waiting[kCountPlanes][kParts];  // carries of weight 2^k whose partner has not come yet
};

template <class S>
inline void clear_histogram(Histogram<S>* h) {
  h->row = 0;
  h->groups = 0;
  for (int k = 0; k < kCountPlanes; ++k)
    for (int part = 0; part < Histogram<S>::kParts; ++part) h->planes[k][part] = S::no_bits();
}

// The counters of the head that row belongs to: below, the bins, above.
POISE_INLINE int64_t* histogram_of(const ForwardTask& task, int64_t row) {
  return task.histogram + head_of(task, row) * (kTallyBins + 2);
}

// Adds what the planes hold to the task's histogram and empties them.
template <class S>
__attribute__((noinline)) void flush_histogram(const ForwardTask& task, Histogram<S>* h) {
  using Word = typename S::BitWord;
  constexpr int W = S::kLanes;
  if (h->groups == 0) return;
  for (int part = 0; part < Histogram<S>::kParts; ++part) {
    alignas(64) Word words[2 * kCountPlanes][W];
    int weights[2 * kCountPlanes], used = 0;
    for (int k = 0; k < kCountPlanes; ++k) {
      S::store_bits(words[used], h->planes[k][part]);
      weights[used++] = k;
      if (k < kGroupPlanes || (h->groups >> (k - kGroupPlanes) & 1) == 0) continue;
      S::store_bits(words[used], h->waiting[k][part]);
      weights[used++] = k;
    }
    for (int bin = 0; bin < S::kBinsPerPart; ++bin) {
      Word counts[W] = {};
      for (int k = 0; k < used; ++k)
        for (int i = 0; i < W; ++i) counts[i] += (words[k][i] >> bin & 1) << weights[k];
      for (int i = 0; i < W; ++i)
        histogram_of(task, h->row + i)[1 + part * S::kBinsPerPart + bin] +=
            static_cast<int64_t>(counts[i]);
    }
  }
  clear_histogram<S>(h);
}

// sum = a ^ b ^ sum, and the carries are returned.
template <class S>
POISE_INLINE typename S::Bits add_bits(typename S::Bits* sum, typename S::Bits a,
                                       typename S::Bits b) {
  const typename S::Bits carry = S::majority(*sum, a, b);
  *sum = S::parity(*sum, a, b);
  return carry;
}

// Carries of one group join planes kGroupPlanes and up, in pairs as they come.
template <class S>
POISE_INLINE void add_group(Histogram<S>* h, const typename S::Bits* carries) {
  for (int part = 0; part < Histogram<S>::kParts; ++part) {
    typename S::Bits carry = carries[part];
    int k = kGroupPlanes;
    for (; h->groups >> (k - kGroupPlanes) & 1; ++k)
      carry = add_bits<S>(&h->planes[k][part], h->waiting[k][part], carry);
    h->waiting[k][part] = carry;
  }
  ++h->groups;
}

// Bin numbers before rounding down. Lanes that do not count get -1, which is no bin.
template <class S, bool kMasked>
POISE_INLINE typename S::Vec place_scores(const MomentKeys<S>& keys, typename S::Mask rows,
                                          int64_t j, typename S::Vec low,
                                          typename S::Vec inverse_width) {
  const typename S::Vec x = S::load(keys.values + j * kQueries<S>);
  const typename S::Vec at = S::mul(S::sub(x, low), inverse_width);
  if constexpr (!kMasked) return at;
  const typename S::Mask counted = S::both(counted_lanes<S, kMasked>(keys, j, x), rows);
  return S::select(counted, at, S::set(-1));
}

// Counts finite scores outside the bins.
template <class S, bool kMasked>
__attribute__((noinline)) void count_outliers(const ForwardTask& task, const MomentKeys<S>& keys,
                                              typename S::Mask rows, int64_t row,
                                              typename S::Vec low, typename S::Vec inverse_width) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  Vec below = S::zero(), above = S::zero();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const Vec x = S::load(keys.values + j * kQueries<S>);
    const Vec at = S::mul(S::sub(x, low), inverse_width);
    typename S::Mask counted = S::both(S::less(S::abs(x), S::set(Limits<T>::kInfinity)), rows);
    counted = S::both(counted, counted_lanes<S, kMasked>(keys, j, x));
    below = S::add_where(S::both(counted, S::less(at, S::zero())), below, S::set(1));
    above =
        S::add_where(S::both(counted, S::less_equal(S::set(T(kTallyBins)), at)), above, S::set(1));
  }
  alignas(64) T under[S::kLanes], over[S::kLanes];
  S::store(under, below);
  S::store(over, above);
  for (int i = 0; i < S::kLanes; ++i) {
    int64_t* histogram = histogram_of(task, row + i);
    histogram[0] += static_cast<int64_t>(under[i]);
    histogram[1 + kTallyBins] += static_cast<int64_t>(over[i]);
  }
}

// Adds the finite scores of one vector over one block; `rows` are the lanes that hold a row, the
// first of them `row`. Without kMasked every lane is one and sees every key.
template <class S, bool kMasked>
inline void block_histogram(const ForwardTask& task, const MomentKeys<S>& keys,
                            typename S::Mask rows, int64_t row, Histogram<S>* h) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  using Bits = typename S::Bits;
  constexpr int kParts = Histogram<S>::kParts;
  const Vec low = S::set(static_cast<T>(task.histogram_low));
  const Vec inverse_width = S::set(static_cast<T>(task.histogram_inverse_width));
  const int64_t groups = (keys.end - keys.begin + kGroupKeys - 1) / kGroupKeys;
  // A lane's counters belong to one head.
  const bool other_heads = head_of(task, h->row) != head_of(task, row);
  if (other_heads || (h->groups + groups) * kGroupKeys >= int64_t{1} << kCountPlanes)
    flush_histogram<S>(task, h);
  h->row = row;
  Bits ones[kParts], twos[kParts], fours[kParts], seen = S::no_bits();
  for (int part = 0; part < kParts; ++part) {
    ones[part] = h->planes[0][part];
    twos[part] = h->planes[1][part];
    fours[part] = h->planes[2][part];
  }
  int64_t j = keys.begin;
  for (; j + kGroupKeys <= keys.end; j += kGroupKeys) {
    Bits bin[kGroupKeys], carries[kParts];
    POISE_UNROLL(8)
    for (int i = 0; i < kGroupKeys; ++i) {
      bin[i] = S::floor_bits(place_scores<S, kMasked>(keys, rows, j + i, low, inverse_width));
      seen = S::join_bits(seen, bin[i]);
    }
    POISE_UNROLL(2)
    for (int part = 0; part < kParts; ++part) {
      Bits pair[kGroupKeys / 2];
      POISE_UNROLL(4)
      for (int i = 0; i < kGroupKeys / 2; ++i)
        pair[i] = add_bits<S>(&ones[part], S::one_bit(bin[2 * i], part),
                              S::one_bit(bin[2 * i + 1], part));
      carries[part] = add_bits<S>(&fours[part], add_bits<S>(&twos[part], pair[0], pair[1]),
                                  add_bits<S>(&twos[part], pair[2], pair[3]));
    }
    add_group<S>(h, carries);
  }
  if (j < keys.end) {  // the last keys go one by one into a group of their own
    Bits carries[kParts];
    for (int part = 0; part < kParts; ++part) carries[part] = S::no_bits();
    for (; j < keys.end; ++j) {
      const Bits bin = S::floor_bits(place_scores<S, kMasked>(keys, rows, j, low, inverse_width));
      seen = S::join_bits(seen, bin);
      for (int part = 0; part < kParts; ++part) {
        const Bits none = S::no_bits();
        const Bits two = add_bits<S>(&ones[part], S::one_bit(bin, part), none);
        carries[part] = S::join_bits(
            carries[part], add_bits<S>(&fours[part], add_bits<S>(&twos[part], two, none), none));
      }
    }
    add_group<S>(h, carries);
  }
  for (int part = 0; part < kParts; ++part) {
    h->planes[0][part] = ones[part];
    h->planes[1][part] = twos[part];
    h->planes[2][part] = fours[part];
  }
  if (S::beyond(seen, kTallyBins - 1))
    count_outliers<S, kMasked>(task, keys, rows, row, low, inverse_width);
}

}  // namespace poise::POISE_NAMESPACE
