// The attention layer: tokens are projected, poise attends, the heads are projected back.
//
// In and out: attention_layer.h. Heads lie side by side in a token's row, so poise reads them
// through strides and nothing is copied. poise runs on the calling thread.
#include "lab/training/attention_layer.h"

#include <poise/attention.h>
#include <poise/executor.h>
#include <poise/gradient.h>

#include <cmath>
#include <stdexcept>

#include "lab/training/streams.h"

namespace poise::lab::training {
namespace {

// A call that poise refuses is a fault of this file.
void expect_done(const Error& error) {
  if (error) throw std::logic_error("training: " + error.message());
}

// Rows of tokens with the heads side by side, seen as [sequences, heads, tokens, dim].
template <class T>
auto heads_view(T* rows, Index sequences, Index heads, Index tokens, Index dim) {
  return view(rows, {sequences, heads, tokens, dim}, {tokens * heads * dim, dim, heads * dim, 1});
}

}  // namespace

std::string_view name(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::one:
      return "1";
    case ScaleRule::inverse_sqrt:
      return "1/sqrt(D)";
    case ScaleRule::inverse:
      return "1/D";
    case ScaleRule::learned:
      return "learned";
    case ScaleRule::qk_norm:
      return "qk-norm";
  }
  return "?";
}

template <class S>
AttentionLayer<S>::AttentionLayer(const AttentionShape& shape, ScaleRule rule, std::uint64_t seed)
    : shape_(shape),
      rule_(rule),
      to_query_(shape.width, shape.heads * shape.head_dim, Linear<S>::Bias::absent,
                stream(seed, Purpose::query_weight)),
      to_key_(shape.width, shape.heads * shape.head_dim, Linear<S>::Bias::absent,
              stream(seed, Purpose::key_weight)),
      to_value_(shape.width, shape.heads * shape.value_dim, Linear<S>::Bias::absent,
                stream(seed, Purpose::value_weight)),
      to_output_(shape.heads * shape.value_dim, shape.width, Linear<S>::Bias::absent,
                 stream(seed, Purpose::output_weight)),
      query_norm_(Norm<S>::Kind::rms, shape.head_dim),
      key_norm_(Norm<S>::Kind::rms, shape.head_dim),
      log_factor_{Matrix<S>::Zero(1, shape.heads), Matrix<S>::Zero(1, shape.heads)} {}

template <class S>
void AttentionLayer<S>::forward(const ConstRows<S>& query_rows, const ConstRows<S>& key_rows,
                                const TokenCounts& counts, Matrix<S>& y, Stats* stats) {
  const auto [width, heads, head_dim, value_dim] = shape_;
  const auto [sequences, asking, asked] = counts;
  to_query_.forward(query_rows, query_);
  to_key_.forward(key_rows, key_);
  to_value_.forward(key_rows, value_);
  if (rule_ == ScaleRule::qk_norm) {
    query_norm_.forward(query_, query_);
    key_norm_.forward(key_, key_);
  }
  const double d = static_cast<double>(head_dim);
  const double fixed = rule_ == ScaleRule::one       ? 1
                       : rule_ == ScaleRule::inverse ? 1 / d
                                                     : 1 / std::sqrt(d);
  // exp(0) = 1: the other rules never move log_factor_.
  scale_ = log_factor_.value.array().exp() * static_cast<S>(fixed);
  mixed_.resize(query_.rows(), heads * value_dim);
  row_max_.resize(sequences * heads, asking);
  row_sum_.resize(sequences * heads, asking);
  const Tensor row_max = view(row_max_.data(), {sequences, heads, asking});
  const Tensor row_sum = view(row_sum_.data(), {sequences, heads, asking});
  Options options;
  options.scale_per_head = view(scale_.data(), {heads});
  options.executor = &serial_executor();
  Extras extras;
  extras.stats = stats;
  extras.row_max = &row_max;
  extras.row_sum = &row_sum;
  expect_done(attention(heads_view(query_.data(), sequences, heads, asking, head_dim),
                        heads_view(key_.data(), sequences, heads, asked, head_dim),
                        heads_view(value_.data(), sequences, heads, asked, value_dim),
                        heads_view(mixed_.data(), sequences, heads, asking, value_dim), options,
                        extras));
  to_output_.forward(mixed_, y);
}

template <class S>
void AttentionLayer<S>::backward(const ConstRows<S>& query_rows, const ConstRows<S>& key_rows,
                                 const TokenCounts& counts, const Matrix<S>& dy,
                                 Rows<S> dquery_rows, Rows<S> dkey_rows, Stats* stats) {
  const auto [width, heads, head_dim, value_dim] = shape_;
  const auto [sequences, asking, asked] = counts;
  Matrix<S> dmixed = Matrix<S>::Zero(mixed_.rows(), mixed_.cols());
  to_output_.backward(mixed_, dy, dmixed);
  Matrix<S> dquery(query_.rows(), query_.cols()), dkey(key_.rows(), key_.cols());
  Matrix<S> dvalue(value_.rows(), value_.cols()), dscale(1, heads);
  Forward forward;
  forward.out = heads_view(mixed_.data(), sequences, heads, asking, value_dim);
  forward.row_max = view(row_max_.data(), {sequences, heads, asking});
  forward.row_sum = view(row_sum_.data(), {sequences, heads, asking});
  OutGradient given;
  given.dout = heads_view(dmixed.data(), sequences, heads, asking, value_dim);
  Gradients gradients;
  gradients.dq = heads_view(dquery.data(), sequences, heads, asking, head_dim);
  gradients.dk = heads_view(dkey.data(), sequences, heads, asked, head_dim);
  gradients.dv = heads_view(dvalue.data(), sequences, heads, asked, value_dim);
  if (rule_ == ScaleRule::learned) gradients.dscale = view(dscale.data(), {heads});
  Options options;
  options.scale_per_head = view(scale_.data(), {heads});
  options.executor = &serial_executor();
  expect_done(poise::backward(heads_view(query_.data(), sequences, heads, asking, head_dim),
                              heads_view(key_.data(), sequences, heads, asked, head_dim),
                              heads_view(value_.data(), sequences, heads, asked, value_dim),
                              forward, given, gradients, options, stats));
  if (rule_ == ScaleRule::learned) log_factor_.gradient = dscale.cwiseProduct(scale_);
  if (rule_ == ScaleRule::qk_norm) {
    query_norm_.backward(dquery, dquery);
    key_norm_.backward(dkey, dkey);
  }
  to_query_.backward(query_rows, dquery, dquery_rows);
  to_key_.backward(key_rows, dkey, dkey_rows);
  to_value_.backward(key_rows, dvalue, dkey_rows);
}

template <class S>
void AttentionLayer<S>::append_to(std::vector<Parameter<S>*>& parameters) {
  for (Linear<S>* linear : {&to_query_, &to_key_, &to_value_, &to_output_})
    linear->append_to(parameters);
  if (rule_ == ScaleRule::learned) parameters.push_back(&log_factor_);
  if (rule_ == ScaleRule::qk_norm) {
    query_norm_.append_to(parameters);
    key_norm_.append_to(parameters);
  }
}

template class AttentionLayer<float>;
template class AttentionLayer<double>;

}  // namespace poise::lab::training
