// Rows at and after q_lengths: out 0, lse -inf, an empty state, weights 0.
//
// In: a task and the queries [begin, end) that are absent. Out: those rows of whatever the task
// names. What must not happen here: a read of anything.
#pragma once

#include <poise/tensor.h>

#include <cstdint>

#include "kernels/kernels.h"

namespace poise {

// `dtype` is that of out, `numbers` that of everything beside it.
void write_absent_rows(const ForwardTask& task, std::int64_t begin, std::int64_t end, DType dtype,
                       DType numbers);
void write_absent_rows(const MaterialiseTask& task, std::int64_t begin, std::int64_t end,
                       DType numbers);

// Zeros in rows [begin, end) of a plane's head number `head`; nothing when its data is null.
void write_zero_rows(const Plane& plane, std::int64_t head, std::int64_t begin, std::int64_t end,
                     std::int64_t columns, DType dtype);

}  // namespace poise
