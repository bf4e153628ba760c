// The model's forward and backward: layers in a row.
//
// In and out: model.h. Rows of pairs and of queries share one matrix, so that the first norm sees
// all of them and its gradients are whole at once.
#include "lab/training/model.h"

#include "lab/training/streams.h"

namespace poise::lab::training {
namespace {

TokenCounts counts_of(const BatchShape& shape) {
  return {shape.sequences, shape.queries, shape.pairs};
}

}  // namespace

template <class S>
Model<S>::Model(const AttentionShape& attention, const BatchShape& tokens, ScaleRule rule,
                std::uint64_t seed)
    : keys_(tokens.keys, attention.width, stream(seed, Purpose::key_embedding)),
      values_(tokens.values, attention.width, stream(seed, Purpose::value_embedding)),
      norm_(Norm<S>::Kind::layer, attention.width),
      attention_(attention, rule, seed),
      last_norm_(Norm<S>::Kind::layer, attention.width),
      head_(attention.width, tokens.values, Linear<S>::Bias::present,
            stream(seed, Purpose::head_weight)),
      hidden_(0, attention.width) {}

template <class S>
Score Model<S>::forward(const Batch& batch, Stats* stats) {
  const Index pairs = static_cast<Index>(batch.keys.size());
  const Index queries = static_cast<Index>(batch.queries.size());
  Matrix<S> x = Matrix<S>::Zero(pairs + queries, hidden_.cols());
  keys_.forward(batch.keys, x.topRows(pairs));
  values_.forward(batch.values, x.topRows(pairs));
  keys_.forward(batch.queries, x.bottomRows(queries));
  norm_.forward(x, hidden_);
  attention_.forward(hidden_.bottomRows(queries), hidden_.topRows(pairs), counts_of(batch.shape),
                     mixed_, stats);
  mixed_ += x.bottomRows(queries);
  last_norm_.forward(mixed_, last_);
  Matrix<S> logits;
  head_.forward(last_, logits);
  return cross_entropy(logits, batch.targets, &dlogits_);
}

template <class S>
void Model<S>::backward(const Batch& batch, Stats* stats) {
  const Index pairs = static_cast<Index>(batch.keys.size());
  const Index queries = static_cast<Index>(batch.queries.size());
  Matrix<S> dmixed = Matrix<S>::Zero(queries, hidden_.cols());
  head_.backward(last_, dlogits_, dmixed);
  last_norm_.backward(dmixed, dmixed);
  Matrix<S> dx = Matrix<S>::Zero(pairs + queries, hidden_.cols());
  attention_.backward(hidden_.bottomRows(queries), hidden_.topRows(pairs), counts_of(batch.shape),
                      dmixed, dx.bottomRows(queries), dx.topRows(pairs), stats);
  norm_.backward(dx, dx);
  dx.bottomRows(queries) += dmixed;
  values_.backward({batch.values}, {dx.topRows(pairs)});
  keys_.backward({batch.keys, batch.queries}, {dx.topRows(pairs), dx.bottomRows(queries)});
}

template <class S>
std::vector<Parameter<S>*> Model<S>::parameters() {
  std::vector<Parameter<S>*> all;
  keys_.append_to(all);
  values_.append_to(all);
  norm_.append_to(all);
  attention_.append_to(all);
  last_norm_.append_to(all);
  head_.append_to(all);
  return all;
}

template class Model<float>;
template class Model<double>;

}  // namespace poise::lab::training
