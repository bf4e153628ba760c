// The definition of attention in plain code: resolve the options, then one row at a time.
//
// In: checked tensors and Options. Out: ReferenceResult. Nothing here may be clever: a reader must
// be able to hold this file beside docs/semantics.md and find every line of the one in the other.
// Memory at and after kv_lengths and q_lengths is never read.
#include "reference.h"

#include <cmath>
#include <limits>

#include "kernels/philox.h"
#include "reference_inputs.h"
#include "view_values.h"

namespace poise {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// One o_b per batch, used by causal, window and ALiBi alike.
std::int64_t diagonal_of(const Options& options, std::int64_t b, std::int64_t kv_length,
                         std::int64_t q_len) {
  if (options.diagonal) return *options.diagonal;
  if (options.diagonals.given()) return read_integer(options.diagonals, b);
  switch (options.causal.kind()) {
    case Causal::Kind::offset:
      return options.causal.diagonal();
    case Causal::Kind::top_left:
      return 0;
    case Causal::Kind::bottom_right:
    case Causal::Kind::none:
      break;
  }
  return kv_length - q_len;
}

// Key j < kv_lengths[b] is visible only if each of causal, window and mask allows it.
bool allowed(const Options& options, std::int64_t diagonal, const ReferencePlace& at,
             std::int64_t j) {
  const Position position = Position(at.i) + diagonal;
  if (options.causal.kind() != Causal::Kind::none && j > position) return false;
  if (options.window_left >= 0 && j < position - options.window_left) return false;
  if (options.window_right >= 0 && j > position + options.window_right) return false;
  if (!options.mask.given()) return true;
  const std::int64_t offset = broadcast_offset(options.mask, at.b, at.h, at.i, j);
  return static_cast<const unsigned char*>(options.mask.data)[offset] != 0;
}

template <class T>
T alibi_slope(const ConstTensor& slopes, std::int64_t b, std::int64_t h) {
  return load<T>(slopes, slopes.rank == 1 ? h * slopes.stride(0)
                                          : b * slopes.stride(0) + h * slopes.stride(1));
}

// query . key -> scores -> capped -> logits of one row.
template <class T>
void fill_logits(const ReferenceInputs<T>& in, const Options& options, const ReferencePlace& at,
                 ReferenceResult<T>& r) {
  const auto batch = static_cast<std::size_t>(at.b), head = static_cast<std::size_t>(at.h),
             dim = static_cast<std::size_t>(in.head_dim);
  for (std::int64_t j = 0; j < r.kv_lengths[batch]; ++j) {
    const std::size_t key_row = at.key_rows + static_cast<std::size_t>(j);
    const std::size_t pair = at.pairs + static_cast<std::size_t>(j);
    const T dots = dot(in.query.data() + at.query, in.key.data() + key_row * dim, in.head_dim);
    const T score = r.scales[head] * dots;
    const T capped = r.softcap > T(0) ? r.softcap * std::tanh(score / r.softcap) : score;
    r.dots[pair] = dots;
    r.scores[pair] = score;
    r.capped[pair] = capped;

    if (!allowed(options, r.diagonals[batch], at, j)) continue;
    const T bias = options.bias.given()
                       ? load<T>(options.bias, broadcast_offset(options.bias, at.b, at.h, at.i, j))
                       : T(0);
    if (bias == -kInfinity<T>) continue;
    T logit = capped;
    if (options.alibi_slopes.given())
      logit += -alibi_slope<T>(options.alibi_slopes, at.b, at.h) *
               alibi_distance<T>(r.diagonals[batch], at.i, j);
    if (options.bias.given()) logit += bias;
    r.bias[pair] = bias;
    r.logits[pair] = logit;
  }
}

// What dropout makes of the weights of one row.
template <class T>
void fill_dropout(const Dropout& dropout, const ReferencePlace& at, ReferenceResult<T>& r) {
  if (dropout.probability == 0) return;
  const PhiloxKey key = dropout_key(dropout.seed, dropout.offset);
  const std::uint32_t threshold = dropout_threshold(dropout.probability);
  for (std::int64_t j = 0; j < r.kv_len; ++j) {
    const std::uint32_t word =
        dropout_word(key, dropout.batch_offset + at.b, dropout.head_offset + at.h,
                     dropout.query_offset + at.i, dropout.key_offset + j);
    r.dropout[at.pairs + static_cast<std::size_t>(j)] =
        word >= threshold ? static_cast<T>(dropout_factor(dropout.probability)) : T(0);
  }
}

// softmax over the visible logits of one row, with the sink in the denominator, times value.
template <class T>
void fill_output(const ReferenceInputs<T>& in, const ReferencePlace& at, ReferenceResult<T>& r) {
  const std::size_t row = at.row;
  const auto kv_len = static_cast<std::size_t>(r.kv_len);
  const auto value_dim = static_cast<std::size_t>(r.value_dim);
  const T* logits = r.logits.data() + at.pairs;
  T* weights = r.weights.data() + at.pairs;
  T* out = r.out.data() + at.out;
  const T* value = in.value.data() + at.key_rows * value_dim;
  const T sink = r.sinks[static_cast<std::size_t>(at.h)];

  T max_score = -kInfinity<T>;
  bool has_nan = false;
  for (std::size_t j = 0; j < kv_len; ++j) {
    if (std::isnan(logits[j])) has_nan = true;
    if (logits[j] > max_score) max_score = logits[j];
  }
  if (has_nan && max_score < kInfinity<T>) max_score = kNaN<T>;
  r.max_score[row] = max_score;

  if (has_nan || max_score == kInfinity<T>) {
    for (std::size_t c = 0; c < value_dim; ++c) out[c] = kNaN<T>;
    for (std::size_t j = 0; j < kv_len; ++j)
      if (logits[j] != -kInfinity<T>) weights[j] = kNaN<T>;
    r.lse[row] = r.lse_without_sink[row] = r.row_sum[row] = kNaN<T>;
    r.row_max[row] = max_score;
    return;
  }

  const T row_max = sink > max_score ? sink : max_score;
  if (row_max == -kInfinity<T>) return;  // no key, no sink: the initial values are the answer

  T keys_sum = 0, keys_sum_about_own_max = 0;
  for (std::size_t j = 0; j < kv_len; ++j) {
    if (logits[j] == -kInfinity<T>) continue;  // masked, or a weight of exactly 0
    weights[j] = std::exp(logits[j] - row_max);
    keys_sum += weights[j];
    keys_sum_about_own_max += std::exp(logits[j] - max_score);
  }
  const T row_sum = sink > -kInfinity<T> ? keys_sum + std::exp(sink - row_max) : keys_sum;
  r.row_max[row] = row_max;
  r.row_sum[row] = row_sum;
  r.lse[row] = row_max + std::log(row_sum);
  if (max_score > -kInfinity<T>)
    r.lse_without_sink[row] = max_score + std::log(keys_sum_about_own_max);

  for (std::size_t j = 0; j < kv_len; ++j) {
    if (logits[j] == -kInfinity<T>) continue;
    weights[j] /= row_sum;
    const T weight = r.weight_after_dropout(row * kv_len + j);
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += weight * value[j * value_dim + c];
  }
}

// Shapes, lengths, diagonals, scales and sinks; every array at its value for a row without keys.
template <class T>
ReferenceResult<T> resolve(const ConstTensor& query, const ConstTensor& key,
                           const ConstTensor& value, const Options& options) {
  ReferenceResult<T> r;
  r.batch = query.extent(0);
  r.q_heads = query.extent(1);
  r.q_len = query.extent(2);
  r.kv_len = key.extent(2);
  r.value_dim = value.extent(3);
  for (std::int64_t b = 0; b < r.batch; ++b) {
    r.kv_lengths.push_back(options.kv_lengths.given() ? read_integer(options.kv_lengths, b)
                                                      : r.kv_len);
    r.q_lengths.push_back(options.q_lengths.given() ? read_integer(options.q_lengths, b) : r.q_len);
    r.diagonals.push_back(diagonal_of(options, b, r.kv_lengths.back(), r.q_len));
  }
  for (std::int64_t h = 0; h < r.q_heads; ++h) {
    if (options.scale_per_head.given())
      r.scales.push_back(load<T>(options.scale_per_head, h * options.scale_per_head.stride(0)));
    else
      r.scales.push_back(options.scale ? static_cast<T>(*options.scale)
                                       : T(1) / std::sqrt(static_cast<T>(query.extent(3))));
    r.sinks.push_back(options.sinks.given() ? load<T>(options.sinks, h * options.sinks.stride(0))
                                            : -kInfinity<T>);
  }

  const auto rows = static_cast<std::size_t>(r.batch * r.q_heads * r.q_len);
  const std::size_t pairs = rows * static_cast<std::size_t>(r.kv_len);
  r.out.assign(rows * static_cast<std::size_t>(r.value_dim), T(0));
  for (auto* column : {&r.lse, &r.lse_without_sink, &r.max_score, &r.row_max})
    column->assign(rows, -kInfinity<T>);
  r.row_sum.assign(rows, T(0));
  for (auto* matrix : {&r.dots, &r.scores, &r.capped, &r.weights, &r.bias})
    matrix->assign(pairs, T(0));
  r.logits.assign(pairs, -kInfinity<T>);
  if (options.dropout.probability > 0) r.dropout.assign(pairs, T(0));
  return r;
}

}  // namespace

template <class T>
ReferenceResult<T> reference_attention(const ConstTensor& query, const ConstTensor& key,
                                       const ConstTensor& value, const Options& options) {
  ReferenceResult<T> r = resolve<T>(query, key, value, options);
  r.softcap = static_cast<T>(options.softcap);
  const ReferenceInputs<T> in(query, key, value, r);
  for_each_row(r, in, [&](const ReferencePlace& at) {
    fill_logits(in, options, at, r);
    fill_dropout(options.dropout, at, r);
    fill_output(in, at, r);
  });
  return r;
}

template ReferenceResult<float> reference_attention(const ConstTensor&, const ConstTensor&,
                                                    const ConstTensor&, const Options&);
template ReferenceResult<double> reference_attention(const ConstTensor&, const ConstTensor&,
                                                     const ConstTensor&, const Options&);
template ReferenceResult<long double> reference_attention(const ConstTensor&, const ConstTensor&,
                                                          const ConstTensor&, const Options&);

}  // namespace poise
