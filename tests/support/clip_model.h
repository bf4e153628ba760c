// Small checkpoints with made weights, and the queries and keys that they make of a fixed input.
//
// In: the bytes of a checkpoint, where it keeps which rows, a layer's input. Out: q, k and what
// attention measures of them. The projections are plain loops written for the tests: nothing of
// poise that knows maps or factors takes part.
#pragma once

#include <poise/stats.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/tensor_buffer.h"

namespace poise::test {

// A checkpoint in memory, by name.
using Weights = std::map<std::string, TensorBuffer>;
Weights read_weights(const std::string& path);
void write_weights(const std::string& path, const Weights& weights);

// [rows, columns] of standard normal numbers times `size`.
TensorBuffer random_matrix(std::int64_t rows, std::int64_t columns, double size,
                           std::uint64_t seed);
// Multiplies the entries [begin, begin + count) along an axis of a matrix or vector.
void scale_rows(TensorBuffer* tensor, int axis, std::int64_t begin, std::int64_t count,
                double factor);

// x [L, E] times the transposed rows of a weight, one output for each of `rows`, plus the bias.
// weight is [out, in] or, with in_out, [in, out]; bias may be a buffer that is not given.
TensorBuffer project(const TensorBuffer& x, const TensorBuffer& weight, bool in_out,
                     const TensorBuffer& bias, const std::vector<std::int64_t>& rows);
// first, first + 1, ..., count numbers.
std::vector<std::int64_t> counted(std::int64_t first, std::int64_t count);

// Writes [L, D] into head `head` of [1, H, L, D], from column `column` on.
void put_head(const TensorBuffer& source, std::int64_t head, std::int64_t column,
              TensorBuffer* target);

struct LayerHeads {
  TensorBuffer query, key;  // [1, Hq, L, D], [1, Hkv, L, D], f32
};
// Statistics of attention over them at level core, values = keys.
Stats measure(const LayerHeads& heads);

// Writes the JSON of a report on these layers, labelled L0, L1, ...
std::string report_json(const std::vector<Stats>& layers);

}  // namespace poise::test
