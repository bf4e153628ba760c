// Running forward and backward with statistics, outputs in memory of their own. The contract is in
// measured_call.h.
#include "support/measured_call.h"

namespace poise::test {

MeasuredCall measured_call(const GradientProblem& g, const StatsRequest& request,
                           const HowToMeasure& how) {
  const Problem& p = g.problem;
  const Shape& s = p.shape;
  const Outputs o = run(p, {.stats = request});
  MeasuredCall call;
  call.error = o.error;
  if (call.error) return call;
  if (!how.fresh_stats) call.stats = o.stats;
  call.stats.request = request;
  call.dq = TensorBuffer(p.dtype, {s.batch, s.q_heads, s.q_len, s.head_dim});
  call.dk = TensorBuffer(p.dtype, {s.batch, s.kv_heads, s.kv_len, s.head_dim});
  call.dv = TensorBuffer(p.dtype, {s.batch, s.kv_heads, s.kv_len, s.value_dim});
  Forward forward;
  forward.out = o.out.view();
  if (how.from_lse) {
    forward.lse = o.lse.view();
  } else {
    forward.row_max = o.row_max.view();
    forward.row_sum = o.row_sum.view();
  }
  Options options = p.call_options();
  options.executor = how.executor;
  options.threads = how.threads;
  Gradients gradients;
  gradients.dq = call.dq.view();
  gradients.dk = call.dk.view();
  gradients.dv = call.dv.view();
  call.error = backward(p.query.view(), p.key.view(), p.value.view(), forward,
                        {g.dout.view(), g.dlse.view()}, gradients, options, &call.stats);
  return call;
}

}  // namespace poise::test
