// The model of the training experiment: one pre-norm attention block between embeddings and a
// linear head.
//
//   pair token   x = key embedding + value embedding        query token   x = key embedding
//   h = LayerNorm(x)     y = x + attention(h of queries -> h of pairs)     logits = LayerNorm(y) W
//   + b
// No token has a position: neither task depends on the order. In: batches. Out: loss, accuracy, the
// gradients of every parameter, the library's statistics. Must not happen here: an update.
#pragma once

#include <poise/stats.h>

#include <cstdint>
#include <vector>

#include "lab/training/attention_layer.h"
#include "lab/training/task.h"

namespace poise::lab::training {

template <class S>
class Model {
 public:
  // The same seed draws the same weights for every rule, and for every head_dim but those of
  // queries and keys.
  Model(const AttentionShape& attention, const BatchShape& tokens, ScaleRule rule,
        std::uint64_t seed);

  Score forward(const Batch& batch, Stats* stats = nullptr);
  // Of the batch that forward saw last; stats are forward's.
  void backward(const Batch& batch, Stats* stats = nullptr);

  // Everything that is learned, in a fixed order.
  std::vector<Parameter<S>*> parameters();
  const AttentionLayer<S>& attention() const { return attention_; }

 private:
  Embedding<S> keys_, values_;
  Norm<S> norm_;
  AttentionLayer<S> attention_;
  Norm<S> last_norm_;
  Linear<S> head_;
  Matrix<S> hidden_, mixed_, last_, dlogits_;  // hidden: all pairs, then all queries
};

}  // namespace poise::lab::training
