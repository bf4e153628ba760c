// Accuracy: errors against a wider arithmetic, judged by those of the plain computation.
//
// The rule of docs/semantics.md, "Accuracy": per dtype, pooled over 16 seeds, rms error at most 1.1
// times that of the plain materialised computation in the same dtype, largest error at most 3
// times; here for each spread and length by itself. And the bounds of exp and tanh.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "isa/dispatch.h"
#include "support/bounds.h"
#include "support/isa.h"

namespace poise::test {
namespace {

constexpr double kRmsRatio = 1.1, kLargestRatio = 3;
constexpr int kSeeds = 16;

struct Errors {
  double squares = 0, largest = 0;

  void add(double error) {
    squares += error * error;
    largest = std::max(largest, std::fabs(error));
  }
};

// One seed's truth and the plain computation's errors, shared by all instruction sets.
template <class Truth>
struct Sample {
  Problem problem;
  ReferenceResult<Truth> truth;
};

template <class Truth>
void add_errors(Errors& out, Errors& lse, const ReferenceResult<Truth>& truth,
                const std::vector<double>& got_out, const std::vector<double>& got_lse) {
  for (std::size_t n = 0; n < got_out.size(); ++n)
    out.add(static_cast<double>(static_cast<Truth>(got_out[n]) - truth.out[n]));
  for (std::size_t n = 0; n < got_lse.size(); ++n)
    lse.add(static_cast<double>(static_cast<Truth>(got_lse[n]) - truth.lse[n]));
}

// Plain computes in T, Truth judges it and the kernels.
template <class Plain, class Truth>
void check_accuracy(DType dtype, std::int64_t kv_len, double spread) {
  std::vector<Sample<Truth>> samples;
  Errors plain_out, plain_lse;
  for (int seed = 0; seed < kSeeds; ++seed) {
    // Head dim 64: the default scale is exact, so it adds no error of its own.
    const std::int64_t rows = kv_len < 1000 ? 64 : 16;
    Problem p = make_problem({1, 1, 1, rows, kv_len, 64, 64}, dtype,
                             static_cast<std::uint64_t>(900 + seed), spread);
    const ReferenceResult<Plain> plain = reference_of<Plain>(p);
    samples.push_back({p, reference_of<Truth>(p)});
    add_errors(plain_out, plain_lse, samples.back().truth,
               std::vector<double>(plain.out.begin(), plain.out.end()),
               std::vector<double>(plain.lse.begin(), plain.lse.end()));
  }
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    Errors out, lse;
    for (const Sample<Truth>& sample : samples) {
      const Outputs o = run(sample.problem);
      ASSERT_FALSE(o.error) << o.error.message();
      add_errors(out, lse, sample.truth, o.out.values(), o.lse.values());
    }
    const std::string when = isa + ' ' + name(dtype) + " Lk=" + std::to_string(kv_len) +
                             " spread=" + std::to_string(spread);
    EXPECT_LE(std::sqrt(out.squares), kRmsRatio * std::sqrt(plain_out.squares)) << "out " << when;
    EXPECT_LE(std::sqrt(lse.squares), kRmsRatio * std::sqrt(plain_lse.squares)) << "lse " << when;
    EXPECT_LE(out.largest, kLargestRatio * plain_out.largest) << "out " << when;
    EXPECT_LE(lse.largest, kLargestRatio * plain_lse.largest) << "lse " << when;
  }
}

TEST(accuracy, f32_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 131, 1091})
    for (double spread : {0.05, 0.3, 1.0, 3.0, 10.0, 30.0})
      check_accuracy<float, double>(DType::f32, kv_len, spread);
}

TEST(accuracy, f64_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 131, 1091})
    for (double spread : {0.05, 0.3, 1.0, 3.0, 10.0, 30.0})
      check_accuracy<double, long double>(DType::f64, kv_len, spread);
}

// What one dtype's exp and tanh promise.
template <class T>
struct Promise;
template <>
struct Promise<float> {
  static constexpr double kUnit = 0x1p-24, kCut = -100;
  static const KernelSet& set(const Kernels& kernels) { return kernels.f32; }
};
template <>
struct Promise<double> {
  static constexpr double kUnit = 0x1p-53, kCut = -1000;
  static const KernelSet& set(const Kernels& kernels) { return kernels.f64; }
};

const Kernels& kernels_of(const std::string& isa) {
  const Kernels* kernels = find_kernels(isa.c_str());
  if (kernels == nullptr) throw std::runtime_error("no kernels for " + isa);
  return *kernels;
}

// Arguments all over (cut, 0], dense near 0, in the order given to the kernel.
template <class T>
std::vector<T> arguments(double lowest) {
  std::vector<T> t = {T(0), -T(0)};
  Rng rng(31);
  for (int n = 0; n < 100001; ++n) {
    const double u = rng.uniform();
    t.push_back(static_cast<T>(n % 2 == 0 ? lowest * u : -std::exp2(-40 * u)));
  }
  return t;
}

template <class T>
void check_exp(const std::string& isa) {
  const double cut = Promise<T>::kCut * std::log(2.0);
  std::vector<T> t = arguments<T>(1.2 * cut), e(t.size());
  Promise<T>::set(kernels_of(isa)).exp(t.data(), e.data(), static_cast<std::int64_t>(t.size()));
  EXPECT_EQ(e[0], T(1));
  EXPECT_EQ(e[1], T(1));
  for (std::size_t n = 0; n < t.size(); ++n) {
    const double x = static_cast<double>(t[n]);
    constexpr double kEdge = 1e-6;  // relative width in which rounding decides the side of the cut
    if (x < cut * (1 + kEdge)) {
      ASSERT_EQ(e[n], T(0)) << isa << " exp(" << x << ") below the cut";
    } else if (x > cut * (1 - kEdge)) {
      const long double truth = std::exp(static_cast<long double>(t[n]));
      const auto error = static_cast<double>((static_cast<long double>(e[n]) - truth) / truth);
      ASSERT_LE(std::fabs(error), (1.25 * std::fabs(x) + 3) * Promise<T>::kUnit)
          << isa << " exp(" << x << ")";
    }
  }
  const T special[] = {-std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
                       std::numeric_limits<T>::lowest()};
  T result[3];
  Promise<T>::set(kernels_of(isa)).exp(special, result, 3);
  EXPECT_EQ(result[0], T(0));
  EXPECT_TRUE(std::isnan(result[1]));
  EXPECT_EQ(result[2], T(0));
}

TEST(accuracy, exp_is_within_its_bound_and_exactly_zero_below_the_cut) {
  for (const std::string& isa : available_isas()) {
    check_exp<float>(isa);
    check_exp<double>(isa);
  }
}

template <class T>
void check_tanh(const std::string& isa) {
  std::vector<T> x = arguments<T>(-25), y;
  for (std::size_t n = 1; n < x.size(); n += 2) x[n] = -x[n];  // both signs
  x.push_back(std::numeric_limits<T>::infinity());
  x.push_back(-std::numeric_limits<T>::infinity());
  x.push_back(std::numeric_limits<T>::quiet_NaN());
  y.resize(x.size());
  Promise<T>::set(kernels_of(isa)).tanh(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  // (1 - e) / (1 + e) at |x| = 0.625 carries 2.8 u from e and four roundings.
  constexpr double kTanhUnits = 6;
  for (std::size_t n = 0; n + 3 < x.size(); ++n) {
    const long double truth = std::tanh(static_cast<long double>(x[n]));
    const auto error = static_cast<double>(static_cast<long double>(y[n]) - truth);
    ASSERT_LE(std::fabs(error),
              kTanhUnits * Promise<T>::kUnit * std::fabs(static_cast<double>(truth)))
        << isa << " tanh(" << static_cast<double>(x[n]) << ")";
    ASSERT_LE(std::fabs(y[n]), T(1));
  }
  EXPECT_EQ(y[y.size() - 3], T(1));
  EXPECT_EQ(y[y.size() - 2], T(-1));
  EXPECT_TRUE(std::isnan(y[y.size() - 1]));
}

TEST(accuracy, tanh_is_within_its_bound_and_reaches_one) {
  for (const std::string& isa : available_isas()) {
    check_tanh<float>(isa);
    check_tanh<double>(isa);
  }
}

}  // namespace
}  // namespace poise::test
