// f16 and bf16 inputs and outputs: conversion exact on the way in, to nearest even on the way out,
// on every instruction set; 16-bit calls are the f32 call on the widened inputs.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/half.h"
#include "poise/poise.h"
#include "support/isa.h"
#include "support/problem.h"
#include "support/rng.h"

namespace poise::test {
namespace {

// One 16-bit format with its plain conversions.
struct Format {
  DType dtype;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};
const Format kFormats[] = {{DType::f16, widen_f16, narrow_f16},
                           {DType::bf16, widen_bf16, narrow_bf16}};

bool flushed(float x) { return std::fabs(x) < std::numeric_limits<float>::min(); }

template <class Body>
void for_each_isa_and_format(const Body& body) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (const Format& format : kFormats) {
      SCOPED_TRACE(isa + " " + name(format.dtype));
      body(format);
    }
  }
}

ConstTensor as(ConstTensor tensor, DType dtype) {
  tensor.dtype = dtype;
  return tensor;
}

// out of `queries` queries of zeros over value rows [Lk, Dv] in bits: the mean of the rows.
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
  for_each_isa_and_format([](const Format& format) {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const std::vector<std::uint16_t> out = mean_of(all, 1, format.dtype);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float in = format.widen(all[i]);
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
  for_each_isa_and_format([](const Format& format) {
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
      const auto a = static_cast<double>(format.widen(value[i]));
      const auto b = static_cast<double>(format.widen(value[kPairs + i]));
      const auto mean = static_cast<float>((a + b) / 2);
      if (!std::isfinite(a) || !std::isfinite(b) || std::isinf(static_cast<float>(a + b)) ||
          flushed(static_cast<float>(a)) || flushed(static_cast<float>(b)) || flushed(mean))
        continue;
      ++compared;
      EXPECT_EQ(out[i], format.narrow(mean)) << a << " and " << b;
    }
    EXPECT_GT(compared, kPairs * 4 / 5);
  });
}

TEST(half, a_16_bit_call_is_the_f32_call_on_widened_inputs) {
  for_each_isa_and_format([](const Format& format) {
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
        const auto exact = static_cast<float>(b.out.at(n));
        if (std::isnan(exact)) continue;
        EXPECT_EQ(a.out.at(n), static_cast<double>(format.widen(format.narrow(exact))))
            << p.describe();
      }
    }
  });
}

}  // namespace
}  // namespace poise::test
