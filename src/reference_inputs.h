// What the parts of the definition read alike: elements, dense copies of tensors, positions.
//
// In: checked views and the resolved lengths of a ReferenceResult. Out: numbers of type T.
// Nothing at or after kv_lengths and q_lengths is read. Only reference*.cpp include this.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference.h"
#include "widen.h"

namespace poise {

// Positions are sums of int64 numbers of any size; 128 bits hold them without overflow.
__extension__ using Position = __int128;

// The element `offset` elements after the tensor's first one.
template <class T>
T load(const ConstTensor& tensor, std::int64_t offset) {
  return static_cast<T>(element(tensor, offset));
}

// Where element [b, h, i, j] lies in a tensor that broadcasts from the right to [B, Hq, Lq, Lk].
inline std::int64_t broadcast_offset(const ConstTensor& tensor, std::int64_t b, std::int64_t h,
                                     std::int64_t i, std::int64_t j) {
  const std::int64_t index[kMaxRank] = {b, h, i, j};
  std::int64_t offset = 0;
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.extent(axis) != 1)
      offset += index[axis + kMaxRank - tensor.rank] * tensor.stride(axis);
  return offset;
}

// A [B, H, L, D] or [B, H, L] tensor as row-major T; rows at and after lengths[b] are not read and
// stay 0.
template <class T>
std::vector<T> load_rows(const ConstTensor& tensor, const std::vector<std::int64_t>& lengths) {
  const std::int64_t heads = tensor.extent(1), rows = tensor.extent(2),
                     dim = tensor.rank == 3 ? 1 : tensor.extent(3);
  std::vector<T> dense(static_cast<std::size_t>(tensor.extent(0) * heads * rows * dim), T(0));
  for (std::int64_t b = 0; b < tensor.extent(0); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i)
        for (std::int64_t d = 0; d < dim; ++d)
          dense[static_cast<std::size_t>(((b * heads + h) * rows + i) * dim + d)] =
              load<T>(tensor, b * tensor.stride(0) + h * tensor.stride(1) + i * tensor.stride(2) +
                                  (tensor.rank == 3 ? 0 : d * tensor.stride(3)));
  return dense;
}

// The same, empty when no tensor is given.
template <class T>
std::vector<T> load_given(const ConstTensor& tensor, const std::vector<std::int64_t>& lengths) {
  return tensor.given() ? load_rows<T>(tensor, lengths) : std::vector<T>();
}

// |i + o_b - j|, what ALiBi's slope is multiplied by.
template <class T>
T alibi_distance(std::int64_t diagonal, std::int64_t i, std::int64_t j) {
  const Position distance = Position(i) + diagonal - j;
  return static_cast<T>(distance < 0 ? -distance : distance);
}

// query, key and value of a call, dense.
template <class T>
struct ReferenceInputs {
  std::vector<T> query, key, value;
  std::int64_t kv_heads = 0, head_dim = 0;

  ReferenceInputs(const ConstTensor& query_view, const ConstTensor& key_view,
                  const ConstTensor& value_view, const ReferenceResult<T>& r)
      : query(load_rows<T>(query_view, r.q_lengths)),
        key(load_rows<T>(key_view, r.kv_lengths)),
        value(load_rows<T>(value_view, r.kv_lengths)),
        kv_heads(key_view.extent(1)),
        head_dim(query_view.extent(3)) {}
};

// One query row [b, h, i] and where its numbers begin in the dense arrays.
struct ReferencePlace {
  std::int64_t b, h, i;
  std::size_t row;        // in [B, Hq, Lq]
  std::size_t pairs;      // its key 0 in [B, Hq, Lq, Lk]
  std::size_t query;      // in [B, Hq, Lq, D]
  std::size_t out;        // in [B, Hq, Lq, Dv]
  std::size_t key_rows;   // row 0 of its kv head in [B, Hkv, Lk]
  std::size_t head_rows;  // row 0 of its query head in [B, Hq, Lk]
};

// Calls visit(place) for every row that exists, in order of batch, head and query.
template <class T, class Visit>
void for_each_row(const ReferenceResult<T>& r, const ReferenceInputs<T>& in, const Visit& visit) {
  for (std::int64_t b = 0; b < r.batch; ++b)
    for (std::int64_t h = 0; h < r.q_heads; ++h)
      for (std::int64_t i = 0; i < r.q_lengths[static_cast<std::size_t>(b)]; ++i) {
        const std::int64_t row = r.row_index(b, h, i);
        const std::int64_t kv_head = h / (r.q_heads / in.kv_heads);
        visit(ReferencePlace{b, h, i, static_cast<std::size_t>(row),
                             static_cast<std::size_t>(row * r.kv_len),
                             static_cast<std::size_t>(row * in.head_dim),
                             static_cast<std::size_t>(row * r.value_dim),
                             static_cast<std::size_t>((b * in.kv_heads + kv_head) * r.kv_len),
                             static_cast<std::size_t>((b * r.q_heads + h) * r.kv_len)});
      }
}

// True when the key of a pair in [B, Hq, Lq, Lk] takes part in its row: it is not masked and its
// logit is not -inf.
template <class T>
bool takes_part(const ReferenceResult<T>& r, std::size_t pair) {
  return r.logits[pair] != -std::numeric_limits<T>::infinity();
}

template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  T sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

// d capped / d score = 1 - tanh(x)^2 with x = score / softcap, without the cancellation of the
// difference; 1 when softcap is 0.
template <class T>
T softcap_slope(T score, T softcap) {
  if (!(softcap > T(0))) return T(1);
  const T e = std::exp(T(-2) * std::fabs(score / softcap));
  return T(4) * e / ((T(1) + e) * (T(1) + e));
}

// Sums the query heads of each group, in ascending order: [B, Hq, rows, dim] to [B, Hkv, rows,
// dim].
template <class T>
std::vector<T> sum_groups(const std::vector<T>& heads, std::int64_t batch, std::int64_t q_heads,
                          std::int64_t kv_heads, std::int64_t elements) {
  std::vector<T> sums(static_cast<std::size_t>(batch * kv_heads * elements), T(0));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < q_heads; ++h)
      for (std::int64_t n = 0; n < elements; ++n)
        sums[static_cast<std::size_t>((b * kv_heads + h / (q_heads / kv_heads)) * elements + n)] +=
            heads[static_cast<std::size_t>((b * q_heads + h) * elements + n)];
  return sums;
}

}  // namespace poise
