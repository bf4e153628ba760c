// The definition of the gradients: one row at a time, then sums over what rows share.
//
// In: checked tensors, Options, dout, dlse. Out: ReferenceGradients. Every sum runs over the keys a
// row sees and over nothing else, so that 0 * NaN cannot carry a masked number anywhere. Nothing
// here may be clever: a reader must find docs/semantics.md, "Backward", in it line by line.
#include "reference_gradient.h"

#include "reference_inputs.h"

namespace poise {
namespace {

// What every row adds to. Keys and values are kept per query head until all rows are done, so that
// the heads of a group are summed in ascending order.
template <class T>
struct Sums {
  std::vector<T> dkey, dvalue;  // [B, Hq, Lk, D], [B, Hq, Lk, Dv]
};

// dweights and dlogits of a row, and what its sink gets. `out`: null, or the row's as handed out.
template <class T>
void fill_dlogits(const ReferenceInputs<T>& in, const ReferencePlace& at, const T* dout, T dlse,
                  const T* out, ReferenceGradients<T>& g) {
  const ReferenceResult<T>& r = g.forward;
  T mean = 0;  // sum p dweights = sum dout out
  for (std::size_t j = 0; j < static_cast<std::size_t>(r.kv_len); ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const T* value = in.value.data() + (at.key_rows + j) * static_cast<std::size_t>(r.value_dim);
    g.dweights[at.pairs + j] = dot(dout, value, r.value_dim);
    if (!r.dropout.empty()) g.dweights[at.pairs + j] *= r.dropout[at.pairs + j];
    mean += r.weights[at.pairs + j] * g.dweights[at.pairs + j];
  }
  if (out != nullptr) mean = dot(dout, out, r.value_dim);
  for (std::size_t j = 0; j < static_cast<std::size_t>(r.kv_len); ++j)
    if (takes_part(r, at.pairs + j))
      g.dlogits[at.pairs + j] =
          r.weights[at.pairs + j] * ((g.dweights[at.pairs + j] - mean) + dlse);

  const auto head = static_cast<std::size_t>(at.h);
  if (r.sinks[head] == -std::numeric_limits<T>::infinity()) return;
  const T sink_weight = std::exp(r.sinks[head] - r.row_max[at.row]) / r.row_sum[at.row];
  g.dsinks[head] += sink_weight * (dlse - mean);
}

// From the logits of a row back through alibi, softcap, scale and dots.
template <class T>
void add_row(const ReferenceInputs<T>& in, const Options& options, const ReferencePlace& at,
             const T* dout, ReferenceGradients<T>& g, Sums<T>& sums) {
  const ReferenceResult<T>& r = g.forward;
  const auto head = static_cast<std::size_t>(at.h);
  const auto dim = static_cast<std::size_t>(in.head_dim),
             value_dim = static_cast<std::size_t>(r.value_dim);
  const T scale = r.scales[head], softcap = static_cast<T>(options.softcap);
  T& dslope = g.dslopes[static_cast<std::size_t>(at.b * r.q_heads + at.h)];
  for (std::size_t j = 0; j < static_cast<std::size_t>(r.kv_len); ++j) {
    if (!takes_part(r, at.pairs + j)) continue;
    const std::size_t pair = at.pairs + j;
    const T* query = in.query.data() + at.query;
    const T* key = in.key.data() + (at.key_rows + j) * dim;
    T* dquery = g.dquery.data() + at.query;
    T* dkey = sums.dkey.data() + (at.head_rows + j) * dim;
    T* dvalue = sums.dvalue.data() + (at.head_rows + j) * value_dim;

    const T dscore = g.dlogits[pair] * softcap_slope(r.scores[pair], softcap);
    const T ddot = scale * dscore;
    for (std::size_t d = 0; d < dim; ++d) dquery[d] += ddot * key[d];
    for (std::size_t d = 0; d < dim; ++d) dkey[d] += ddot * query[d];
    for (std::size_t c = 0; c < value_dim; ++c) dvalue[c] += r.weight_after_dropout(pair) * dout[c];
    g.dscale[head] += dscore * r.dots[pair];
    dslope -= g.dlogits[pair] * alibi_distance<T>(r.diagonals[static_cast<std::size_t>(at.b)], at.i,
                                                  static_cast<std::int64_t>(j));
  }
}

// The bias's own shape, row-major; dense strides of 0 where an axis broadcasts.
ConstTensor dense_like(const ConstTensor& bias) {
  ConstTensor dense = bias;
  std::int64_t step = 1;
  for (int axis = bias.rank - 1; axis >= 0; --axis) {
    dense.strides[static_cast<std::size_t>(axis)] = step;
    step *= bias.extent(axis);
  }
  return dense;
}

template <class T>
void fill_dbias(const ReferenceInputs<T>& in, const ConstTensor& bias, ReferenceGradients<T>& g) {
  const ConstTensor dense = dense_like(bias);
  std::int64_t count = 1;
  for (int axis = 0; axis < bias.rank; ++axis) count *= bias.extent(axis);
  g.dbias.assign(static_cast<std::size_t>(count), T(0));
  for_each_row(g.forward, in, [&](const ReferencePlace& at) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(g.forward.kv_len); ++j)
      if (takes_part(g.forward, at.pairs + j))
        g.dbias[static_cast<std::size_t>(broadcast_offset(
            dense, at.b, at.h, at.i, static_cast<std::int64_t>(j)))] += g.dlogits[at.pairs + j];
  });
}

}  // namespace

template <class T>
ReferenceGradients<T> reference_backward(const ConstTensor& query, const ConstTensor& key,
                                         const ConstTensor& value, const Options& options,
                                         const ConstTensor& dout, const ConstTensor& dlse,
                                         const ConstTensor& out) {
  ReferenceGradients<T> g;
  g.forward = reference_attention<T>(query, key, value, options);
  const ReferenceResult<T>& r = g.forward;
  const ReferenceInputs<T> in(query, key, value, r);
  const std::vector<T> dense_dout = load_rows<T>(dout, r.q_lengths);
  const std::vector<T> dense_dlse =
      dlse.given() ? load_rows<T>(dlse, r.q_lengths) : std::vector<T>(r.lse.size(), T(0));

  const std::vector<T> dense_out = load_given<T>(out, r.q_lengths);

  const auto head_keys = static_cast<std::size_t>(r.batch * r.q_heads * r.kv_len);
  Sums<T> sums;
  sums.dkey.assign(head_keys * static_cast<std::size_t>(in.head_dim), T(0));
  sums.dvalue.assign(head_keys * static_cast<std::size_t>(r.value_dim), T(0));
  g.dquery.assign(in.query.size(), T(0));
  g.dweights.assign(r.logits.size(), T(0));
  g.dlogits.assign(r.logits.size(), T(0));
  g.dsinks.assign(static_cast<std::size_t>(r.q_heads), T(0));
  g.dscale.assign(static_cast<std::size_t>(r.q_heads), T(0));
  g.dslopes.assign(static_cast<std::size_t>(r.batch * r.q_heads), T(0));
  for_each_row(r, in, [&](const ReferencePlace& at) {
    const T* row_dout = dense_dout.data() + at.out;
    const T row_dlse = dense_dlse.empty() ? T(0) : dense_dlse[at.row];
    fill_dlogits(in, at, row_dout, row_dlse, dense_out.empty() ? nullptr : &dense_out[at.out], g);
    add_row(in, options, at, row_dout, g, sums);
  });
  g.dkey = sum_groups(sums.dkey, r.batch, r.q_heads, in.kv_heads, r.kv_len * in.head_dim);
  g.dvalue = sum_groups(sums.dvalue, r.batch, r.q_heads, in.kv_heads, r.kv_len * r.value_dim);
  if (options.bias.given()) fill_dbias(in, options.bias, g);
  return g;
}

template ReferenceGradients<float> reference_backward(const ConstTensor&, const ConstTensor&,
                                                      const ConstTensor&, const Options&,
                                                      const ConstTensor&, const ConstTensor&,
                                                      const ConstTensor&);
template ReferenceGradients<double> reference_backward(const ConstTensor&, const ConstTensor&,
                                                       const ConstTensor&, const Options&,
                                                       const ConstTensor&, const ConstTensor&,
                                                       const ConstTensor&);
template ReferenceGradients<long double> reference_backward(const ConstTensor&, const ConstTensor&,
                                                            const ConstTensor&, const Options&,
                                                            const ConstTensor&, const ConstTensor&,
                                                            const ConstTensor&);

}  // namespace poise
