// Errors of the kernels and of the plain computation, pooled and compared; exp2 and exp at floats.
//
// In: sizes. Out: GoogleTest failures that name instruction set, dtype, length and spread. The
// truth never comes from the kernels: it is the definition, or the C library, in a wider type.
#include "support/accuracy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <thread>

#include "isa/dispatch.h"
#include "support/isa.h"
#include "support/problem.h"

namespace poise::test {
namespace {

constexpr int kSeeds = 16;

struct OutAndLse {
  Errors out, lse;

  template <class Truth>
  void add(const ReferenceResult<Truth>& truth, const std::vector<double>& got_out,
           const std::vector<double>& got_lse) {
    for (std::size_t n = 0; n < got_out.size(); ++n)
      out.add(static_cast<double>(static_cast<Truth>(got_out[n]) - truth.out[n]));
    for (std::size_t n = 0; n < got_lse.size(); ++n)
      lse.add(static_cast<double>(static_cast<Truth>(got_lse[n]) - truth.lse[n]));
  }
};

// Plain computes as the dtype does, Truth judges it and the kernels.
template <class Plain, class Truth>
void check_spread(DType dtype, std::int64_t kv_len, double spread, double softcap) {
  const std::vector<std::string> isas = available_isas();
  std::vector<OutAndLse> errors(isas.size());
  OutAndLse plain_errors;
  // Errors at a large spread come from the few rows with a close second: fewer rows would judge
  // chance.
  const std::int64_t rows = std::min<std::int64_t>(kv_len, 64);
  for (int seed = 0; seed < kSeeds; ++seed) {
    // Head dim 64: the default scale is exact, so it adds no error of its own.
    Problem p = make_problem({1, 1, 1, rows, kv_len, 64, 64}, dtype,
                             static_cast<std::uint64_t>(900 + seed), spread);
    p.options.softcap = softcap;
    const ReferenceResult<Plain> plain = reference_of<Plain>(p);
    const ReferenceResult<Truth> truth = reference_of<Truth>(p);
    plain_errors.add(truth, rounded(plain.out, dtype), rounded(plain.lse, p.number_dtype()));
    for (std::size_t n = 0; n < isas.size(); ++n) {
      const IsaScope scope(isas[n]);
      const Outputs o = run(p);
      ASSERT_FALSE(o.error) << o.error.message();
      errors[n].add(truth, o.out.values(), o.lse.values());
    }
  }
  for (std::size_t n = 0; n < isas.size(); ++n) {
    const std::string when = isas[n] + ' ' + name(dtype) + " Lk=" + std::to_string(kv_len) +
                             " spread=" + std::to_string(spread) +
                             " softcap=" + std::to_string(softcap);
    expect_within(errors[n].out, plain_errors.out, dtype, "out, " + when);
    // lse is never of 16 bits.
    expect_within(errors[n].lse, plain_errors.lse, DType::f32, "lse, " + when);
  }
}

// The largest error of exp2 in ulp and of exp in its own bound, and where.
struct Worst {
  double ulps = 0, share = 0;
  float ulps_at = 0, share_at = 0;

  void add(const Worst& other) {
    // A NaN counts, and stays.
    if (other.ulps > ulps || std::isnan(other.ulps)) ulps = other.ulps, ulps_at = other.ulps_at;
    if (other.share > share || std::isnan(other.share))
      share = other.share, share_at = other.share_at;
  }
};

// 2^-100 = e^-69.3147...; beyond it exp is 0 and another test's matter.
constexpr float kCutT = -69.31471f;
constexpr double kCutX = -100;
constexpr float kLog2E = std::numbers::log2e_v<float>;

double ulp_of(double truth) {
  constexpr std::uint64_t kExponent = 0x7ff0000000000000u;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(truth) & kExponent) * 0x1p-23;
}

// Arguments begin, begin + stride, ... below end, counted from -0 away from zero.
void look_at(std::int64_t begin, std::int64_t end, std::int64_t stride,
             const std::vector<const Kernels*>& sets, std::vector<Worst>& worst) {
  constexpr std::size_t kBatch = 4096;
  std::vector<float> t, result(kBatch);
  std::vector<double> power(kBatch), exponential(kBatch);
  for (std::int64_t n = begin; n < end;) {
    t.clear();
    for (; n < end && t.size() < kBatch; n += stride)
      t.push_back(std::bit_cast<float>(0x80000000u + static_cast<std::uint32_t>(n)));
    for (std::size_t i = 0; i < t.size(); ++i) {
      power[i] = std::exp2(static_cast<double>(t[i] * kLog2E));
      exponential[i] = std::exp(static_cast<double>(t[i]));
    }
    for (std::size_t s = 0; s < sets.size(); ++s) {
      sets[s]->f32.exp(t.data(), result.data(), static_cast<std::int64_t>(t.size()));
      for (std::size_t i = 0; i < t.size(); ++i) {
        const auto got = static_cast<double>(result[i]);
        const double ulps = std::fabs(got - power[i]) / ulp_of(power[i]);
        const double bound = (1.25 * std::fabs(static_cast<double>(t[i])) + 3) * 0x1p-24;
        const double share = std::fabs(got - exponential[i]) / (bound * exponential[i]);
        worst[s].add({ulps, share, t[i], t[i]});
      }
    }
  }
}

}  // namespace

void expect_within(const Errors& got, const Errors& plain, DType dtype, const std::string& when) {
  const double ratio = size_bytes(dtype) == 2 ? kRmsRatio16Bit : kRmsRatio;
  if (plain.count >= kFewestForRms) {
    EXPECT_LE(std::sqrt(got.squares), ratio * std::sqrt(plain.squares)) << "rms of " << when;
  }
  EXPECT_LE(got.largest, kLargestRatio * plain.largest) << "largest of " << when;
}

void check_accuracy(DType dtype, std::int64_t kv_len, const std::vector<double>& spreads,
                    double softcap) {
  for (double spread : spreads)
    if (dtype == DType::f64)
      check_spread<double, long double>(dtype, kv_len, spread, softcap);
    else
      check_spread<float, double>(dtype, kv_len, spread, softcap);
}

void check_exp_over_floats(std::int64_t stride) {
  const std::vector<std::string> isas = available_isas();
  std::vector<const Kernels*> sets;
  for (const std::string& isa : isas) sets.push_back(find_kernels(isa.c_str()));
  const std::int64_t count = (std::bit_cast<std::uint32_t>(kCutT) & 0x7fffffffu) + 1;
  ASSERT_GE(kCutT * kLog2E, kCutX);

  const auto threads = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::vector<Worst>> found(static_cast<std::size_t>(threads),
                                        std::vector<Worst>(sets.size()));
  std::vector<std::thread> pool;
  for (std::int64_t n = 0; n < threads; ++n)
    pool.emplace_back([&, n] {
      // Whole strides to each thread.
      const std::int64_t steps = (count + stride - 1) / stride;
      look_at(n * steps / threads * stride, std::min(count, (n + 1) * steps / threads * stride),
              stride, sets, found[static_cast<std::size_t>(n)]);
    });
  for (std::thread& thread : pool) thread.join();
  for (std::size_t s = 0; s < sets.size(); ++s) {
    Worst worst;
    for (const auto& part : found) worst.add(part[s]);
    EXPECT_LE(worst.ulps, 2) << isas[s] << ": exp2 for exp(" << worst.ulps_at << ")";
    EXPECT_LE(worst.share, 1) << isas[s] << ": exp(" << worst.share_at << "), over its bound";
    testing::Test::RecordProperty(isas[s] + "_exp2_ulps", std::to_string(worst.ulps));
    testing::Test::RecordProperty(isas[s] + "_exp_of_bound", std::to_string(worst.share));
  }
}

}  // namespace poise::test
