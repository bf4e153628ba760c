// Parts of a problem: every tensor sliced on the axes it has, the diagonal moved along.
//
// In: Problem or Outputs. Out: parts that share their memory. The diagonal of a batch entry is
// asked of the definition, which is the one place that resolves it.
#include "support/slices.h"

#include <algorithm>

namespace poise::test {
namespace {

// The definition on no heads at all resolves lengths and diagonals and computes nothing.
ReferenceResult<double> resolved(const Problem& p) {
  return reference_attention<double>(p.query.sliced(1, 0, 0).view(), p.key.sliced(1, 0, 0).view(),
                                     p.value.sliced(1, 0, 0).view(), p.call_options());
}

// The diagonal of each batch entry, plus `shift`, as an explicit option.
void move_diagonal(const Problem& whole, std::int64_t shift, Problem& part) {
  const ReferenceResult<double> r = resolved(whole);
  part.options.diagonal.reset();
  // Causal::offset names a diagonal of its own; the explicit one leaves any other kind its meaning.
  if (whole.options.causal.kind() == Causal::Kind::offset) part.options.causal = Causal::top_left();
  part.diagonals = TensorBuffer(DType::i64, Extents{whole.shape.batch});
  for (std::int64_t b = 0; b < whole.shape.batch; ++b)
    part.diagonals.set(b, static_cast<double>(r.diagonals[static_cast<std::size_t>(b)] + shift));
}

// [begin, begin + count) of axis `axis` of [B, Hq, Lq, Lk], for a tensor that broadcasts to it.
TensorBuffer sliced_broadcast(const TensorBuffer& tensor, int axis, std::int64_t begin,
                              std::int64_t count) {
  const int own = axis - (kMaxRank - tensor.view().rank);
  if (!tensor.given() || own < 0 || tensor.extent(own) == 1) return tensor;
  return tensor.sliced(own, begin, count);
}

TensorBuffer sliced_if_given(const TensorBuffer& tensor, std::int64_t begin, std::int64_t count) {
  return tensor.given() ? tensor.sliced(0, begin, count) : tensor;
}

}  // namespace

Problem query_chunk(const Problem& whole, std::int64_t begin, std::int64_t count) {
  Problem part = whole;
  part.shape.q_len = count;
  part.query = whole.query.sliced(2, begin, count);
  part.mask = sliced_broadcast(whole.mask, 2, begin, count);
  part.bias = sliced_broadcast(whole.bias, 2, begin, count);
  part.options.dropout.query_offset += begin;
  move_diagonal(whole, begin, part);
  return part;
}

Problem key_part(const Problem& whole, std::int64_t begin, std::int64_t count) {
  Problem part = whole;
  part.shape.kv_len = count;
  part.key = whole.key.sliced(2, begin, count);
  part.value = whole.value.sliced(2, begin, count);
  part.mask = sliced_broadcast(whole.mask, 3, begin, count);
  part.bias = sliced_broadcast(whole.bias, 3, begin, count);
  part.options.dropout.key_offset += begin;
  move_diagonal(whole, -begin, part);
  if (whole.kv_lengths.given()) {
    part.kv_lengths = TensorBuffer(DType::i64, Extents{whole.shape.batch});
    for (std::int64_t b = 0; b < whole.shape.batch; ++b)
      part.kv_lengths.set(b, std::clamp(whole.kv_lengths.at(b) - static_cast<double>(begin), 0.0,
                                        static_cast<double>(count)));
  }
  return part;
}

Problem batch_entry(const Problem& whole, std::int64_t b) {
  Problem part = whole;
  part.shape.batch = 1;
  part.options.dropout.batch_offset += b;
  part.query = whole.query.sliced(0, b, 1);
  part.key = whole.key.sliced(0, b, 1);
  part.value = whole.value.sliced(0, b, 1);
  part.mask = sliced_broadcast(whole.mask, 0, b, 1);
  part.bias = sliced_broadcast(whole.bias, 0, b, 1);
  part.diagonals = sliced_if_given(whole.diagonals, b, 1);
  part.kv_lengths = sliced_if_given(whole.kv_lengths, b, 1);
  part.q_lengths = sliced_if_given(whole.q_lengths, b, 1);
  if (whole.alibi_slopes.given() && whole.alibi_slopes.view().rank == 2)
    part.alibi_slopes = whole.alibi_slopes.sliced(0, b, 1);
  return part;
}

Outputs sliced(const Outputs& whole, int axis, std::int64_t begin, std::int64_t count) {
  Outputs part = whole;
  for (TensorBuffer* tensor :
       {&part.out, &part.lse, &part.lse_without_sink, &part.max_score, &part.row_max, &part.row_sum,
        &part.accumulator, &part.scores, &part.capped, &part.logits, &part.weights})
    if (tensor->given()) *tensor = tensor->sliced(axis, begin, count);
  return part;
}

}  // namespace poise::test
