// Projections in double, rounded to float32 once. The promises are in clip_model.h.
//
// In: tensors by name. Out: heads, statistics, a report. Deterministic: the same weights give the
// same bits, which is what the tests of untouched heads lean on.
#include "support/clip_model.h"

#include <gtest/gtest.h>
#include <poise/attention.h>
#include <poise/report.h>

#include <cstring>
#include <numeric>

#include "io/open.h"
#include "io/safetensors.h"
#include "support/rng.h"

namespace poise::test {

Weights read_weights(const std::string& path) {
  Weights weights;
  io::File file;
  const Error error = io::open(path, &file);
  EXPECT_FALSE(error) << error.message();
  for (const io::Entry& entry : file.entries()) {
    TensorBuffer buffer(entry.tensor->dtype, entry.shape);
    std::memcpy(buffer.view().data, entry.tensor->data, static_cast<std::size_t>(entry.size_bytes));
    weights[entry.name] = buffer;
  }
  return weights;
}

void write_weights(const std::string& path, const Weights& weights) {
  std::vector<io::NamedTensor> tensors;
  for (const auto& [name, buffer] : weights) tensors.push_back({name, buffer.view()});
  const Error error = io::write_safetensors(path, tensors, {{"format", "pt"}});
  EXPECT_FALSE(error) << error.message();
}

TensorBuffer random_matrix(std::int64_t rows, std::int64_t columns, double size,
                           std::uint64_t seed) {
  TensorBuffer matrix(DType::f32, {rows, columns});
  Rng rng(seed);
  matrix.fill([&] { return size * rng.normal(); });
  return matrix;
}

void scale_rows(TensorBuffer* tensor, int axis, std::int64_t begin, std::int64_t count,
                double factor) {
  const bool vector = tensor->view().rank == 1;
  const std::int64_t columns = vector ? 1 : tensor->extent(1);
  for (std::int64_t i = 0; i < tensor->count(); ++i) {
    const std::int64_t at = axis == 0 ? i / columns : i % columns;
    if (at >= begin && at < begin + count) tensor->set(i, factor * tensor->at(i));
  }
}

TensorBuffer project(const TensorBuffer& x, const TensorBuffer& weight, bool in_out,
                     const TensorBuffer& bias, const std::vector<std::int64_t>& rows) {
  const std::int64_t length = x.extent(0), inputs = x.extent(1);
  const auto outputs = static_cast<std::int64_t>(rows.size());
  TensorBuffer y(DType::f32, {length, outputs});
  const std::vector<double> w = weight.values(), in = x.values();
  for (std::int64_t l = 0; l < length; ++l) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::int64_t row = rows[static_cast<std::size_t>(o)];
      double sum = bias.given() ? bias.at(row) : 0;
      for (std::int64_t e = 0; e < inputs; ++e) {
        const std::int64_t at = in_out ? e * weight.extent(1) + row : row * inputs + e;
        sum += in[static_cast<std::size_t>(l * inputs + e)] * w[static_cast<std::size_t>(at)];
      }
      y.set(l * outputs + o, sum);
    }
  }
  return y;
}

std::vector<std::int64_t> counted(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void put_head(const TensorBuffer& source, std::int64_t head, std::int64_t column,
              TensorBuffer* target) {
  for (std::int64_t l = 0; l < source.extent(0); ++l)
    for (std::int64_t d = 0; d < source.extent(1); ++d)
      target->set(target->index({0, head, l, column + d}), source.at(source.index({l, d})));
}

Stats measure(const LayerHeads& heads) {
  Stats stats;
  stats.request.level = StatsLevel::core;
  TensorBuffer out(DType::f32,
                   {1, heads.query.extent(1), heads.query.extent(2), heads.query.extent(3)});
  Extras extras;
  extras.stats = &stats;
  const Error error =
      attention(heads.query.view(), heads.key.view(), heads.key.view(), out.view(), {}, extras);
  EXPECT_FALSE(error) << error.message();
  return stats;
}

std::string report_json(const std::vector<Stats>& layers) {
  ReportInput input;
  for (const Stats& stats : layers)
    input.layers.push_back({"L" + std::to_string(input.layers.size()), stats, std::nullopt});
  return to_json(build_report(input));
}

}  // namespace poise::test
