// Errors of gradients, pooled per gradient and compared with those of the plain computation.
//
// In: sizes. Out: GoogleTest failures. The truth is the definition in a wider type.
#include "support/gradient_accuracy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "support/gradient_run.h"
#include "support/isa.h"

namespace poise::test {
namespace {

// Sixteen, and of few keys as many as leave every gradient but those per head numbers enough for an
// rms that is known to some percent.
int seeds_for(std::int64_t kv_len) {
  return static_cast<int>(std::max<std::int64_t>(16, 2048 / kv_len));
}
constexpr const char* kNames[] = {"dq", "dk", "dv", "dbias", "dsinks", "dscale", "dslopes"};
using GradientErrors = std::array<Errors, std::size(kNames)>;

GradientProblem accuracy_problem(DType dtype, std::int64_t kv_len, double spread, int seed,
                                 bool options) {
  // Head dim 64: the default scale is exact, so it adds no error of its own.
  const std::int64_t rows = std::min<std::int64_t>(kv_len, 64);
  Problem p = make_problem({1, 2, 1, rows, kv_len, 64, 64}, dtype,
                           static_cast<std::uint64_t>(900 + seed), spread);
  Rng rng(static_cast<std::uint64_t>(seed));
  p.bias = TensorBuffer(p.number_dtype(), Extents{kv_len});
  p.bias.fill([] { return 0.0; });
  if (options) {
    add_random_bias(p, rng, p.number_dtype(), {kv_len}, 0);
    p.options.causal = Causal::bottom_right();
    p.options.softcap = 20;
    add_alibi(p);
    p.sinks = TensorBuffer(p.number_dtype(), Extents{2});
    p.sinks.fill([&] { return 2 * rng.normal(); });
  }
  return gradient_problem(p, static_cast<std::uint64_t>(seed), options, false);
}

// The gradients in the order of kNames, as the call writes them.
template <class T>
std::array<std::vector<T>, std::size(kNames)> arranged(const ReferenceGradients<T>& g) {
  return {g.dquery, g.dkey, g.dvalue, g.dbias, g.dsinks, g.dscale, g.dslopes};
}

DType dtype_of(const Problem& p, std::size_t gradient) {
  return gradient < 3 ? p.dtype : p.number_dtype();
}

template <class Truth>
void add(const std::array<std::vector<Truth>, std::size(kNames)>& truth, std::size_t gradient,
         const std::vector<double>& got, GradientErrors& errors) {
  for (std::size_t n = 0; n < got.size(); ++n)
    errors[gradient].add(static_cast<double>(static_cast<Truth>(got[n]) - truth[gradient][n]));
}

// Of every instruction set, in the order of available_isas(), and of the plain computation.
struct Pooled {
  std::vector<GradientErrors> isas = std::vector<GradientErrors>(available_isas().size());
  GradientErrors plain;
};

// from_out: the plain computation starts from the out that forward has handed out.
template <class Plain, class Truth>
Pooled pool(DType dtype, std::int64_t kv_len, double spread, bool options, bool from_out) {
  const std::vector<std::string> isas = available_isas();
  Pooled errors;
  for (int seed = 0; seed < seeds_for(kv_len); ++seed) {
    const GradientProblem g = accuracy_problem(dtype, kv_len, spread, seed, options);
    const auto truth = arranged(reference_gradients_of<Truth>(g));
    const TensorBuffer out = ForwardState(g.problem).out;
    const auto plain =
        arranged(reference_gradients_of<Plain>(g, from_out ? out.view() : ConstTensor()));
    for (std::size_t k = 0; k < std::size(kNames); ++k)
      add(truth, k, rounded(plain[k], dtype_of(g.problem, k)), errors.plain);
    for (std::size_t n = 0; n < isas.size(); ++n) {
      const IsaScope scope(isas[n]);
      const GradientOutputs o = run(g, {.bias_extents = {}, .scale_per_head = true});
      if (o.error) throw std::runtime_error(o.error.message());
      const auto tensors = o.tensors();
      for (std::size_t k = 0; k < std::size(kNames); ++k)
        if (tensors[k].second->given()) add(truth, k, tensors[k].second->values(), errors.isas[n]);
    }
  }
  return errors;
}

std::string words(std::size_t isa, DType dtype, std::size_t gradient, std::int64_t kv_len,
                  double spread) {
  return std::string(kNames[gradient]) + ", " + available_isas()[isa] + ' ' + name(dtype) +
         " Lk=" + std::to_string(kv_len) + " spread=" + std::to_string(spread);
}

}  // namespace

void check_gradient_accuracy(DType dtype, std::int64_t kv_len, const std::vector<double>& spreads,
                             bool options) {
  for (double spread : spreads) {
    const Pooled errors = dtype == DType::f64
                              ? pool<double, long double>(dtype, kv_len, spread, options, true)
                              : pool<float, double>(dtype, kv_len, spread, options, true);
    for (std::size_t n = 0; n < errors.isas.size(); ++n)
      for (std::size_t k = 0; k < std::size(kNames); ++k)
        expect_within(errors.isas[n][k], errors.plain[k], dtype,
                      words(n, dtype, k, kv_len, spread) + (options ? " with options" : ""));
  }
}

void check_cost_of_a_rounded_out(DType dtype, std::int64_t kv_len, double spread, double most) {
  const Pooled errors = pool<float, double>(dtype, kv_len, spread, false, false);
  for (std::size_t n = 0; n < errors.isas.size(); ++n)
    for (std::size_t k = 0; k < 2; ++k)  // dq and dk
      EXPECT_LE(std::sqrt(errors.isas[n][k].squares), most * std::sqrt(errors.plain[k].squares))
          << words(n, dtype, k, kv_len, spread);
}

}  // namespace poise::test
