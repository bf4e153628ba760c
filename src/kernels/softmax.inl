// exp and tanh: the only transcendental functions of the kernels, one definition for every use.
//
//   exp(t)  = 2^x, x = t * log2(e) rounded once; 2^x = 2^floor(x) * P(x - floor(x)); exactly 0 for
//             x under the cut (2^-100, f64 2^-1000), NaN for NaN; exp(0) is exactly 1.
//   tanh(x) = x + x^3 R(x^2) for |x| < 0.625, else sign(x) (1 - 2 e / (1 + e)), e = exp(-2|x|),
//             where what is rounded before the last step is smaller than the result.
//
// P and R are minimax polynomials computed for this file with a Remez exchange in 50 digits:
// P on [0, 1), P(0) = 1, relative error 2.0e-9 (f64 4.3e-20); R on [0, 0.390625], relative error of
// tanh 1.6e-10 (f64 3.7e-19). Rounding dominates: tests/accuracy_test.cpp holds the bounds.

namespace poise::POISE_NAMESPACE {

template <class T>
struct ExpTable;

template <>
struct ExpTable<float> {
  static constexpr float kLog2E = 1.4426950408889634f;
  static constexpr float kCut = -100.0f;
  static constexpr int kTerms = 6;
  static constexpr float kPower[kTerms] = {0.6931470444f,   0.2402293056f,   0.05548528061f,
                                           0.009675451594f, 0.001246784617f, 0.0002161291594f};
  static constexpr int kTanhTerms = 6;
  static constexpr float kTanh[kTanhTerms] = {-0.33333330802723515f,  0.13333206008151463f,
                                              -0.05394676304167485f,  0.021700703143668225f,
                                              -0.008177398099536414f, 0.002142961751477318f};
};

template <>
struct ExpTable<double> {
  static constexpr double kLog2E = 1.4426950408889634;
  static constexpr double kCut = -1000.0;
  static constexpr int kTerms = 12;
  static constexpr double kPower[kTerms] = {
      0.6931471805599453,     0.2402265069591014,     0.055504108664804847,
      0.009618129107833552,   0.0013333558131766214,  0.000154035310579777,
      1.5252713800870717e-05, 1.3215895711171486e-06, 1.0172390669003333e-07,
      7.107974099040497e-09,  4.1311302836441256e-10, 3.6192703272502765e-11};
  static constexpr int kTanhTerms = 12;
  static constexpr double kTanh[kTanhTerms] = {
      -0.33333333333333315,  0.13333333333329742,   -0.0539682539660589,    0.021869488468715125,
      -0.008863234312572573, 0.0035921139998080537, -0.0014557259476144103, 0.0005894517970577491,
      -0.000237011725099238, 9.155840329971466e-05, -3.018721237864615e-05, 6.0424649187413505e-06};
};

// 2^x for x <= 0 (or NaN).
template <class S>
POISE_INLINE typename S::Vec exp2(typename S::Vec x) {
  using Table = ExpTable<typename S::T>;
  const typename S::Vec u = S::fraction(x);
  typename S::Vec p = S::set(Table::kPower[Table::kTerms - 1]);
  POISE_UNROLL(16)
  for (int i = Table::kTerms - 2; i >= 0; --i) p = S::fma(p, u, S::set(Table::kPower[i]));
  p = S::fma(p, u, S::set(1));
  return S::scale_by_power(p, x, S::set(Table::kCut));
}

// e^t for t <= 0, -inf or NaN.
template <class S>
POISE_INLINE typename S::Vec exp(typename S::Vec t) {
  return exp2<S>(S::mul(t, S::set(ExpTable<typename S::T>::kLog2E)));
}

template <class S>
POISE_INLINE typename S::Vec tanh(typename S::Vec x) {
  using Table = ExpTable<typename S::T>;
  using Vec = typename S::Vec;
  const Vec size = S::abs(x);
  const Vec e = exp<S>(S::mul(size, S::set(-2)));
  const Vec one = S::set(1);
  const Vec far = S::with_sign_of(S::fma(S::set(-2), S::div(e, S::add(one, e)), one), x);
  // The square of a large |x| is not used; clamping keeps it finite.
  const Vec near_size = S::min(size, S::set(1));
  const Vec z = S::mul(near_size, near_size);
  Vec r = S::set(Table::kTanh[Table::kTanhTerms - 1]);
  POISE_UNROLL(16)
  for (int i = Table::kTanhTerms - 2; i >= 0; --i) r = S::fma(r, z, S::set(Table::kTanh[i]));
  const Vec near = S::fma(S::mul(x, z), r, x);
  return S::select(S::less(size, S::set(static_cast<typename S::T>(0.625))), near, far);
}

}  // namespace poise::POISE_NAMESPACE
