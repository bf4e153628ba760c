// Running backward(), and parts of problems and gradients.
//
// In: problems. Out: GradientOutputs. Every gradient tensor starts as NaN, so an element that is
// not written shows.
#include "support/gradient_run.h"

#include <stdexcept>

#include "support/slices.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

Extents extents_of(const TensorBuffer& tensor) {
  Extents extents;
  for (int axis = 0; axis < tensor.view().rank; ++axis) extents.push_back(tensor.extent(axis));
  return extents;
}

}  // namespace

ForwardState::ForwardState(const Problem& problem, const StatsRequest& request) {
  const Outputs o = test::run(problem, {.stats = request});
  if (o.error) throw std::runtime_error(o.error.message() + "; " + problem.describe());
  out = o.out;
  row_max = o.row_max;
  row_sum = o.row_sum;
  lse = o.lse;
  stats = o.stats;
  stats.request = request;  // where level off left it alone
}

std::vector<std::pair<const char*, const TensorBuffer*>> GradientOutputs::tensors() const {
  return {{"dq", &dq},         {"dk", &dk},         {"dv", &dv},          {"dbias", &dbias},
          {"dsinks", &dsinks}, {"dscale", &dscale}, {"dslopes", &dslopes}};
}

GradientOutputs run(const GradientProblem& g, const ForwardState& state, const GradientWish& wish) {
  const Problem& p = g.problem;
  const Shape& s = p.shape;
  const DType numbers = p.number_dtype();
  GradientOutputs o;
  auto make = [&](bool wanted, DType dtype, const Extents& extents) {
    return wanted ? TensorBuffer(dtype, extents, wish.layout, wish.placement) : TensorBuffer();
  };
  o.dq = make(wish.dq, p.dtype, {s.batch, s.q_heads, s.q_len, s.head_dim});
  o.dk = make(wish.dk, p.dtype, {s.batch, s.kv_heads, s.kv_len, s.head_dim});
  o.dv = make(wish.dv, p.dtype, {s.batch, s.kv_heads, s.kv_len, s.value_dim});
  const Extents bias = p.bias.given() ? extents_of(p.bias) : wish.bias_extents;
  o.dbias = make(wish.dbias && (p.bias.given() || !bias.empty()), numbers, bias);
  o.dsinks = make(wish.dsinks, numbers, {s.q_heads});
  o.dscale = make(wish.dscale, numbers, {wish.scale_per_head ? s.q_heads : 1});
  o.dslopes = make(wish.dslopes && p.alibi_slopes.given(), numbers, extents_of(p.alibi_slopes));

  Forward forward;
  forward.out = state.out.view();
  if (wish.from_lse) {
    forward.lse = state.lse.view();
  } else {
    forward.row_max = state.row_max.view();
    forward.row_sum = state.row_sum.view();
  }
  Options options = p.call_options();
  const CallThreads threads(options, wish.executor, wish.threads);
  o.stats = state.stats;
  o.error = backward(p.query.view(), p.key.view(), p.value.view(), forward,
                     {g.dout.view(), g.dlse.view()},
                     {o.dq.view(), o.dk.view(), o.dv.view(), o.dbias.view(), o.dsinks.view(),
                      o.dscale.view(), o.dslopes.view()},
                     options, wish.statistics ? &o.stats : nullptr);
  return o;
}

GradientOutputs run(const GradientProblem& g, const GradientWish& wish) {
  return run(g, ForwardState(g.problem), wish);
}

GradientOutputs measured_run(const GradientProblem& g, const StatsRequest& request,
                             GradientWish wish) {
  wish.statistics = true;
  return run(g, ForwardState(g.problem, request), wish);
}

std::string difference(const GradientOutputs& a, const GradientOutputs& b,
                       const std::string& when) {
  for (const GradientOutputs* o : {&a, &b})
    if (o->error) return when + ": " + o->error.message();
  const auto of_a = a.tensors(), of_b = b.tensors();
  for (std::size_t n = 0; n < of_a.size(); ++n) {
    if (!of_a[n].second->given() || !of_b[n].second->given()) continue;
    const std::string found = first_difference(*of_a[n].second, *of_b[n].second);
    if (!found.empty()) return when + ": " + of_a[n].first + ' ' + found;
  }
  return {};
}

GradientOutputs batch_entry(const GradientOutputs& whole, std::int64_t b) {
  GradientOutputs part;
  part.error = whole.error;
  part.dq = whole.dq.sliced(0, b, 1);
  part.dk = whole.dk.sliced(0, b, 1);
  part.dv = whole.dv.sliced(0, b, 1);
  return part;
}

GradientProblem batch_entry(const GradientProblem& whole, std::int64_t b) {
  GradientProblem part = whole;
  part.problem = batch_entry(whole.problem, b);
  part.dout = whole.dout.sliced(0, b, 1);
  if (whole.dlse.given()) part.dlse = whole.dlse.sliced(0, b, 1);
  return part;
}

GradientProblem query_chunk(const GradientProblem& whole, std::int64_t begin, std::int64_t count) {
  GradientProblem part = whole;
  part.problem = query_chunk(whole.problem, begin, count);
  part.dout = whole.dout.sliced(2, begin, count);
  if (whole.dlse.given()) part.dlse = whole.dlse.sliced(2, begin, count);
  return part;
}

GradientOutputs query_chunk(const GradientOutputs& whole, std::int64_t begin, std::int64_t count) {
  GradientOutputs part;
  part.error = whole.error;
  part.dq = whole.dq.sliced(2, begin, count);
  return part;
}

TensorBuffer broadcast(const TensorBuffer& tensor, const Shape& shape) {
  if (!tensor.given()) return {};
  const Extents extents = {shape.batch, shape.q_heads, shape.q_len, shape.kv_len};
  TensorBuffer full(tensor.dtype(), extents);
  const int first = kMaxRank - tensor.view().rank;
  for (std::int64_t n = 0; n < full.count(); ++n) {
    std::int64_t rest = n, index = 0, step = 1;
    for (int axis = kMaxRank - 1; axis >= 0; --axis) {
      const std::int64_t place = rest % extents[static_cast<std::size_t>(axis)];
      rest /= extents[static_cast<std::size_t>(axis)];
      if (axis < first) continue;
      if (tensor.extent(axis - first) != 1) index += place * step;
      step *= tensor.extent(axis - first);
    }
    full.set(n, tensor.at(index));
  }
  return full;
}

}  // namespace poise::test
