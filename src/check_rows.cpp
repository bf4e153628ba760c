// The rules of merge() and finish(): sets of rows as (out, lse) pairs or as softmax states.
// See check.h.
#include "check.h"

#include "check_view.h"

namespace poise {
namespace {

constexpr const char* kRowsLetters = "[B, Hq, Lq]";
constexpr const char* kValuesLetters = "[B, Hq, Lq, Dv]";

// Takes the sizes of a call from its first tensor [B, Hq, Lq, Dv].
Error take_sizes(Argument argument, const ConstTensor& values, RowsProblem* problem) {
  if (Error error = check_rank(argument, values, 4, kValuesLetters)) return error;
  if (Error error = check_dtype(argument, values, {DType::f32, DType::f64})) return error;
  *problem = {values.extent(0), values.extent(1), values.extent(2), values.extent(3), values.dtype};
  return check_layout(argument, values);
}

// Another tensor of the call, [B, Hq, Lq] or [B, Hq, Lq, Dv]; `first` gave the sizes.
Error check_rows(Argument argument, const ConstTensor& view, const char* first,
                 const RowsProblem& problem) {
  if (Error error = check_dtype_like(argument, view, first, problem.dtype)) return error;
  if (Error error = check_extents(argument, view, {problem.batch, problem.heads, problem.q_len},
                                  kRowsLetters))
    return error;
  return check_layout(argument, view);
}

Error check_values(Argument argument, const ConstTensor& view, const char* first,
                   const RowsProblem& problem) {
  if (Error error = check_dtype_like(argument, view, first, problem.dtype)) return error;
  if (Error error = check_extents(argument, view,
                                  {problem.batch, problem.heads, problem.q_len, problem.value_dim},
                                  kValuesLetters))
    return error;
  return check_layout(argument, view);
}

}  // namespace

Error check_merge(const ConstTensor& out_a, const ConstTensor& lse_a, const ConstTensor& out_b,
                  const ConstTensor& lse_b, const Tensor& out, const Tensor& lse,
                  RowsProblem* problem) {
  constexpr const char* kCall = "merge";
  if (Error error = take_sizes({kCall, "out_a"}, out_a, problem)) return error;
  if (Error error = check_rows({kCall, "lse_a"}, lse_a, "out_a", *problem)) return error;
  if (Error error = check_values({kCall, "out_b"}, out_b, "out_a", *problem)) return error;
  if (Error error = check_rows({kCall, "lse_b"}, lse_b, "out_a", *problem)) return error;
  if (Error error = check_values({kCall, "out"}, out, "out_a", *problem)) return error;
  if (Error error = check_rows({kCall, "lse"}, lse, "out_a", *problem)) return error;
  AliasCheck aliases(kCall, true);
  aliases.reads("out_a", out_a);
  aliases.reads("lse_a", lse_a);
  aliases.reads("out_b", out_b);
  aliases.reads("lse_b", lse_b);
  aliases.writes("out", out);
  aliases.writes("lse", lse);
  return aliases.verdict();
}

Error check_merge(const State& whole, const State& part, RowsProblem* problem) {
  constexpr const char* kCall = "merge";
  constexpr const char* kFirst = "whole.accumulator";
  if (Error error = take_sizes({kCall, kFirst}, whole.accumulator, problem)) return error;
  if (Error error = check_rows({kCall, "whole.row_max"}, whole.row_max, kFirst, *problem))
    return error;
  if (Error error = check_rows({kCall, "whole.row_sum"}, whole.row_sum, kFirst, *problem))
    return error;
  if (Error error = check_values({kCall, "part.accumulator"}, part.accumulator, kFirst, *problem))
    return error;
  if (Error error = check_rows({kCall, "part.row_max"}, part.row_max, kFirst, *problem))
    return error;
  if (Error error = check_rows({kCall, "part.row_sum"}, part.row_sum, kFirst, *problem))
    return error;
  AliasCheck aliases(kCall, false);
  aliases.reads("part.accumulator", part.accumulator);
  aliases.reads("part.row_max", part.row_max);
  aliases.reads("part.row_sum", part.row_sum);
  aliases.writes("whole.accumulator", whole.accumulator);
  aliases.writes("whole.row_max", whole.row_max);
  aliases.writes("whole.row_sum", whole.row_sum);
  return aliases.verdict();
}

Error check_finish(const State& state, const Tensor& out, const Tensor& lse, RowsProblem* problem) {
  constexpr const char* kCall = "finish";
  constexpr const char* kFirst = "state.accumulator";
  if (Error error = take_sizes({kCall, kFirst}, state.accumulator, problem)) return error;
  if (Error error = check_rows({kCall, "state.row_max"}, state.row_max, kFirst, *problem))
    return error;
  if (Error error = check_rows({kCall, "state.row_sum"}, state.row_sum, kFirst, *problem))
    return error;
  // A state of f32 finishes into the 16-bit formats too, as the call it came from did.
  const bool half = out.dtype == DType::f16 || out.dtype == DType::bf16;
  Tensor sized = out;
  if (half && problem->dtype == DType::f32) sized.dtype = DType::f32;
  if (Error error = check_values({kCall, "out"}, sized, kFirst, *problem)) return error;
  if (Error error = check_layout({kCall, "out"}, out)) return error;
  if (lse.given())
    if (Error error = check_rows({kCall, "lse"}, lse, kFirst, *problem)) return error;
  AliasCheck aliases(kCall, false);
  aliases.reads("state.accumulator", state.accumulator);
  aliases.reads("state.row_max", state.row_max);
  aliases.reads("state.row_sum", state.row_sum);
  aliases.writes("out", out);
  aliases.writes("lse", lse);
  return aliases.verdict();
}

}  // namespace poise
