// The dense layers of the training model: embeddings, linear maps, norms, the loss; each with its
// backward written by hand.
//
// In: rows of activations, and in backward the gradient of the loss with respect to the layer's
// output. Out: activations; gradients of the parameters, overwritten, and of the input, added to
// what is there. forward keeps what backward needs. Must not happen here: attention.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/random.h"
#include "lab/training/matrix.h"

namespace poise::lab::training {

// y = x W + b, W [in, out] drawn from a normal of variance 1 / in: of inputs with unit variance the
// outputs have unit variance. b starts at 0.
template <class S>
class Linear {
 public:
  enum class Bias : bool { absent, present };
  Linear(Index in, Index out, Bias bias, Random random);

  void forward(const ConstRows<S>& x, Matrix<S>& y) const;
  void backward(const ConstRows<S>& x, const ConstRows<S>& dy, Rows<S> dx);
  void append_to(std::vector<Parameter<S>*>& parameters);

 private:
  Parameter<S> weight_, bias_;  // bias [1, out], or empty
};

// Rows of a table by number, [count, width], standard normal at the start.
template <class S>
class Embedding {
 public:
  Embedding(Index count, Index width, Random random);

  // Adds row `ids[i]` to row i of x.
  void forward(const std::vector<int>& ids, Rows<S> x) const;
  void backward(const std::vector<std::vector<int>>& ids, const std::vector<ConstRows<S>>& dx);
  void append_to(std::vector<Parameter<S>*>& parameters);

 private:
  Parameter<S> table_;
};

// y = gain x / sqrt(mean x^2 + kEpsilon), per group of `width` neighbouring elements of a row. With
// Kind::layer the mean of the group goes first (LayerNorm, Ba et al. 2016, 1607.06450) and a bias
// is added; Kind::rms is RMSNorm (Zhang & Sennrich 2019, 1910.07467). Gain starts at 1, bias at 0.
template <class S>
class Norm {
 public:
  enum class Kind : std::uint8_t { layer, rms };
  static constexpr double kEpsilon = 1e-5;
  Norm(Kind kind, Index width);

  // x: any rows whose length is a multiple of the width, without gaps between them. y may be x.
  void forward(const Matrix<S>& x, Matrix<S>& y);
  // Overwrites dx, which may be dy.
  void backward(const Matrix<S>& dy, Matrix<S>& dx);
  void append_to(std::vector<Parameter<S>*>& parameters);

 private:
  Kind kind_;
  Parameter<S> gain_, bias_;  // [1, width]
  Matrix<S> normal_;          // [groups, width]: the group before gain and bias
  Matrix<S> factor_;          // [groups, 1]: 1 / sqrt(...)
};

struct Score {
  double loss = 0;      // cross-entropy, nats, mean over rows
  double accuracy = 0;  // share of rows whose largest logit is the target's
};

// Cross-entropy of softmax(logits) against the targets. dlogits, unless null, is overwritten with
// the gradient of the mean loss.
template <class S>
Score cross_entropy(const Matrix<S>& logits, const std::vector<int>& targets, Matrix<S>* dlogits);

}  // namespace poise::lab::training
