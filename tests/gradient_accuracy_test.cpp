// Accuracy of gradients: errors against a wider arithmetic, judged by those of the plain
// computation.
//
// The rule of docs/semantics.md, "Accuracy", at a few lengths; gradient_slow_test.cpp has more.
// ctest-labels: fast unit per_isa
#include <gtest/gtest.h>

#include "support/gradient_accuracy.h"

namespace poise::test {
namespace {

constexpr bool kPlain = false, kWithOptions = true;

TEST(gradient_accuracy, f32_errors_are_those_of_the_plain_computation_at_most) {
  check_gradient_accuracy(DType::f32, 131, {0.05, 1, 10, 30}, kPlain);
  check_gradient_accuracy(DType::f32, 131, {1}, kWithOptions);
}

TEST(gradient_accuracy, f64_errors_are_those_of_the_plain_computation_at_most) {
  check_gradient_accuracy(DType::f64, 131, {0.05, 1, 30}, kPlain);
  check_gradient_accuracy(DType::f64, 131, {1}, kWithOptions);
}

TEST(gradient_accuracy, f16_errors_are_those_of_the_plain_computation_at_most) {
  check_gradient_accuracy(DType::f16, 131, {0.05, 1, 30}, kPlain);
  check_gradient_accuracy(DType::f16, 131, {1}, kWithOptions);
}

TEST(gradient_accuracy, bf16_errors_are_those_of_the_plain_computation_at_most) {
  check_gradient_accuracy(DType::bf16, 131, {0.05, 1, 30}, kPlain);
  check_gradient_accuracy(DType::bf16, 131, {1}, kWithOptions);
}

}  // namespace
}  // namespace poise::test
