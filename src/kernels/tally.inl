// The tally of a row: what softmax saturation, entropy and spread are computed from, streamed
// beside the softmax state and merged by the same factors (docs/health.md, "Streaming state").
//
// Per block and vector: float sums over the block's keys, relative to the row maximum so far; then
// added in double to the split's tally; split tallies merge like softmax states. Keys at the
// maximum itself (t = 0) are counted apart (kOnes), never summed: 1 - top-1 then keeps its digits
// on a saturated row, and ties are not lost.
//
//   raising the maximum by d > 0, r = e^-d, with the keys at the old maximum joining the rest:
//     T2 <- r (T2 - 2 d T + d^2 U) + d^2 r ones     T <- r (T - d U) - d r ones
//     E2 <- r^2 (E2 + ones)   E3 <- r^3 (E3 + ones)   U <- r (U + ones)   ones <- 0
//
// Where logits differ from scores, w is how a logit moves with ln scale, and the keys at the
// maximum are in its sums, which are about a c of their own: W <- r W, WT <- r (WT - d W).

namespace poise::POISE_NAMESPACE {

enum TallyField : int {
  kOnes,          // keys at the maximum
  kRest,          // U  = sum e^t over the others
  kRestT,         // T  = sum t e^t
  kRestT2,        // T2 = sum t^2 e^t
  kRestE2,        // E2 = sum e^2t
  kRestE3,        // E3 = sum e^3t
  kSecond,        // largest logit below the maximum
  kArgmax,        // first key at the maximum
  kVisible,       // visible keys
  kStandIns,      // of these, keys whose bias stands in for -inf
  kScoreMoments,  // five fields: shift, S1, S2, min, max
  kLogitMoments = kScoreMoments + 5,
  kDriveShift = kLogitMoments + 5,  // c
  kDrive,                           // sum e^t (w - c), keys at the maximum among them
  kDriveT,                          // sum t e^t (w - c)
  kTallyFields,
};
inline constexpr int kShift = 0, kS1 = 1, kS2 = 2, kMin = 3, kMax = 4;

// A key index no row has; the arg-max of an empty tally.
inline constexpr double kNoKey = 9007199254740992.0;

template <class S>
inline void clear_moments(double* moments) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  for (int i = 0; i < W; ++i) {
    moments[kShift * Q + i] = moments[kS1 * Q + i] = moments[kS2 * Q + i] = 0;
    moments[kMin * Q + i] = Limits<double>::kInfinity;
    moments[kMax * Q + i] = -Limits<double>::kInfinity;
  }
}

// An empty tally of one vector of rows: the fields that `level` uses, no others.
template <class S>
inline void clear_tally(TallyLevel level, bool with_logits, double* tally) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  if (level == TallyLevel::off) return;
  for (int i = 0; i < W; ++i) {
    tally[kOnes * Q + i] = tally[kRest * Q + i] = 0;
    tally[kVisible * Q + i] = tally[kStandIns * Q + i] = 0;
    tally[kSecond * Q + i] = -Limits<double>::kInfinity;
  }
  if (level >= TallyLevel::core) {
    for (int i = 0; i < W; ++i) tally[kRestT * Q + i] = tally[kRestE2 * Q + i] = 0;
    clear_moments<S>(tally + kScoreMoments * Q);
    if (with_logits) clear_moments<S>(tally + kLogitMoments * Q);
  }
  if (level == TallyLevel::full) {
    for (int i = 0; i < W; ++i) {
      tally[kRestT2 * Q + i] = tally[kRestE3 * Q + i] = 0;
      tally[kArgmax * Q + i] = kNoKey;
    }
    if (with_logits)
      for (int i = 0; i < W; ++i)
        tally[kDriveShift * Q + i] = tally[kDrive * Q + i] = tally[kDriveT * Q + i] = 0;
  }
}

// Raises the maximum of one vector of rows from old_max to new_max; factor = e^(old_max - new_max).
template <class S>
inline void raise_max(TallyLevel level, bool with_logits, double* __restrict tally,
                      const typename S::T* old_max, const typename S::T* new_max,
                      const typename S::T* factor) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  using D = Simd<double>;
  for (int i = 0; i < W; i += D::kLanes) {
    double* at = tally + i;
    const auto field = [&](int f) { return D::load_any(at + f * Q); };
    const auto put = [&](int f, D::Vec x) { D::store_any(at + f * Q, x); };
    const D::Vec seen = field(kOnes);
    const D::Mask every = D::equal(D::zero(), D::zero());
    // Nothing to move, as in the first block of a split.
    if (!D::any(D::first_only(every, D::equal(seen, D::zero())))) continue;
    const D::Vec old = D::load_widened(old_max + i);
    const D::Vec gap = D::sub(D::load_widened(new_max + i), old);
    const D::Mask raised = D::less(D::zero(), gap);
    // An empty tally has nothing to move; its gap may be infinite. Beyond 745 the factor is 0 and
    // the clamp only keeps 0 * infinity away.
    const D::Vec d = D::select(raised, D::min(gap, D::set(745)), D::zero());
    const D::Vec r = D::select(raised, D::load_widened(factor + i), D::set(1));
    const D::Vec joining = D::select(raised, seen, D::zero());
    const D::Vec u = D::add(field(kRest), joining);
    put(kRest, D::mul(r, u));
    put(kOnes, D::sub(seen, joining));
    put(kSecond, D::select(D::less(D::zero(), joining), old, field(kSecond)));
    if (level < TallyLevel::core) continue;
    const D::Vec t = field(kRestT), du = D::mul(d, u);
    put(kRestT, D::mul(r, D::sub(t, du)));
    put(kRestE2, D::mul(D::mul(r, r), D::add(field(kRestE2), joining)));
    if (level < TallyLevel::full) continue;
    const D::Vec moved = D::mul(d, D::sub(du, D::add(t, t)));
    put(kRestT2, D::mul(r, D::add(field(kRestT2), moved)));
    put(kRestE3, D::mul(D::mul(D::mul(r, r), r), D::add(field(kRestE3), joining)));
    put(kArgmax, D::select(raised, D::set(kNoKey), field(kArgmax)));
    if (!with_logits) continue;
    const D::Vec w = field(kDrive);
    put(kDrive, D::mul(r, w));
    put(kDriveT, D::mul(r, D::sub(field(kDriveT), D::mul(d, w))));
  }
}

// Fields of a tally, read by lanes [lane, lane + D::kLanes) of one vector of rows.
template <class S>
struct TallyLanes {
  const double* at;
  Simd<double>::Vec operator()(int field, int lane) const {
    return Simd<double>::load_any(at + field * kQueries<S> + lane);
  }
};

// Joins `from`, fields by lanes, into `to`, both already relative to one maximum, for one vector of
// rows.
template <class S, class From>
POISE_INLINE void add_fields(TallyLevel level, bool with_logits, double* __restrict to,
                             const From& from) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  using D = Simd<double>;
  using Vec = D::Vec;
  for (int i = 0; i < W; i += D::kLanes) {
    double* at = to + i;
    const auto ours = [&](int f) { return D::load_any(at + f * Q); };
    const auto put = [&](int f, Vec x) { D::store_any(at + f * Q, x); };
    const auto sum = [&](int f) { put(f, D::add(ours(f), from(f, i))); };
    if (level >= TallyLevel::core) {
      const Vec n_to = D::sub(ours(kVisible), ours(kStandIns));
      const Vec n_from = D::sub(from(kVisible, i), from(kStandIns, i));
      for (int m = kScoreMoments; m <= (with_logits ? kLogitMoments : kScoreMoments);
           m += kLogitMoments - kScoreMoments) {
        const Vec theirs = from(m + kShift, i), s1 = from(m + kS1, i);
        // An empty side takes the other's shift.
        const Vec shift = D::select(D::equal(n_to, D::zero()), theirs, ours(m + kShift));
        const Vec h = D::select(D::equal(n_from, D::zero()), D::zero(), D::sub(theirs, shift));
        const Vec nh = D::mul(n_from, h), twice = D::add(s1, s1);
        put(m + kShift, shift);
        put(m + kS2, D::add(ours(m + kS2), D::fma(h, D::add(twice, nh), from(m + kS2, i))));
        put(m + kS1, D::add(ours(m + kS1), D::add(s1, nh)));
        put(m + kMin, D::min(from(m + kMin, i), ours(m + kMin)));
        put(m + kMax, D::max(from(m + kMax, i), ours(m + kMax)));
      }
      sum(kRestT);
      sum(kRestE2);
    }
    if (level == TallyLevel::full && with_logits) {
      // As with the moments, an empty side takes the other's shift; here stand-ins count.
      const Vec e_to = D::add(ours(kOnes), ours(kRest));
      const Vec e_from = D::add(from(kOnes, i), from(kRest, i)), theirs = from(kDriveShift, i);
      const Vec shift = D::select(D::equal(e_to, D::zero()), theirs, ours(kDriveShift));
      const Vec h = D::select(D::equal(e_from, D::zero()), D::zero(), D::sub(theirs, shift));
      put(kDriveShift, shift);
      put(kDriveT, D::add(ours(kDriveT), D::fma(h, from(kRestT, i), from(kDriveT, i))));
      put(kDrive, D::add(ours(kDrive), D::fma(h, e_from, from(kDrive, i))));
    }
    if (level == TallyLevel::full) {
      sum(kRestT2);
      sum(kRestE3);
      put(kArgmax, D::min(from(kArgmax, i), ours(kArgmax)));
    }
    sum(kOnes);
    sum(kRest);
    sum(kVisible);
    sum(kStandIns);
    put(kSecond, D::max(from(kSecond, i), ours(kSecond)));
  }
}

// The same for two tallies.
template <class S>
inline void add_tally(TallyLevel level, bool with_logits, double* __restrict to,
                      const double* __restrict from) {
  add_fields<S>(level, with_logits, to, TallyLanes<S>{from});
}

// What moments of one vector over one block are taken of.
template <class S>
struct MomentKeys {
  using T = typename S::T;
  int64_t begin, end;
  const T* values;  // scores or logits [key][query], at the vector
  const T* extra;   // bias tile at the vector, null = none
  T stand_in_bias;
  T unseen;  // what a key that nobody sees holds; NaN = no value says so
  const BlockView<S>* view;
  int vector;
};

// Lanes that count at key j, whose value there is x: visible by position and extra, and neither
// unseen nor a stand-in for it.
template <class S, bool kMasked>
POISE_INLINE typename S::Mask counted_lanes(const MomentKeys<S>& keys, int64_t j,
                                            typename S::Vec x) {
  typename S::Mask counted = S::equal(S::zero(), S::zero());
  if constexpr (kMasked) {
    counted = S::first_only(counted, S::equal(x, S::set(keys.unseen)));
    if (keys.view->partial)
      counted = S::both(counted, sees_by_position<S>(*keys.view, keys.vector, j));
    if (keys.extra != nullptr) {
      const typename S::Vec e = S::load(keys.extra + j * kQueries<S>);
      counted = S::first_only(counted, S::less_equal(e, S::set(keys.stand_in_bias)));
    }
  }
  return counted;
}

// What moments of one vector are shifted by. `known` holds a part's shifts, NaN where no key has
// counted yet: such a lane takes the mean of this block, if some key counts there.
template <class S, bool kMasked>
inline typename S::Vec moment_shift(const MomentKeys<S>& keys, typename S::T* known) {
  using Vec = typename S::Vec;
  const Vec shift = S::load(known);
  const typename S::Mask has = S::equal(shift, shift);
  if (!S::any(S::first_only(S::equal(S::zero(), S::zero()), has))) return shift;
  // Several chains of sums, since one would wait for itself: which one a key joins depends on
  // nothing but its place in the block.
  constexpr int kChains = 4;
  Vec sum[kChains], count[kChains];
  POISE_UNROLL(4)
  for (int c = 0; c < kChains; ++c) sum[c] = count[c] = S::zero();
  for (int64_t first = keys.begin / kChains * kChains; first < keys.end; first += kChains) {
    POISE_UNROLL(4)
    for (int c = 0; c < kChains; ++c) {
      const int64_t j = first + c;
      if (j < keys.begin || j >= keys.end) continue;
      const Vec x = S::load(keys.values + j * kQueries<S>);
      const typename S::Mask counted = counted_lanes<S, kMasked>(keys, j, x);
      sum[c] = S::add_where(counted, sum[c], x);
      count[c] = S::add_where(counted, count[c], S::set(1));
    }
  }
  POISE_UNROLL(4)
  for (int c = 1; c < kChains; ++c) {
    sum[0] = S::add(sum[0], sum[c]);
    count[0] = S::add(count[0], count[c]);
  }
  const typename S::Mask counts = S::less(S::zero(), count[0]);
  const Vec mean = S::div(sum[0], S::max(count[0], S::set(1)));
  // A mean that is NaN belongs to a row without moments.
  const Vec found = S::select(has, shift, S::select(counts, mean, shift));
  S::store(known, found);
  return S::select(S::equal(found, found), found, S::zero());
}

// Five rows of lanes, as a tally stores them: shift, S1, S2, min, max.
template <class S>
POISE_INLINE void store_moments(typename S::T* out, typename S::Vec shift, typename S::Vec s1,
                                typename S::Vec s2, typename S::Vec low, typename S::Vec high) {
  S::store(out + kShift * S::kLanes, shift);
  S::store(out + kS1 * S::kLanes, s1);
  S::store(out + kS2 * S::kLanes, s2);
  S::store(out + kMin * S::kLanes, low);
  S::store(out + kMax * S::kLanes, high);
}

// The moments of one vector over one block, of the keys that count; `known` as for moment_shift.
template <class S>
inline void block_moments(const MomentKeys<S>& keys, typename S::T* known, typename S::T* out) {
  using Vec = typename S::Vec;
  const Vec shift = moment_shift<S, true>(keys, known);
  Vec s1 = S::zero(), s2 = S::zero();
  Vec low = S::set(Limits<typename S::T>::kInfinity);
  Vec high = S::set(-Limits<typename S::T>::kInfinity);
  POISE_UNROLL(4)
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const Vec x = S::load(keys.values + j * kQueries<S>);
    const typename S::Mask counted = counted_lanes<S, true>(keys, j, x);
    const Vec d = S::select(counted, S::sub(x, shift), S::zero());
    low = S::min(S::select(counted, x, low), low);
    high = S::max(S::select(counted, x, high), high);
    s1 = S::add(s1, d);
    s2 = S::fma(d, d, s2);
  }
  store_moments<S>(out, shift, s1, s2, low, high);
}

}  // namespace poise::POISE_NAMESPACE
