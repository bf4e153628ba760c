// The definition of attention in plain code: resolve the options, then one row at a time.
//
// In: checked tensors and Options. Out: ReferenceResult. Nothing here may be clever: a reader must
// be able to hold this file beside docs/semantics.md and find every line of the one in the other.
// Memory at and after kv_lengths and q_lengths is never read.
#include "reference.h"

#include <cmath>
#include <limits>

#include "view_values.h"
#include "widen.h"

namespace poise {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// Positions are sums of int64 numbers of any size; 128 bits hold them without overflow.
__extension__ using Wide = __int128;

// The element `offset` elements after the tensor's first one.
template <class T>
T load(const ConstTensor& tensor, std::int64_t offset) {
  return static_cast<T>(element(tensor, offset));
}

// Where element [b, h, i, j] lies in a tensor that broadcasts from the right to [B, Hq, Lq, Lk].
std::int64_t broadcast_offset(const ConstTensor& tensor, std::int64_t b, std::int64_t h,
                              std::int64_t i, std::int64_t j) {
  const std::int64_t index[kMaxRank] = {b, h, i, j};
  std::int64_t offset = 0;
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.extent(axis) != 1)
      offset += index[axis + kMaxRank - tensor.rank] * tensor.stride(axis);
  return offset;
}

// A [B, H, L, D] tensor as row-major T; rows at and after lengths[b] are not read and stay 0.
template <class T>
std::vector<T> load_rows(const ConstTensor& tensor, const std::vector<std::int64_t>& lengths) {
  const std::int64_t heads = tensor.extent(1), rows = tensor.extent(2), dim = tensor.extent(3);
  std::vector<T> dense(static_cast<std::size_t>(tensor.extent(0) * heads * rows * dim), T(0));
  for (std::int64_t b = 0; b < tensor.extent(0); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i)
        for (std::int64_t d = 0; d < dim; ++d)
          dense[static_cast<std::size_t>(((b * heads + h) * rows + i) * dim + d)] =
              load<T>(tensor, b * tensor.stride(0) + h * tensor.stride(1) + i * tensor.stride(2) +
                                  d * tensor.stride(3));
  return dense;
}

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

// What is the same for every row of the call.
template <class T>
struct Call {
  const Options& options;
  std::vector<T> query, key, value;
  std::int64_t kv_heads, head_dim;
};

// Key j < kv_lengths[b] is visible only if each of causal, window and mask allows it.
template <class T>
bool allowed(const Call<T>& call, std::int64_t diagonal, std::int64_t b, std::int64_t h,
             std::int64_t i, std::int64_t j) {
  const Options& options = call.options;
  const Wide position = Wide(i) + diagonal;
  if (options.causal.kind() != Causal::Kind::none && j > position) return false;
  if (options.window_left >= 0 && j < position - options.window_left) return false;
  if (options.window_right >= 0 && j > position + options.window_right) return false;
  if (!options.mask.given()) return true;
  const std::int64_t offset = broadcast_offset(options.mask, b, h, i, j);
  return static_cast<const unsigned char*>(options.mask.data)[offset] != 0;
}

template <class T>
T alibi(const ConstTensor& slopes, std::int64_t b, std::int64_t h, Wide distance) {
  const std::int64_t offset =
      slopes.rank == 1 ? h * slopes.stride(0) : b * slopes.stride(0) + h * slopes.stride(1);
  return -load<T>(slopes, offset) * static_cast<T>(distance < 0 ? -distance : distance);
}

// query . key -> scores -> capped -> logits of row [b, h, i].
template <class T>
void fill_logits(const Call<T>& call, ReferenceResult<T>& r, std::int64_t b, std::int64_t h,
                 std::int64_t i) {
  const Options& options = call.options;
  const std::int64_t kv_head = h / (r.q_heads / call.kv_heads);
  const std::int64_t row = r.row_index(b, h, i),
                     diagonal = r.diagonals[static_cast<std::size_t>(b)];
  const T* q = call.query.data() + row * call.head_dim;
  const T scale = r.scales[static_cast<std::size_t>(h)], softcap = static_cast<T>(options.softcap);
  for (std::int64_t j = 0; j < r.kv_lengths[static_cast<std::size_t>(b)]; ++j) {
    const T* k = call.key.data() + ((b * call.kv_heads + kv_head) * r.kv_len + j) * call.head_dim;
    T dot = 0;
    for (std::int64_t d = 0; d < call.head_dim; ++d) dot += q[d] * k[d];
    const T score = scale * dot;
    const T capped = softcap > T(0) ? softcap * std::tanh(score / softcap) : score;
    const auto at = static_cast<std::size_t>(row * r.kv_len + j);
    r.dots[at] = dot;
    r.scores[at] = score;
    r.capped[at] = capped;

    if (!allowed(call, diagonal, b, h, i, j)) continue;
    const T bias = options.bias.given()
                       ? load<T>(options.bias, broadcast_offset(options.bias, b, h, i, j))
                       : T(0);
    if (bias == -kInfinity<T>) continue;
    T logit = capped;
    if (options.alibi_slopes.given())
      logit += alibi<T>(options.alibi_slopes, b, h, Wide(i) + diagonal - j);
    if (options.bias.given()) logit += bias;
    r.bias[at] = bias;
    r.logits[at] = logit;
  }
}

// softmax over the visible logits of row [b, h, i], with the sink in the denominator, times value.
template <class T>
void fill_output(const Call<T>& call, ReferenceResult<T>& r, std::int64_t b, std::int64_t h,
                 std::int64_t i) {
  const std::int64_t kv_head = h / (r.q_heads / call.kv_heads);
  const auto row = static_cast<std::size_t>(r.row_index(b, h, i));
  const auto kv_len = static_cast<std::size_t>(r.kv_len);
  const auto value_dim = static_cast<std::size_t>(r.value_dim);
  const T* logits = r.logits.data() + row * kv_len;
  T* weights = r.weights.data() + row * kv_len;
  T* out = r.out.data() + row * value_dim;
  const T* value = call.value.data() +
                   static_cast<std::size_t>(b * call.kv_heads + kv_head) * kv_len * value_dim;
  const T sink = r.sinks[static_cast<std::size_t>(h)];

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
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += weights[j] * value[j * value_dim + c];
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
  return r;
}

}  // namespace

template <class T>
ReferenceResult<T> reference_attention(const ConstTensor& query, const ConstTensor& key,
                                       const ConstTensor& value, const Options& options) {
  ReferenceResult<T> r = resolve<T>(query, key, value, options);
  const Call<T> call{options,
                     load_rows<T>(query, r.q_lengths),
                     load_rows<T>(key, r.kv_lengths),
                     load_rows<T>(value, r.kv_lengths),
                     key.extent(1),
                     query.extent(3)};
  for (std::int64_t b = 0; b < r.batch; ++b)
    for (std::int64_t h = 0; h < r.q_heads; ++h)
      for (std::int64_t i = 0; i < r.q_lengths[static_cast<std::size_t>(b)]; ++i) {
        fill_logits(call, r, b, h, i);
        fill_output(call, r, b, h, i);
      }
  return r;
}

template ReferenceResult<float> reference_attention(const ConstTensor&, const ConstTensor&,
                                                    const ConstTensor&, const Options&);
template ReferenceResult<double> reference_attention(const ConstTensor&, const ConstTensor&,
                                                     const ConstTensor&, const Options&);
template ReferenceResult<long double> reference_attention(const ConstTensor&, const ConstTensor&,
                                                          const ConstTensor&, const Options&);

}  // namespace poise
