// The rule of docs/semantics.md, "Accuracy", for gradients.
//
// In: dtype, length, spreads. Out: GoogleTest failures that name instruction set, dtype, gradient,
// length and spread.
#pragma once

#include "support/accuracy.h"

namespace poise::test {

// For each spread by itself, pooled over 16 seeds of up to 64 query rows in two heads of one key
// head: the errors of every gradient are within the rule's ratios of those of the plain,
// materialised computation in the same dtype, which starts from the out that forward has handed
// out, as backward() does (reference_backward(), `out`). Plain problems give dq, dk, dv, dbias and
// dscale; `options` adds a causal mask, softcap, ALiBi, sinks and dlse, with dsinks and dslopes.
void check_gradient_accuracy(DType dtype, std::int64_t kv_len, const std::vector<double>& spreads,
                             bool options);

// For f16 and bf16: the rms errors of dq and dk are at most `most` times those of the computation
// that is f32 throughout, which never rounds out.
void check_cost_of_a_rounded_out(DType dtype, std::int64_t kv_len, double spread, double most);

}  // namespace poise::test
