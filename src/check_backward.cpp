// The rules of backward(): what forward left, the gradient that comes in, those that go out.
// See check.h and check_gradient.h. Options and query, key and value are judged by the rules of
// forward.
#include "check_gradient.h"

#include "check_options.h"
#include "check_view.h"

namespace poise {
namespace {

constexpr const char* kBackward = "backward";

Argument at(const char* name) { return {kBackward, name}; }

Error check_dbias(const Tensor& dbias, BackwardProblem* checked) {
  const Problem& p = checked->problem;
  checked->dbias = {};
  if (!dbias.given()) return {};
  if (Error error = check_numbers(at("dbias"), dbias, p)) return error;
  ConstTensor full;
  if (Error error = check_broadcast(at("dbias"), dbias, true, p, &full)) return error;
  const ConstTensor& bias = p.options.bias;
  if (bias.given()) {
    bool same = bias.rank == dbias.rank;
    for (int axis = 0; same && axis < bias.rank; ++axis)
      same = bias.extent(axis) == dbias.extent(axis);
    if (!same)
      return refuse(ErrorCode::bad_shape, at("dbias"), "extents {} differ from those of bias, {}",
                    {text(dbias), text(bias)});
  }
  // Nothing to write, and strides of 0 that no broadcast meant.
  for (int axis = 0; axis < dbias.rank; ++axis)
    if (dbias.extent(axis) == 0) return {};
  checked->dbias = {dbias.data, full.dtype, full.rank, full.extents, full.strides};
  return {};
}

Error check_dsinks(const Tensor& dsinks, const Problem& p) {
  if (!dsinks.given()) return {};
  if (Error error = check_numbers(at("dsinks"), dsinks, p)) return error;
  if (Error error = check_extents(at("dsinks"), dsinks, {p.q_heads}, "[Hq]")) return error;
  return check_layout(at("dsinks"), dsinks);
}

Error check_dscale(const Tensor& dscale, const Problem& p) {
  if (!dscale.given()) return {};
  if (Error error = check_numbers(at("dscale"), dscale, p)) return error;
  if (Error error = check_rank(at("dscale"), dscale, 1, "[1] or [Hq]")) return error;
  if (dscale.extent(0) != 1 && dscale.extent(0) != p.q_heads)
    return refuse(ErrorCode::bad_shape, at("dscale"), "extents {} are neither [1] nor [Hq] = {}",
                  {text(dscale), text({p.q_heads})});
  return check_layout(at("dscale"), dscale);
}

Error check_dslopes(const Tensor& dslopes, const Problem& p) {
  if (!dslopes.given()) return {};
  const ConstTensor& slopes = p.options.alibi_slopes;
  if (!slopes.given())
    return refuse(ErrorCode::bad_value, at("dslopes"), "given without alibi_slopes", {});
  if (Error error = check_numbers(at("dslopes"), dslopes, p)) return error;
  const Error error =
      slopes.rank == 2
          ? check_extents(at("dslopes"), dslopes, {p.batch, p.q_heads}, "[B, Hq] of alibi_slopes")
          : check_extents(at("dslopes"), dslopes, {p.q_heads}, "[Hq] of alibi_slopes");
  if (error) return error;
  return check_layout(at("dslopes"), dslopes);
}

Error check_gradients(const Gradients& gradients, BackwardProblem* checked) {
  const Problem& p = checked->problem;
  if (Error error = check_like(at("dq"), gradients.dq, "query", p.query, "[B, Hq, Lq, D]"))
    return error;
  if (Error error = check_like(at("dk"), gradients.dk, "key", p.key, "[B, Hkv, Lk, D]"))
    return error;
  if (Error error = check_like(at("dv"), gradients.dv, "value", p.value, "[B, Hkv, Lk, Dv]"))
    return error;
  if (Error error = check_dbias(gradients.dbias, checked)) return error;
  if (Error error = check_dsinks(gradients.dsinks, p)) return error;
  if (Error error = check_dscale(gradients.dscale, p)) return error;
  return check_dslopes(gradients.dslopes, p);
}

// Statistics that no call has filled, or forward's of the same heads.
Error check_statistics(const Stats& stats, const Problem& p) {
  if (Error error = check_stats_request(kBackward, stats.request, p.numbers)) return error;
  if (stats.heads.empty()) return {};
  const auto heads = static_cast<std::int64_t>(stats.heads.size());
  const struct {
    const char* what;
    std::int64_t theirs, ours;
  } sizes[] = {{"heads", heads, p.q_heads},
               {"kv_heads", stats.kv_heads, p.kv_heads},
               {"head_dim", stats.head_dim, p.head_dim}};
  for (const auto& size : sizes)
    if (size.theirs != size.ours)
      return refuse(ErrorCode::bad_shape, at("stats"),
                    "{} {}, expected {} as in this call, or no heads at all",
                    {size.what, text(size.theirs), text(size.ours)});
  if (stats.softcap != p.softcap)
    return refuse(ErrorCode::bad_value, at("stats"), "softcap {}, expected {} as in this call",
                  {text(stats.softcap), text(p.softcap)});
  for (std::int64_t head = 0; head < heads; ++head) {
    const double scale = stats.heads[static_cast<std::size_t>(head)].scale;
    if (scale != p.scale(head))
      return refuse(ErrorCode::bad_value, at("stats"),
                    "head {} has scale {}, expected {} as in this call",
                    {text(head), text(scale), text(p.scale(head))});
  }
  return {};
}

Error check_aliases(const BackwardProblem& checked) {
  AliasCheck aliases(kBackward, false);
  read_inputs(checked.problem, &aliases);
  read_forward(checked.forward, &aliases);
  read_gradient(checked.gradient, &aliases);
  aliases.writes("dq", checked.gradients.dq);
  aliases.writes("dk", checked.gradients.dk);
  aliases.writes("dv", checked.gradients.dv);
  aliases.writes("dbias", checked.gradients.dbias);
  aliases.writes("dsinks", checked.gradients.dsinks);
  aliases.writes("dscale", checked.gradients.dscale);
  aliases.writes("dslopes", checked.gradients.dslopes);
  return aliases.verdict();
}

}  // namespace

Error check_values(Argument argument, const ConstTensor& view, const Problem& p) {
  if (Error error = check_rank(argument, view, 4, "[B, Hq, Lq, Dv]")) return error;
  if (Error error = check_dtype_like(argument, view, "query", p.dtype)) return error;
  if (Error error = check_extents(argument, view, {p.batch, p.q_heads, p.q_len, p.value_dim},
                                  "[B, Hq, Lq, Dv]"))
    return error;
  return check_layout(argument, view);
}

Error check_row_numbers(Argument argument, const ConstTensor& view, const Problem& p) {
  if (Error error = check_numbers(argument, view, p)) return error;
  if (Error error = check_extents(argument, view, {p.batch, p.q_heads, p.q_len}, "[B, Hq, Lq]"))
    return error;
  return check_layout(argument, view);
}

Error check_like(Argument argument, const ConstTensor& view, const char* other,
                 const ConstTensor& input, const char* letters) {
  if (!view.given()) return {};
  if (Error error = check_rank(argument, view, 4, letters)) return error;
  if (Error error = check_dtype_like(argument, view, other, input.dtype)) return error;
  if (Error error = check_extents(
          argument, view, {input.extent(0), input.extent(1), input.extent(2), input.extent(3)},
          letters))
    return error;
  return check_layout(argument, view);
}

Error check_state(const char* call, const Forward& forward, const Problem& p) {
  if (Error error = check_values({call, "out"}, forward.out, p)) return error;
  if (forward.lse.given()) {
    if (forward.row_max.given() || forward.row_sum.given())
      return refuse(ErrorCode::bad_value, {call, "lse"},
                    "given together with row_max or row_sum, expected one of the two", {});
    return check_row_numbers({call, "lse"}, forward.lse, p);
  }
  if (Error error = check_row_numbers({call, "row_max"}, forward.row_max, p)) return error;
  return check_row_numbers({call, "row_sum"}, forward.row_sum, p);
}

Error check_gradient(const char* call, const OutGradient& gradient, const Problem& p) {
  if (Error error = check_values({call, "dout"}, gradient.dout, p)) return error;
  if (!gradient.dlse.given()) return {};
  return check_row_numbers({call, "dlse"}, gradient.dlse, p);
}

void read_forward(const Forward& forward, AliasCheck* aliases) {
  aliases->reads("out", forward.out);
  aliases->reads("row_max", forward.row_max);
  aliases->reads("row_sum", forward.row_sum);
  aliases->reads("lse", forward.lse);
}

void read_gradient(const OutGradient& gradient, AliasCheck* aliases) {
  aliases->reads("dout", gradient.dout);
  aliases->reads("dlse", gradient.dlse);
}

Error check_backward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                     const Forward& forward, const OutGradient& gradient,
                     const Gradients& gradients, const Options& options, Stats* stats,
                     BackwardProblem* checked) {
  Problem& p = checked->problem;
  if (Error error = check_inputs(kBackward, query, key, value, true, &p)) return error;
  if (Error error = check_options(kBackward, options, true, &p)) return error;
  if (Error error = check_state(kBackward, forward, p)) return error;
  if (Error error = check_gradient(kBackward, gradient, p)) return error;
  if (Error error = check_gradients(gradients, checked)) return error;
  checked->forward = forward;
  checked->gradient = gradient;
  checked->gradients = gradients;
  checked->stats = nullptr;
  if (stats != nullptr) {
    if (Error error = check_statistics(*stats, p)) return error;
    if (stats->request.level != StatsLevel::off) checked->stats = stats;
  }
  return check_aliases(*checked);
}

}  // namespace poise
