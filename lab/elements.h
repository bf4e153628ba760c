// Vectors of mean 0 and variance 1 per component, of several kinds, and what theory says of the dot
// product of two of them.
//
// In: a kind and sizes. Out: vectors; variance and excess kurtosis of q.k. Independent elements of
// mean 0 and variance 1 give Var(q.k) = D exactly, whatever their distribution (Bienayme; Vaswani
// et al. 2017, 1706.03762, footnote 4), and an excess kurtosis of (kappa_q kappa_k - 3)/D, kappa
// the kurtosis of an element. Must not happen here: a measurement.
#pragma once

#include <poise/error.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lab/random.h"

namespace poise::lab {

enum class Elements : std::uint8_t {
  gaussian,    // standard normal
  uniform,     // on [-sqrt(3), sqrt(3)]
  signs,       // -1 or 1
  layer_norm,  // W x: x the LayerNorm of a normal vector of model_dim components, W Xavier-uniform
  correlated,  // normal, any two components of a vector correlated by `correlation`
};
inline constexpr std::array<Elements, 5> kElements{Elements::gaussian, Elements::uniform,
                                                   Elements::signs, Elements::layer_norm,
                                                   Elements::correlated};
const char* name(Elements elements);  // "Gaussian", "uniform", "+-1", "LayerNorm", "correlated"
bool independent(Elements elements);  // whether the components of a vector are uncorrelated

struct VectorShape {
  std::int64_t head_dim = 64;    // D, components of q and k
  std::int64_t model_dim = 512;  // of what LayerNorm sees
  double correlation = 0.1;      // of correlated components
};

// Draws `count` vectors, [count, head_dim]. Vectors of one call of kind layer_norm share W, which
// is fresh for every call: uniform on +-sqrt(3 / model_dim), Xavier's (Glorot & Bengio 2010) for a
// square matrix, of which a head is a slice. The projection is the scores of a call of attention().
Error draw_vectors(Elements elements, const VectorShape& shape, std::int64_t count, Random& random,
                   std::vector<float>* vectors);

// Of q.k of two independent vectors of the same kind; for layer_norm, over W as well.
double expected_variance(Elements elements, const VectorShape& shape);
double expected_kurtosis(Elements elements, const VectorShape& shape);

}  // namespace poise::lab
