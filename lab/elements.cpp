// Drawing of vectors and moments of their dot products. In: kinds, sizes. Out: vectors, numbers.
// Must not happen here: a measurement.
#include "lab/elements.h"

#include <poise/attention.h>

#include <cmath>

namespace poise::lab {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Mean 0 and mean square 1, without gain and bias (Ba, Kiros & Hinton 2016).
void normalise(std::span<float> x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, square = 0;
  for (const float value : x) mean += static_cast<double>(value) / n;
  for (const float value : x) square += std::pow(static_cast<double>(value) - mean, 2) / n;
  for (float& value : x)
    value = static_cast<float>((static_cast<double>(value) - mean) / std::sqrt(square));
}

Error project(const VectorShape& shape, std::int64_t count, Random& random,
              std::vector<float>* vectors) {
  std::vector<float> x(index(count * shape.model_dim)), w(index(shape.head_dim * shape.model_dim));
  random.fill_normal(x);
  for (std::size_t row = 0; row < x.size(); row += index(shape.model_dim))
    normalise(std::span(x).subspan(row, index(shape.model_dim)));
  const double bound = std::sqrt(3 / static_cast<double>(shape.model_dim));
  for (float& weight : w) weight = static_cast<float>(bound * (2 * random.uniform() - 1));
  // x W^T is what attention() hands out as the scores of queries x and keys W.
  const std::vector<float> value(index(shape.head_dim));
  std::vector<float> out(index(count));
  const Tensor scores = view(vectors->data(), {1, 1, count, shape.head_dim});
  Options options;
  options.scale = 1;
  options.executor = &serial_executor();
  Extras extras;
  extras.scores = &scores;
  return attention(view(x.data(), {1, 1, count, shape.model_dim}),
                   view(w.data(), {1, 1, shape.head_dim, shape.model_dim}),
                   view(value.data(), {1, 1, shape.head_dim, 1}),
                   view(out.data(), {1, 1, count, 1}), options, extras);
}

// Excess kurtosis of one element of a layer_norm vector, over W: a sum of uniform weights.
double projected_kurtosis(const VectorShape& shape) {
  const auto m = static_cast<double>(shape.model_dim);
  const double fourth = 3 * (m - 1) / (m + 1);  // mean of x^4 over LayerNorm's output
  return -1.2 * fourth / m;
}

}  // namespace

const char* name(Elements elements) {
  switch (elements) {
    case Elements::gaussian:
      return "Gaussian";
    case Elements::uniform:
      return "uniform";
    case Elements::signs:
      return "+-1";
    case Elements::layer_norm:
      return "LayerNorm";
    case Elements::correlated:
      return "correlated";
  }
  return "?";
}

bool independent(Elements elements) { return elements != Elements::correlated; }

Error draw_vectors(Elements elements, const VectorShape& shape, std::int64_t count, Random& random,
                   std::vector<float>* vectors) {
  vectors->resize(index(count * shape.head_dim));
  switch (elements) {
    case Elements::gaussian:
      random.fill_normal(*vectors);
      return {};
    case Elements::uniform:
      for (float& x : *vectors) x = static_cast<float>(std::sqrt(3.0) * (2 * random.uniform() - 1));
      return {};
    case Elements::signs:
      for (float& x : *vectors) x = random.uniform() < 0.5 ? -1.0F : 1.0F;
      return {};
    case Elements::layer_norm:
      return project(shape, count, random, vectors);
    case Elements::correlated:
      random.fill_normal(*vectors);
      for (std::size_t row = 0; row < vectors->size(); row += index(shape.head_dim)) {
        const double common = std::sqrt(shape.correlation) * random.normal();
        const double own = std::sqrt(1 - shape.correlation);
        for (float& x : std::span(*vectors).subspan(row, index(shape.head_dim)))
          x = static_cast<float>(common + own * static_cast<double>(x));
      }
      return {};
  }
  return {};
}

double expected_variance(Elements elements, const VectorShape& shape) {
  const auto d = static_cast<double>(shape.head_dim);
  // tr(Sigma Sigma), Sigma = (1 - rho) I + rho 1 1^T.
  if (!independent(elements)) return d * (1 + (d - 1) * std::pow(shape.correlation, 2));
  return d;
}

double expected_kurtosis(Elements elements, const VectorShape& shape) {
  const auto d = static_cast<double>(shape.head_dim);
  const auto of_element = [&](double kurtosis) { return (kurtosis * kurtosis - 3) / d; };
  switch (elements) {
    case Elements::gaussian:
      return of_element(3);
    case Elements::uniform:
      return of_element(1.8);
    case Elements::signs:
      return of_element(1);
    case Elements::layer_norm:
      return of_element(3 + projected_kurtosis(shape));
    case Elements::correlated: {
      // q.k = sum over eigenvalues of lambda x y: fourth cumulant 6 sum lambda^4.
      const double own = 1 - shape.correlation, common = own + d * shape.correlation;
      const double second = (d - 1) * std::pow(own, 2) + std::pow(common, 2);
      return 6 * ((d - 1) * std::pow(own, 4) + std::pow(common, 4)) / (second * second);
    }
  }
  return 0;
}

}  // namespace poise::lab
