// Multi-head attention of the training model: projections around poise::attention and backward.
//
// In: rows of tokens that ask and rows of tokens that are asked, one block of rows per sequence.
// Out: rows of the same width; on request the library's own statistics of forward and backward.
// Must not happen here: a softmax. What is measured is what poise computes and measures.
#pragma once

#include <poise/stats.h>

#include <cstdint>
#include <vector>

#include "lab/training/layers.h"
#include "lab/training/settings.h"

namespace poise::lab::training {

// Tokens of a batch: `asking` queries and `asked` keys in each of `sequences`.
struct TokenCounts {
  Index sequences = 0, asking = 0, asked = 0;
};

template <class S>
class AttentionLayer {
 public:
  // Value and output weights are the same for every head_dim and rule of a seed, query and key
  // weights for every rule.
  AttentionLayer(const AttentionShape& shape, ScaleRule rule, std::uint64_t seed);

  // query_rows [sequences * asking, width], key_rows [sequences * asked, width]; y like query_rows.
  // stats: null, or overwritten with the call's statistics.
  void forward(const ConstRows<S>& query_rows, const ConstRows<S>& key_rows,
               const TokenCounts& counts, Matrix<S>& y, Stats* stats);
  // Of the last forward. Adds to dquery_rows and dkey_rows. stats: null, or those forward filled,
  // to which the gradient's are added.
  void backward(const ConstRows<S>& query_rows, const ConstRows<S>& key_rows,
                const TokenCounts& counts, const Matrix<S>& dy, Rows<S> dquery_rows,
                Rows<S> dkey_rows, Stats* stats);
  void append_to(std::vector<Parameter<S>*>& parameters);

  double scale(Index head) const { return static_cast<double>(scale_(0, head)); }

 private:
  AttentionShape shape_;
  ScaleRule rule_;
  Linear<S> to_query_, to_key_, to_value_, to_output_;
  Norm<S> query_norm_, key_norm_;
  Parameter<S> log_factor_;  // [1, heads]: t of ScaleRule::learned
  Matrix<S> scale_;          // [1, heads]: of the last forward
  Matrix<S> query_, key_, value_, mixed_, row_max_, row_sum_;
};

}  // namespace poise::lab::training
