// Accuracy: errors against a wider arithmetic, judged by those of the plain computation, and the
// bounds of exp and tanh.
//
// The rule of docs/semantics.md, "Accuracy", at a few lengths; accuracy_slow_test.cpp has all.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "isa/dispatch.h"
#include "support/accuracy.h"
#include "support/isa.h"
#include "support/rng.h"

namespace poise::test {
namespace {

TEST(accuracy, f32_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 131, 1091}) check_accuracy(DType::f32, kv_len, kSpreads);
}

TEST(accuracy, f64_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 131, 577}) check_accuracy(DType::f64, kv_len, kSpreads);
}

TEST(accuracy, f16_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 1091}) check_accuracy(DType::f16, kv_len, {0.05, 1, 30});
}

TEST(accuracy, bf16_errors_are_those_of_the_plain_computation_at_most) {
  for (std::int64_t kv_len : {17, 1091}) check_accuracy(DType::bf16, kv_len, {0.05, 1, 30});
}

// Every 1013th; accuracy_slow_test.cpp takes every float.
TEST(accuracy, softcapped_errors_are_those_of_the_plain_computation_at_most) {
  for (double softcap : {5, 20, 50}) {
    check_accuracy(DType::f32, 131, kSpreads, softcap);
    check_accuracy(DType::f64, 131, kSpreads, softcap);
  }
}

TEST(accuracy, exp2_is_within_2_ulp_over_its_range) { check_exp_over_floats(1013); }

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
  // At |x| = 0.625 e has 4.6 u of its own, which 2 e / (1 + e) = 0.45 passes on as 2.2 u with its
  // two roundings; with that of the difference, 2.7 u of 0.55.
  constexpr double kTanhUnits = 5;
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
