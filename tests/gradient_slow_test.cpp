// Gradients at length: the laws over many more drawn problems, accuracy at more lengths, memory.
//
// Each law prints its seeds, other ones every time; RC_PARAMS="seed=N max_success=M" draws the same
// problems again. Memory is measured on the largest instruction set only, as in memory_slow_test.
// ctest-labels: slow laws per_isa
#include <gtest/gtest.h>

#include "support/bit_laws.h"
#include "support/gradient_accuracy.h"
#include "support/gradient_laws.h"
#include "support/gradient_run.h"
#include "support/peak_memory.h"

namespace poise::test {
namespace {

constexpr int kCases = 100;
constexpr std::uint64_t kNewSeed = 0;
constexpr DrawLimits kAny{
    .max_rows = 200, .max_q_len = 200, .max_kv_len = 1600, .max_dim = 300, .poison = false};
constexpr DrawLimits kAllRows{
    .max_rows = 200, .max_q_len = 200, .max_kv_len = 1600, .poison = false, .q_lengths = false};

TEST(gradient_slow, gradients_agree_with_the_definition) {
  check_law(gradients_broken_by_definition, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, what_else_is_asked_for_changes_no_gradient_bit) {
  check_law(gradients_broken_by_wishes, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, threads_change_no_gradient_bit) {
  check_law(gradients_broken_by_threads, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, batch_changes_no_gradient_bit) {
  check_law(gradients_broken_by_batch, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, chunks_of_queries_change_no_bit_of_dq) {
  check_law(gradients_broken_by_chunks, kAllRows, kCases, kNewSeed);
}

TEST(gradient_slow, padding_changes_no_gradient_bit_and_has_gradient_zero) {
  check_law(gradients_broken_by_padding, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, strides_change_no_gradient_bit_and_no_byte_beside_a_tensor_is_touched) {
  check_law(gradients_broken_by_layout, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, numbers_nobody_sees_reach_no_gradient) {
  check_law(gradients_broken_by_hidden, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, a_nan_reaches_the_rows_and_keys_that_see_it_and_no_others) {
  check_law(gradients_broken_by_strangers, kAny, kCases, kNewSeed);
}

TEST(gradient_slow, errors_are_those_of_the_plain_computation_at_most_at_every_length) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (std::int64_t kv_len : {17, 131, 577, 1091})
      for (bool options : {false, true}) check_gradient_accuracy(dtype, kv_len, kSpreads, options);
}

TEST(gradient_slow, an_out_of_16_bits_costs_what_the_contract_says) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    check_cost_of_a_rounded_out(dtype, 577, 1, 1.3);
    check_cost_of_a_rounded_out(dtype, 577, 30, 5);
  }
}

// Peak bytes beside inputs and gradients of one call on two threads: f32, B = 1, D = Dv = 64.
double peak_bytes(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t len) {
  GradientProblem g;
  TensorBuffer dq, dk, dv, rows_max, rows_sum;
  Options options;
  return peak_bytes_of(
      [&] {
        g.problem.shape = {1, q_heads, kv_heads, len, len, 64, 64};
        Rng rng(341);
        auto filled = [&](std::int64_t heads) {
          TensorBuffer tensor(DType::f32, {1, heads, len, 64});
          tensor.fill([&] { return rng.uniform(-1, 1); });
          return tensor;
        };
        g.problem.query = filled(q_heads);
        g.problem.key = filled(kv_heads);
        g.problem.value = filled(kv_heads);
        g.dout = filled(q_heads);
        dq = filled(q_heads);
        dk = filled(kv_heads);
        dv = filled(kv_heads);
        rows_max = rows_sum = TensorBuffer(DType::f32, {1, q_heads, len});
        rows_max.fill([] { return 1.0; });
        options.threads = 2;
      },
      [&] {
        // What out and the state hold does not matter to memory.
        const Error error =
            backward(g.problem.query.view(), g.problem.key.view(), g.problem.value.view(),
                     {g.dout.view(), rows_max.view(), rows_sum.view(), {}}, {g.dout.view(), {}},
                     {dq.view(), dk.view(), dv.view(), {}, {}, {}, {}}, options);
        if (error) throw std::runtime_error(error.message());
      });
}

// Proportional to the length, whether units are whole or shared. The matrix would have 8 GiB.
TEST(gradient_slow, memory_grows_with_the_length_and_not_with_its_square) {
  constexpr double kMiB = 1 << 20;
  for (auto [q_heads, kv_heads] : {std::pair{8, 8}, {8, 2}, {1, 1}}) {
    const double half = peak_bytes(q_heads, kv_heads, 4096);
    const double whole = peak_bytes(q_heads, kv_heads, 8192);
    RecordProperty(std::to_string(q_heads) + "_" + std::to_string(kv_heads) + "_mib",
                   std::to_string(whole / kMiB));
    EXPECT_LT(whole, 2.3 * half + 2 * kMiB) << q_heads << " over " << kv_heads;
  }
  const double bytes = peak_bytes(8, 8, 16384);
  RecordProperty("peak_mib", std::to_string(bytes / kMiB));
  EXPECT_LT(bytes, 128 * kMiB);
}

}  // namespace
}  // namespace poise::test
