// Memory of second derivatives at length: nothing of size Lq x Lk.
//
// The largest instruction set only: what a call allocates does not depend on it.
// ctest-labels: slow
#include <gtest/gtest.h>
#include <poise/tangent.h>

#include <stdexcept>

#include "support/peak_memory.h"
#include "support/rng.h"
#include "support/tensor_buffer.h"

namespace poise::test {
namespace {

// Peak bytes beside inputs and outputs of a double backward call on two threads, which makes a
// forward-mode call first: f32, B = 1, Hq = Hkv = 2, D = Dv = 64.
double peak_bytes(std::int64_t len) {
  TensorBuffer tensors[10], row_max, row_sum;
  return peak_bytes_of(
      [&] {
        Rng rng(81);
        for (TensorBuffer& tensor : tensors) {
          tensor = TensorBuffer(DType::f32, {1, 2, len, 64});
          tensor.fill([&] { return rng.uniform(-1, 1); });
        }
        row_max = row_sum = TensorBuffer(DType::f32, {1, 2, len});
        row_max.fill([] { return 1.0; });
        row_sum.fill([] { return 1.0; });
      },
      [&] {
        const auto& [q, k, v, out, dout, moved_q, moved_k, dq, dk, dv] = tensors;
        const Error error = double_backward(
            q.view(), k.view(), v.view(),
            {.out = out.view(), .row_max = row_max.view(), .row_sum = row_sum.view()},
            {.dout = dout.view()}, {.query = moved_q.view(), .key = moved_k.view()},
            {.query = dq.view(), .key = dk.view(), .value = dv.view()},
            {.causal = Causal::top_left(), .threads = 2});
        if (error) throw std::runtime_error(error.message());
      });
}

TEST(tangent_slow, second_derivatives_of_8192_keys_add_less_than_80_mib) {
  constexpr std::int64_t kLen = 8192;
  const double bytes = peak_bytes(kLen);
  RecordProperty("peak_mib", std::to_string(bytes / (1 << 20)));
  EXPECT_LT(bytes, 80.0 * (1 << 20)) << "the scores take " << 2.0 * 4 * kLen * kLen;
  EXPECT_LT(bytes, 2.5 * peak_bytes(kLen / 2)) << "memory grows faster than the length";
}

}  // namespace
}  // namespace poise::test
