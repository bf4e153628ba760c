// The definition of tangents and second derivatives: one row at a time.
//
// In: checked tensors, Options, directions, dout, dlse. Out: ReferenceTangent and
// ReferenceSecondGradients. The tangent of a row is the chain of reference.cpp differentiated line
// by line; the second derivatives are that chain's gradients. A prime marks a tangent: x' of
// logits.
#include "reference_tangent.h"

#include "reference_inputs.h"

namespace poise {
namespace {

// Dense copies; empty where the direction stands still, so that it multiplies nothing by 0.
template <class T>
struct DenseDirection {
  std::vector<T> query, key, value;

  DenseDirection(const Direction& direction, const ReferenceResult<T>& r)
      : query(load_given<T>(direction.query, r.q_lengths)),
        key(load_given<T>(direction.key, r.kv_lengths)),
        value(load_given<T>(direction.value, r.kv_lengths)) {}
};

// One call: what is given and what the forward pass makes of it.
template <class T>
struct Call {
  const Options& options;
  ReferenceResult<T> forward;
  ReferenceInputs<T> in;
  DenseDirection<T> direction;

  Call(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
       const Options& call_options, const Direction& call_direction)
      : options(call_options),
        forward(reference_attention<T>(query, key, value, call_options)),
        in(query, key, value, forward),
        direction(call_direction, forward) {}
};

// How one row moves. Zero for keys that take no part.
template <class T>
struct RowTangent {
  std::vector<T> scores, logits, weights;  // [Lk]
  T lse = 0;

  RowTangent(const Call<T>& call, const ReferencePlace& at);
};

template <class T>
RowTangent<T>::RowTangent(const Call<T>& call, const ReferencePlace& at) {
  const ReferenceResult<T>& r = call.forward;
  const auto keys = static_cast<std::size_t>(r.kv_len),
             dim = static_cast<std::size_t>(call.in.head_dim);
  const T scale = r.scales[static_cast<std::size_t>(at.h)];
  const DenseDirection<T>& moved = call.direction;
  for (std::vector<T>* column : {&scores, &logits, &weights}) column->assign(keys, T(0));
  for (std::size_t j = 0; j < keys; ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const std::size_t key = (at.key_rows + j) * dim;
    T dots = 0;
    if (!moved.query.empty())
      dots += dot(moved.query.data() + at.query, call.in.key.data() + key, call.in.head_dim);
    if (!moved.key.empty())
      dots += dot(call.in.query.data() + at.query, moved.key.data() + key, call.in.head_dim);
    scores[j] = scale * dots;
    logits[j] =
        softcap_slope(r.scores[at.pairs + j], static_cast<T>(call.options.softcap)) * scores[j];
    lse += r.weights[at.pairs + j] * logits[j];
  }
  for (std::size_t j = 0; j < keys; ++j)
    if (takes_part(r, at.pairs + j)) weights[j] = r.weights[at.pairs + j] * (logits[j] - lse);
}

// Dropout's factor of the row's weight of key j: 1 without dropout.
template <class T>
T kept(const ReferenceResult<T>& r, const ReferencePlace& at, std::size_t j) {
  return r.dropout.empty() ? T(1) : r.dropout[at.pairs + j];
}

// out' = sum p' value + p value', and lse'.
template <class T>
void add_tangent(const Call<T>& call, const ReferencePlace& at, const RowTangent<T>& row, T* out,
                 T* lse) {
  const ReferenceResult<T>& r = call.forward;
  const auto value_dim = static_cast<std::size_t>(r.value_dim);
  *lse = row.lse;
  for (std::size_t j = 0; j < static_cast<std::size_t>(r.kv_len); ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const std::size_t value = (at.key_rows + j) * value_dim;
    const T moved = kept(r, at, j) * row.weights[j];
    for (std::size_t c = 0; c < value_dim; ++c) {
      out[c] += moved * call.in.value[value + c];
      if (!call.direction.value.empty())
        out[c] += r.weight_after_dropout(at.pairs + j) * call.direction.value[value + c];
    }
  }
}

// Gradients of one row's share of the loss, sum dout out' + dlse lse', with respect to what its
// scores and their tangents are made of.
template <class T>
struct RowGradients {
  std::vector<T> scores, score_tangents;  // [Lk]
};

// With u = x', D = dout . value, E = dout . value' (both times dropout's factor) and sums weighted
// by p:
//   loss = sum p (u D + E + dlse u) - sum(p u) sum(p D)
// so its gradient with respect to p is u D + E + dlse u - u sum(p D) - D sum(p u), and from p to
// the logits it goes as any gradient of weights does.
template <class T>
RowGradients<T> row_gradients(const Call<T>& call, const ReferencePlace& at,
                              const RowTangent<T>& row, const T* dout, T dlse) {
  const ReferenceResult<T>& r = call.forward;
  const auto keys = static_cast<std::size_t>(r.kv_len),
             value_dim = static_cast<std::size_t>(r.value_dim);
  const T softcap = static_cast<T>(call.options.softcap);
  const T* p = r.weights.data() + at.pairs;

  std::vector<T> dweights(keys, T(0)), second(keys, T(0));
  T mean = 0, second_mean = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    dweights[j] = kept(r, at, j) *
                  dot(dout, call.in.value.data() + (at.key_rows + j) * value_dim, r.value_dim);
    mean += p[j] * dweights[j];
  }
  for (std::size_t j = 0; j < keys; ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    second[j] = row.logits[j] * ((dweights[j] - mean) + dlse) - row.lse * dweights[j];
    if (!call.direction.value.empty())
      second[j] +=
          kept(r, at, j) *
          dot(dout, call.direction.value.data() + (at.key_rows + j) * value_dim, r.value_dim);
    second_mean += p[j] * second[j];
  }

  RowGradients<T> g{std::vector<T>(keys, T(0)), std::vector<T>(keys, T(0))};
  for (std::size_t j = 0; j < keys; ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const T score = r.scores[at.pairs + j], slope = softcap_slope(score, softcap);
    const T of_logit = p[j] * (second[j] - second_mean);
    const T of_logit_tangent = p[j] * ((dweights[j] - mean) + dlse);
    g.score_tangents[j] = of_logit_tangent * slope;
    g.scores[j] = of_logit * slope;
    if (softcap > T(0))  // d slope / d score = -2 tanh slope / softcap
      g.scores[j] +=
          of_logit_tangent * row.scores[j] * (T(-2) / softcap * std::tanh(score / softcap) * slope);
  }
  return g;
}

// From the scores and their tangents to query, key and value: dots = q k, dots' = q' k + q k'.
template <class T>
void add_row(const Call<T>& call, const ReferencePlace& at, const RowTangent<T>& row,
             const RowGradients<T>& g, const T* dout, ReferenceSecondGradients<T>& sums,
             std::vector<T>& head_keys, std::vector<T>& head_values) {
  const ReferenceResult<T>& r = call.forward;
  const auto dim = static_cast<std::size_t>(call.in.head_dim),
             value_dim = static_cast<std::size_t>(r.value_dim);
  const T scale = r.scales[static_cast<std::size_t>(at.h)];
  for (std::size_t j = 0; j < static_cast<std::size_t>(r.kv_len); ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const T of_dots = scale * g.scores[j], of_dot_tangents = scale * g.score_tangents[j];
    const std::size_t key = (at.key_rows + j) * dim, head_key = (at.head_rows + j) * dim;
    for (std::size_t d = 0; d < dim; ++d) {
      sums.query[at.query + d] += of_dots * call.in.key[key + d];
      head_keys[head_key + d] += of_dots * call.in.query[at.query + d];
      if (!call.direction.key.empty())
        sums.query[at.query + d] += of_dot_tangents * call.direction.key[key + d];
      if (!call.direction.query.empty())
        head_keys[head_key + d] += of_dot_tangents * call.direction.query[at.query + d];
    }
    for (std::size_t c = 0; c < value_dim; ++c)
      head_values[(at.head_rows + j) * value_dim + c] += kept(r, at, j) * row.weights[j] * dout[c];
  }
}

}  // namespace

template <class T>
ReferenceTangent<T> reference_jvp(const ConstTensor& query, const ConstTensor& key,
                                  const ConstTensor& value, const Options& options,
                                  const Direction& direction) {
  const Call<T> call(query, key, value, options, direction);
  ReferenceTangent<T> tangent{std::vector<T>(call.forward.out.size(), T(0)),
                              std::vector<T>(call.forward.lse.size(), T(0))};
  for_each_row(call.forward, call.in, [&](const ReferencePlace& at) {
    add_tangent(call, at, RowTangent<T>(call, at), tangent.out.data() + at.out,
                tangent.lse.data() + at.row);
  });
  return tangent;
}

template <class T>
ReferenceSecondGradients<T> reference_double_backward(
    const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
    const Options& options, const ConstTensor& dout, const ConstTensor& dlse,
    const Direction& cotangent) {
  const Call<T> call(query, key, value, options, cotangent);
  const ReferenceResult<T>& r = call.forward;
  const ReferenceInputs<T>& in = call.in;
  const std::vector<T> dense_dout = load_rows<T>(dout, r.q_lengths);
  const std::vector<T> dense_dlse =
      dlse.given() ? load_rows<T>(dlse, r.q_lengths) : std::vector<T>(r.lse.size(), T(0));

  ReferenceSecondGradients<T> g;
  g.query.assign(in.query.size(), T(0));
  g.dout.assign(r.out.size(), T(0));
  g.dlse.assign(r.lse.size(), T(0));
  const auto head_rows = static_cast<std::size_t>(r.batch * r.q_heads * r.kv_len);
  std::vector<T> head_keys(head_rows * static_cast<std::size_t>(in.head_dim), T(0)),
      head_values(head_rows * static_cast<std::size_t>(r.value_dim), T(0));
  for_each_row(r, in, [&](const ReferencePlace& at) {
    const T* row_dout = dense_dout.data() + at.out;
    const T row_dlse = dense_dlse.empty() ? T(0) : dense_dlse[at.row];
    const RowTangent<T> row(call, at);
    add_tangent(call, at, row, g.dout.data() + at.out, g.dlse.data() + at.row);
    add_row(call, at, row, row_gradients(call, at, row, row_dout, row_dlse), row_dout, g, head_keys,
            head_values);
  });
  g.key = sum_groups(head_keys, r.batch, r.q_heads, in.kv_heads, r.kv_len * in.head_dim);
  g.value = sum_groups(head_values, r.batch, r.q_heads, in.kv_heads, r.kv_len * r.value_dim);
  return g;
}

template ReferenceTangent<float> reference_jvp(const ConstTensor&, const ConstTensor&,
                                               const ConstTensor&, const Options&,
                                               const Direction&);
template ReferenceTangent<double> reference_jvp(const ConstTensor&, const ConstTensor&,
                                                const ConstTensor&, const Options&,
                                                const Direction&);
template ReferenceTangent<long double> reference_jvp(const ConstTensor&, const ConstTensor&,
                                                     const ConstTensor&, const Options&,
                                                     const Direction&);
template ReferenceSecondGradients<float> reference_double_backward(
    const ConstTensor&, const ConstTensor&, const ConstTensor&, const Options&, const ConstTensor&,
    const ConstTensor&, const Direction&);
template ReferenceSecondGradients<double> reference_double_backward(
    const ConstTensor&, const ConstTensor&, const ConstTensor&, const Options&, const ConstTensor&,
    const ConstTensor&, const Direction&);
template ReferenceSecondGradients<long double> reference_double_backward(
    const ConstTensor&, const ConstTensor&, const ConstTensor&, const Options&, const ConstTensor&,
    const ConstTensor&, const Direction&);

}  // namespace poise
