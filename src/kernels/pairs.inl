// Backward's step from logits and dP to weights and d dots, one vector of queries at a time.
//
//   P = e^(logits - row_max) / row_sum,  dS = P (dP - delta + dlse)
//   dD = scale cap' dS,  cap' = 4 e / (1 + e)^2,  e = e^(-2 |scores / softcap|)
// and, where asked for, the sums over keys that transmission, d scale and d slope are made of. In:
// tiles [key][kQueries] of logits and dP, numbers per row. Out: the same tiles, P and dD in place.
// Transmission is of the softmax over keys: with u = c (dP - a), sent = |dP - mean|^2 and arrived =
// |p (dP - sum p dP)|^2 / (sum p)^2 follow from sums of u, u^2 and (p u)^2 (read_transmission).
// A pair that is not seen has 0 in both, whatever its memory holds.

namespace poise::POISE_NAMESPACE {

// Sums over the keys of a row, one row of lanes each, in double.
enum GradientField : int {
  kDScale,
  kDSlope,
  kKeys,    // n: visible keys less stand-ins for -inf
  kU,       // sum of u over these
  kU2,      // sum of u^2
  kPu2,     // sum of (p u)^2
  kShare,   // sum of p over all visible keys: what the sink leaves
  kShareU,  // sum of p u over all visible keys
  kP2,      // sum of p^2
  kP2u,     // sum of p^2 u
  kGradientFields,
};

// How rows are measured. `centred`: u = dP - delta and p u = dS are there anyway. `shifted`: delta
// is only near sum p dP, because a sink takes part in it or out has lost digits to 16 bits, dS
// holds dlse, keys may stand in for -inf, or squares of u could vanish: then c is a power of two
// near 1 / |dout|, a is delta without its sink, and the sums from kShare on find its true place.
enum class Measure { none, centred, shifted };

// How the pairs of one vector of queries become P and dD.
template <class S>
struct PairJob {
  using Vec = typename S::Vec;
  int64_t begin, end;
  Vec max, inverse, delta, dlse, scale;
  // Where d scale or d slope is wanted or scores are capped:
  const typename S::T *dots, *factor;  // null = not wanted, not capped
  bool want_slope;
  Vec distance;  // query position minus key position, at the first key
  double* sums;  // [kGradientFields][kQueries], of the vector's first lane
  // Where rows are measured by shifted sums: u = measure_scale dP + measure_shift.
  Vec measure_scale, measure_shift;
  const typename S::T* bias;  // null = no key is a stand-in
  typename S::T stand_in_bias;
};

template <class S>
inline void add_to_sums(double* sums, int field, typename S::Vec x) {
  constexpr int W = S::kLanes;
  alignas(64) typename S::T lanes[W];
  S::store(lanes, x);
  double* to = sums + field * kQueries<S>;
  for (int i = 0; i < W; ++i) to[i] += static_cast<double>(lanes[i]);
}

// The sums of one vector over one block.
template <class S, Unseen kUnseen, Measure kMeasure>
struct MeasuredPairs {
  using Vec = typename S::Vec;
  Vec keys, u1, u2, pu2, share, share_u, p2, p2u;

  // Written out, since clang gives a constructor that it makes itself no instruction set.
  POISE_INLINE MeasuredPairs() { keys = u1 = u2 = pu2 = share = share_u = p2 = p2u = S::zero(); }

  // A key: weight and dS, 0 where hidden, dP, and dP - delta + dlse.
  POISE_INLINE void add(const PairJob<S>& job, int64_t j, typename S::Mask hidden, Vec p, Vec ds,
                        Vec dp, Vec above) {
    if constexpr (kMeasure == Measure::none) return;
    constexpr bool kCentred = kMeasure == Measure::centred;
    Vec u = kCentred ? above : S::fma(dp, job.measure_scale, job.measure_shift), one = S::set(1);
    if constexpr (kUnseen != Unseen::none) {
      u = S::select(hidden, S::zero(), u);
      one = S::select(hidden, S::zero(), one);
    }
    Vec pu = kCentred ? ds : S::mul(p, u);
    if constexpr (!kCentred) {
      share = S::add(share, p);
      share_u = S::add(share_u, pu);
      if (kUnseen != Unseen::none && job.bias != nullptr) {
        const typename S::Mask left_out =
            S::less_equal(S::load(job.bias + j * kQueries<S>), S::set(job.stand_in_bias));
        u = S::select(left_out, S::zero(), u);
        pu = S::select(left_out, S::zero(), pu);
        p = S::select(left_out, S::zero(), p);
        one = S::select(left_out, S::zero(), one);
      }
      p2 = S::fma(p, p, p2);
      p2u = S::fma(p, pu, p2u);
    }
    if constexpr (kUnseen != Unseen::none) keys = S::add(keys, one);
    u1 = S::add(u1, u);
    u2 = S::fma(u, u, u2);
    pu2 = S::fma(pu, pu, pu2);
  }

  void add_to(const PairJob<S>& job) const {
    if constexpr (kMeasure == Measure::none) return;
    add_to_sums<S>(
        job.sums, kKeys,
        kUnseen == Unseen::none ? S::set(static_cast<typename S::T>(job.end - job.begin)) : keys);
    add_to_sums<S>(job.sums, kU, u1);
    add_to_sums<S>(job.sums, kU2, u2);
    add_to_sums<S>(job.sums, kPu2, pu2);
    if constexpr (kMeasure == Measure::centred) return;
    add_to_sums<S>(job.sums, kShare, share);
    add_to_sums<S>(job.sums, kShareU, share_u);
    add_to_sums<S>(job.sums, kP2, p2);
    add_to_sums<S>(job.sums, kP2u, p2u);
  }
};

// n, sent and arrived of one row from its sums; shifted ones were gathered at `scale`. A row of
// which the sink leaves less than `least_share` to the keys has lost their digits and counts as
// without keys.
POISE_INLINE void read_transmission(const double* sums, int64_t stride, Measure measure,
                                    double scale, double least_share, RowGradient* row) {
  const auto sum = [&](GradientField field) { return sums[field * stride]; };
  const double n = sum(kKeys);
  if (n < 1) return;
  double unit = 1, sent = sum(kU2) - sum(kU) * sum(kU) / n, arrived = sum(kPu2);
  if (measure == Measure::shifted) {
    const double share = sum(kShare), off = sum(kShareU) / share;
    if (share < least_share) return;
    arrived = (arrived + off * (off * sum(kP2) - 2 * sum(kP2u))) / (share * share);
    unit = 1 / (scale * scale);
  }
  // Rounding may leave a difference of squares below 0; a NaN stays.
  row->keys = n;
  row->sent_squares = (sent < 0 ? 0 : sent) * unit;
  row->arrived_squares = (arrived < 0 ? 0 : arrived) * unit;
}

// Logits and dP become P and dD in place. kMeasure gathers what transmission needs; kGeneral minds
// the softcap and what d scale and d slope need.
template <class S, Unseen kUnseen, Measure kMeasure, bool kGeneral>
inline void weigh_pairs(const PairJob<S>& job, typename S::T* logits, typename S::T* dp) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  const Vec unseen = S::set(-Limits<T>::kInfinity);
  const Vec shift = S::sub(job.delta, job.dlse);
  MeasuredPairs<S, kUnseen, kMeasure> measured;
  Vec dscale = S::zero(), dslope = S::zero();
  POISE_UNROLL(2)
  for (int64_t j = job.begin; j < job.end; ++j) {
    T* at = logits + j * kQueries<S>;
    T* gradient = dp + j * kQueries<S>;
    const Vec s = S::load(at);
    Vec p = S::mul(exp<S>(S::sub(s, job.max)), job.inverse);
    const Vec raw = S::load(gradient);
    const Vec above = S::sub(raw, shift);
    Vec ds = S::mul(p, above);
    typename S::Mask hidden{};
    if constexpr (kUnseen != Unseen::none) {
      hidden = S::equal(s, unseen);
      p = S::select(hidden, S::set(kUnseen == Unseen::marked ? T(-0.0) : T(0)), p);
      ds = S::select(hidden, S::zero(), ds);
    }
    S::store(at, p);
    measured.add(job, j, hidden, p, ds, raw, above);
    if constexpr (kGeneral) {
      if (job.want_slope) {
        const Vec away = S::abs(S::sub(job.distance, S::set(static_cast<T>(j))));
        dslope = S::fma(ds, away, dslope);
      }
      if (job.factor != nullptr) {
        const Vec capped = S::mul(ds, S::load(job.factor + j * kQueries<S>));
        ds = kUnseen == Unseen::none ? capped : S::select(hidden, S::zero(), capped);
      }
      if (job.dots != nullptr) {
        const Vec part = S::mul(ds, S::load(job.dots + j * kQueries<S>));
        dscale =
            S::add(dscale, kUnseen == Unseen::none ? part : S::select(hidden, S::zero(), part));
      }
    }
    S::store(gradient, S::mul(ds, job.scale));
  }
  measured.add_to(job);
  if constexpr (kGeneral) {
    add_to_sums<S>(job.sums, kDScale, dscale);
    add_to_sums<S>(job.sums, kDSlope, S::sub(S::zero(), dslope));
  }
}

template <class S, Unseen kUnseen, Measure kMeasure>
inline void weigh_pairs_by(const PairJob<S>& job, bool general, typename S::T* logits,
                           typename S::T* dp) {
  if (general) return weigh_pairs<S, kUnseen, kMeasure, true>(job, logits, dp);
  weigh_pairs<S, kUnseen, kMeasure, false>(job, logits, dp);
}

template <class S, Unseen kUnseen>
inline void weigh_pairs_at(const PairJob<S>& job, Measure measure, bool general,
                           typename S::T* logits, typename S::T* dp) {
  switch (measure) {
    case Measure::none:
      return weigh_pairs_by<S, kUnseen, Measure::none>(job, general, logits, dp);
    case Measure::centred:
      return weigh_pairs_by<S, kUnseen, Measure::centred>(job, general, logits, dp);
    case Measure::shifted:
      return weigh_pairs_by<S, kUnseen, Measure::shifted>(job, general, logits, dp);
  }
}

// Copies keys [begin, end) of one vector and scales them: dots stay, scores are left.
template <class S>
inline void scale_dots(typename S::Vec scale, int64_t begin, int64_t end, typename S::T* scores,
                       typename S::T* dots) {
  for (int64_t j = begin; j < end; ++j) {
    const typename S::Vec x = S::load(scores + j * kQueries<S>);
    S::store(dots + j * kQueries<S>, x);
    S::store(scores + j * kQueries<S>, S::mul(scale, x));
  }
}

// The position of each lane's query less that of the block's first key.
template <class S>
inline typename S::Vec lane_distances(const ForwardTask& problem, int64_t row, int64_t key) {
  alignas(64) typename S::T start[S::kLanes];
  for (int64_t i = 0; i < S::kLanes; ++i)
    start[i] = static_cast<typename S::T>(static_cast<double>(row + i - key) + problem.diagonal);
  return S::load(start);
}

}  // namespace poise::POISE_NAMESPACE
