// The softmax state of a row and its one merge: blocks, splits, sinks, threads and ranks all use
// it.
//
//   state = {m, l, o}: m the largest logit seen, l = sum exp(s - m), o = sum exp(s - m) v.
//   merge(a, b): m = max(ma, mb), alpha = exp(ma - m), beta = exp(mb - m),
//                l = beta lb + alpha la, o = beta ob + alpha oa   (one multiply, one fma each).
// Empty is l = 0; its m is the lowest finite number, so that no difference of maxima is NaN.
// Merging an empty state changes no bit: its factor is exp(lowest - m) = 0 or its l and o are 0.
// Rows with a +inf logit have m = +inf and l = NaN.

namespace poise::POISE_NAMESPACE {

template <class T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float kLowest = -3.402823466e+38f;
  static constexpr float kInfinity = __builtin_inff();
  static constexpr float kNaN = __builtin_nanf("");
};
template <>
struct Limits<double> {
  static constexpr double kLowest = -1.7976931348623157e+308;
  static constexpr double kInfinity = __builtin_inf();
  static constexpr double kNaN = __builtin_nan("");
};

template <class S>
struct MergeFactors {
  typename S::Vec max, alpha, beta;
};

template <class S>
POISE_INLINE MergeFactors<S> merge_factors(typename S::Vec max_a, typename S::Vec max_b) {
  const typename S::Vec m = S::max(max_a, max_b);
  return {m, exp<S>(S::sub(max_a, m)), exp<S>(S::sub(max_b, m))};
}

// alpha a + beta b, as every part of a state is joined.
template <class S>
POISE_INLINE typename S::Vec join(const MergeFactors<S>& f, typename S::Vec a, typename S::Vec b) {
  return S::fma(f.beta, b, S::mul(f.alpha, a));
}

// 1 / l, and 0 for a row without keys; NaN stays NaN.
template <class S>
POISE_INLINE typename S::Vec inverse_sum(typename S::Vec l) {
  return S::select(S::equal(l, S::zero()), S::zero(), S::div(S::set(1), l));
}

// ln of the denominator. Scalar: once per row, in double so that m + log(l) rounds once.
template <class T>
inline T log_sum_exp(T m, T l) {
  if (l == T(0)) return -Limits<T>::kInfinity;
  return static_cast<T>(static_cast<double>(m) + ::log(static_cast<double>(l)));
}

// The maximum of a state as callers see it: -inf where it is empty. Of -0 and +0, which are equal,
// it is +0: a maximum keeps the one it met first or last, by the kernel.
template <class T>
POISE_INLINE T seen_max(T m, T l) {
  return l == T(0) ? -Limits<T>::kInfinity : m + T(0);
}

// The largest logit as callers see it: -inf without keys, NaN when a NaN was visible, +inf when one
// was infinite.
template <class T>
inline T visible_max(T m, T l) {
  return l != l && m != Limits<T>::kInfinity ? l : seen_max(m, l);
}

}  // namespace poise::POISE_NAMESPACE
