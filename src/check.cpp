// The rules of attention() and explain(): query, key, value, out, extras, and who overlaps whom.
// See check.h. Options have their own file, check_options.cpp.
#include "check.h"

#include "check_options.h"
#include "check_view.h"

#include <array>

namespace poise {
namespace {

constexpr const char* kForward = "forward";

// Beyond any tensor that exists, and small enough that workspace sizes (elements * rows of a task *
// threads) stay within int64; views with stride 0 could claim more.
constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 32;
// A position plus an open end of the visible range (check.h) stays within int64, and so does a
// length rounded up to whole blocks.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 60;

Error check_most(Argument argument, const char* axis, std::int64_t extent, std::int64_t most) {
  if (extent <= most) return {};
  return refuse(ErrorCode::unsupported, argument, "{} {} is beyond {}",
                {axis, text(extent), text(most)});
}

}  // namespace

Error check_inputs(const char* call, const ConstTensor& query, const ConstTensor& key,
                   const ConstTensor& value, bool with_data, Problem* problem) {
  const Argument query_at{call, "query"}, key_at{call, "key"}, value_at{call, "value"};
  if (Error error = check_rank(query_at, query, 4, "[B, Hq, Lq, D]")) return error;
  if (Error error = check_rank(key_at, key, 4, "[B, Hkv, Lk, D]")) return error;
  if (Error error = check_rank(value_at, value, 4, "[B, Hkv, Lk, Dv]")) return error;
  if (Error error = check_dtype(query_at, query, {DType::f32, DType::f64, DType::f16, DType::bf16}))
    return error;
  if (Error error = check_dtype_like(key_at, key, "query", query.dtype)) return error;
  if (Error error = check_dtype_like(value_at, value, "query", query.dtype)) return error;
  const auto layout = with_data ? check_layout : check_sizes;
  if (Error error = layout(query_at, query)) return error;
  if (Error error = layout(key_at, key)) return error;
  if (Error error = layout(value_at, value)) return error;

  problem->batch = query.extent(0);
  problem->q_heads = query.extent(1);
  problem->q_len = query.extent(2);
  problem->head_dim = query.extent(3);
  problem->kv_heads = key.extent(1);
  problem->kv_len = key.extent(2);
  problem->value_dim = value.extent(3);
  problem->dtype = query.dtype;
  problem->numbers = query.dtype == DType::f64 ? DType::f64 : DType::f32;
  problem->query = query;
  problem->key = key;
  problem->value = value;

  if (Error error = check_extent(key_at, "batch", key.extent(0), "query", problem->batch))
    return error;
  if (Error error = check_extent(key_at, "head_dim", key.extent(3), "query", problem->head_dim))
    return error;
  if (Error error = check_extent(value_at, "batch", value.extent(0), "query", problem->batch))
    return error;
  if (Error error = check_extent(value_at, "kv_heads", value.extent(1), "key", problem->kv_heads))
    return error;
  if (Error error = check_extent(value_at, "kv_len", value.extent(2), "key", problem->kv_len))
    return error;
  if (Error error = check_most(query_at, "head_dim", problem->head_dim, kMaxHeadDim)) return error;
  if (Error error = check_most(value_at, "value_dim", problem->value_dim, kMaxHeadDim))
    return error;
  if (Error error = check_most(query_at, "q_len", problem->q_len, kMaxLength)) return error;
  if (Error error = check_most(key_at, "kv_len", problem->kv_len, kMaxLength)) return error;
  problem->group = 1;
  if (problem->q_heads == 0) return {};
  if (problem->kv_heads == 0 || problem->q_heads % problem->kv_heads != 0)
    return refuse(ErrorCode::bad_shape, query_at, "q_heads {} is not a multiple of key kv_heads {}",
                  {text(problem->q_heads), text(problem->kv_heads)});
  problem->group = problem->q_heads / problem->kv_heads;
  return {};
}

namespace {

Error check_out(const char* call, const Tensor& out, const Problem& problem) {
  const Argument argument{call, "out"};
  if (Error error = check_rank(argument, out, 4, "[B, Hq, Lq, Dv]")) return error;
  if (Error error = check_dtype_like(argument, out, "query", problem.dtype)) return error;
  if (Error error = check_layout(argument, out)) return error;
  if (Error error = check_extent(argument, "batch", out.extent(0), "query", problem.batch))
    return error;
  if (Error error = check_extent(argument, "q_heads", out.extent(1), "query", problem.q_heads))
    return error;
  if (Error error = check_extent(argument, "q_len", out.extent(2), "query", problem.q_len))
    return error;
  return check_extent(argument, "value_dim", out.extent(3), "value", problem.value_dim);
}

// The tensors of Extras with their names and the axes after [B, Hq, Lq].
struct ExtraTensor {
  const char* name;
  const Tensor* view;
  enum class Shape : std::uint8_t { rows, values, keys } shape;
};

std::array<ExtraTensor, 10> extra_tensors(const Extras& extras) {
  using Shape = ExtraTensor::Shape;
  return {{{"lse", extras.lse, Shape::rows},
           {"lse_without_sink", extras.lse_without_sink, Shape::rows},
           {"max_score", extras.max_score, Shape::rows},
           {"row_max", extras.row_max, Shape::rows},
           {"row_sum", extras.row_sum, Shape::rows},
           {"accumulator", extras.accumulator, Shape::values},
           {"scores", extras.scores, Shape::keys},
           {"capped", extras.capped, Shape::keys},
           {"logits", extras.logits, Shape::keys},
           {"weights", extras.weights, Shape::keys}}};
}

Error check_extra_shape(Argument argument, const ExtraTensor& extra, const Problem& problem) {
  const std::int64_t batch = problem.batch, heads = problem.q_heads, rows = problem.q_len;
  switch (extra.shape) {
    case ExtraTensor::Shape::values:
      return check_extents(argument, *extra.view, {batch, heads, rows, problem.value_dim},
                           "[B, Hq, Lq, Dv]");
    case ExtraTensor::Shape::keys:
      return check_extents(argument, *extra.view, {batch, heads, rows, problem.kv_len},
                           "[B, Hq, Lq, Lk]");
    case ExtraTensor::Shape::rows:
      break;
  }
  return check_extents(argument, *extra.view, {batch, heads, rows}, "[B, Hq, Lq]");
}

Error check_extras(const char* call, const Extras& extras, const Problem& problem) {
  if (extras.stats != nullptr)
    if (Error error = check_stats_request(call, extras.stats->request, problem.numbers))
      return error;
  for (const ExtraTensor& extra : extra_tensors(extras)) {
    if (extra.view == nullptr) continue;
    const Argument argument{call, extra.name};
    if (Error error = check_numbers(argument, *extra.view, problem)) return error;
    if (Error error = check_extra_shape(argument, extra, problem)) return error;
    if (Error error = check_layout(argument, *extra.view)) return error;
  }
  return {};
}

Error check_forward_aliases(const char* call, const Problem& problem, const Tensor& out,
                            const Extras& extras) {
  AliasCheck aliases(call, false);
  read_inputs(problem, &aliases);
  aliases.writes("out", out);
  for (const ExtraTensor& extra : extra_tensors(extras))
    if (extra.view != nullptr) aliases.writes(extra.name, *extra.view);
  return aliases.verdict();
}

}  // namespace

Error check_forward(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                    const Tensor& out, const Options& options, const Extras& extras,
                    Problem* problem) {
  if (Error error = check_inputs(kForward, query, key, value, true, problem)) return error;
  if (Error error = check_out(kForward, out, *problem)) return error;
  if (Error error = check_options(kForward, options, true, problem)) return error;
  if (Error error = check_extras(kForward, extras, *problem)) return error;
  if (Error error = check_forward_aliases(kForward, *problem, out, extras)) return error;
  problem->out = out;
  problem->extras = extras;
  return {};
}

Error check_explain(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                    const Options& options, Problem* problem) {
  constexpr const char* kExplain = "explain";
  if (Error error = check_inputs(kExplain, query, key, value, false, problem)) return error;
  if (Error error = check_options(kExplain, options, false, problem)) return error;
  problem->out = {};
  problem->extras = {};
  return {};
}

}  // namespace poise
