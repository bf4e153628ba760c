// f16 and bf16 inputs and outputs: conversion exact on the way in, to nearest even on the way out,
// on every instruction set; 16-bit calls are the f32 call on the widened inputs.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "poise/poise.h"
#include "support/isa.h"
#include "support/problem.h"
#include "support/rng.h"
#include "widen.h"

namespace poise::test {
namespace {

// One 16-bit format, its values and its rounding as the definition and the test tensors have them:
// in double, apart from the conversions under test.
class Format {
 public:
  explicit Format(DType format) : dtype(format), scratch_(format, Extents{1}) {}
  double widen(std::uint16_t bits) const {
    return dtype == DType::f16 ? poise::widen(f16{bits}) : poise::widen(bf16{bits});
  }
  double nearest(double x) {
    scratch_.set(0, x);
    return scratch_.at(0);
  }
  const DType dtype;

 private:
  TensorBuffer scratch_;
};

bool flushed(double x) {
  return std::fabs(x) < static_cast<double>(std::numeric_limits<float>::min());
}

template <class Body>
void for_each_isa_and_format(const Body& body) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (DType dtype : {DType::f16, DType::bf16}) {
      Format format(dtype);
      SCOPED_TRACE(isa + " " + name(format.dtype));
      body(format);
    }
  }
}

ConstTensor as(ConstTensor tensor, DType dtype) {
  tensor.dtype = dtype;
  return tensor;
}

// out of one query of zeros over value rows [keys, Dv] in bits: the mean of the rows.
std::vector<std::uint16_t> mean_of(const std::vector<std::uint16_t>& value, std::int64_t keys,
                                   DType dtype) {
  const std::int64_t dim = static_cast<std::int64_t>(value.size()) / keys;
  const std::vector<std::uint16_t> zeros(static_cast<std::size_t>(keys), 0);
  std::vector<std::uint16_t> out(static_cast<std::size_t>(dim), 0xffff);
  const auto bits = [](const std::vector<std::uint16_t>& v, std::int64_t rows, std::int64_t columns,
                       DType d) {
    return as(view(reinterpret_cast<const f16*>(v.data()), {1, 1, rows, columns}), d);
  };
  Tensor target = view(reinterpret_cast<f16*>(out.data()), {1, 1, 1, dim});
  target.dtype = dtype;
  const Error error = attention(bits(zeros, 1, 1, dtype), bits(zeros, keys, 1, dtype),
                                bits(value, keys, dim, dtype), target);
  EXPECT_FALSE(error) << error.message();
  return out;
}

TEST(half, every_value_passes_through_one_visible_key_unchanged) {
  for_each_isa_and_format([](Format& format) {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const std::vector<std::uint16_t> out = mean_of(all, 1, format.dtype);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double in = format.widen(all[i]);
      if (std::isnan(in))
        EXPECT_TRUE(std::isnan(format.widen(out[i]))) << i;
      else if (in == 0 || flushed(in))  // -0 may come out as 0, subnormals count as 0
        EXPECT_EQ(out[i] & 0x7fff, 0) << i;
      else
        EXPECT_EQ(out[i], all[i]) << i;
    }
  });
}

// The mean of two values is exact in float32, so what is left is the rounding of out.
TEST(half, outputs_are_rounded_to_nearest_even) {
  for_each_isa_and_format([](Format& format) {
    constexpr std::size_t kPairs = 50000;
    Rng rng(11);
    std::vector<std::uint16_t> value(2 * kPairs);
    std::size_t compared = 0;
    for (std::size_t i = 0; i < kPairs; ++i) {
      // Neighbours make ties; far pairs make everything else.
      const auto first = static_cast<std::uint16_t>(rng.uniform() * 65536);
      const bool near = i % 2 == 0;
      value[i] = first;
      value[kPairs + i] =
          near
              ? static_cast<std::uint16_t>(first ^ 1U)
              : static_cast<std::uint16_t>(first ^ static_cast<std::uint16_t>(rng.uniform() * 255));
    }
    const std::vector<std::uint16_t> out = mean_of(value, 2, format.dtype);
    for (std::size_t i = 0; i < kPairs; ++i) {
      const double a = format.widen(value[i]), b = format.widen(value[kPairs + i]);
      const double mean = (a + b) / 2;
      // A sum beyond float32, and what counts as 0 because it is subnormal there, round otherwise.
      if (!std::isfinite(a) || !std::isfinite(b) || std::fabs(a + b) > 3.4e38 || flushed(a) ||
          flushed(b) || flushed(mean))
        continue;
      ++compared;
      EXPECT_EQ(format.widen(out[i]), format.nearest(mean)) << a << " and " << b;
    }
    EXPECT_GT(compared, kPairs * 4 / 5);
  });
}

TEST(half, a_16_bit_call_is_the_f32_call_on_widened_inputs) {
  for_each_isa_and_format([](Format& format) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Problem p = random_problem(seed, format.dtype);
      Problem wide = p;
      wide.dtype = DType::f32;
      for (TensorBuffer* t : {&wide.query, &wide.key, &wide.value}) *t = t->copied_as(DType::f32);
      const Outputs a = run(p), b = run(wide);
      ASSERT_FALSE(a.error) << a.error.message();
      ASSERT_FALSE(b.error) << b.error.message();
      for (std::int64_t n = 0; n < a.lse.count(); ++n) {
        if (std::isnan(b.lse.at(n))) continue;
        EXPECT_EQ(a.lse.at(n), b.lse.at(n)) << p.describe();
      }
      for (std::int64_t n = 0; n < a.out.count(); ++n) {
        if (std::isnan(b.out.at(n))) continue;
        EXPECT_EQ(a.out.at(n), format.nearest(b.out.at(n))) << p.describe();
      }
    }
  });
}

}  // namespace
}  // namespace poise::test
