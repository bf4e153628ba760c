// Rules about options and a statistics request. See check_options.h; the tables are those of
// docs/semantics.md.
#include "check_options.h"

#include "check_view.h"
#include "view_values.h"

#include <cmath>
#include <limits>

namespace poise {
namespace {

constexpr int kMaxEvery = 1 << 20;

// The smallest normal number of a dtype: kernels flush smaller ones to zero.
double smallest_normal(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::min()
                             : static_cast<double>(std::numeric_limits<float>::min());
}

bool finite_positive(double number, DType dtype) {
  const double held = rounded(number, dtype);
  return std::isfinite(held) && held >= smallest_normal(dtype);
}

// One call's options against one problem; every rule is a member, named after what it judges.
class OptionRules {
 public:
  OptionRules(const char* call, const Options& options, bool with_data, Problem* problem)
      : call_(call), options_(options), with_data_(with_data), problem_(*problem) {}

  Error scale() const;
  Error softcap() const;
  Error mask() const;
  Error bias() const;
  Error window() const;
  Error lengths() const;
  Error diagonal() const;
  Error alibi_slopes() const;
  Error sinks() const;
  Error dropout() const;
  Error threads() const;

 private:
  Argument at(const char* name) const { return {call_, name}; }
  Error layout(Argument argument, const ConstTensor& view) const {
    return with_data_ ? check_layout(argument, view) : check_sizes(argument, view);
  }
  Error integers(Argument argument, const ConstTensor& view) const;
  Error length(Argument argument, const ConstTensor& view, std::int64_t limit) const;
  Error head_numbers(Argument argument, const ConstTensor& view) const;
  Error broadcast(Argument argument, const ConstTensor& view, ConstTensor* full) const {
    return check_broadcast(argument, view, with_data_, problem_, full);
  }
  bool no_rows() const {
    return problem_.batch == 0 || problem_.q_heads == 0 || problem_.q_len == 0;
  }

  const char* call_;
  const Options& options_;
  const bool with_data_;
  Problem& problem_;
};

// f32 (f64 for f64 inputs) [Hq].
Error OptionRules::head_numbers(Argument argument, const ConstTensor& view) const {
  if (Error error = check_numbers(argument, view, problem_)) return error;
  if (Error error = check_extents(argument, view, {problem_.q_heads}, "[Hq]")) return error;
  return layout(argument, view);
}

Error OptionRules::scale() const {
  const DType dtype = problem_.numbers;
  if (options_.scale_per_head.given()) {
    const Argument argument = at("scale_per_head");
    const ConstTensor& view = options_.scale_per_head;
    if (options_.scale)
      return refuse(ErrorCode::bad_value, argument, "given together with scale {}",
                    {text(*options_.scale)});
    if (Error error = head_numbers(argument, view)) return error;
    for (std::int64_t head = 0; with_data_ && head < problem_.q_heads; ++head)
      if (!std::isfinite(read_number(view, head)))
        return refuse(ErrorCode::bad_value, argument, "head {} has {}, expected a finite number",
                      {text(head), text(read_number(view, head))});
    return {};
  }
  if (options_.scale) {
    problem_.scale_value = rounded(*options_.scale, dtype);
    if (std::isfinite(problem_.scale_value)) return {};
    return refuse(ErrorCode::bad_value, at("scale"), "{} is not a finite {} number",
                  {text(*options_.scale), name(dtype)});
  }
  if (problem_.head_dim > 0) {
    problem_.scale_value = rounded(1 / std::sqrt(static_cast<double>(problem_.head_dim)), dtype);
    return {};
  }
  problem_.scale_value = 0;
  if (no_rows()) return {};
  return refuse(ErrorCode::bad_value, at("scale"),
                "absent with head_dim 0, whose default 1/sqrt(0) is not finite", {});
}

Error OptionRules::softcap() const {
  problem_.softcap = rounded(options_.softcap, problem_.numbers);
  if (options_.softcap == 0 || finite_positive(options_.softcap, problem_.numbers)) return {};
  return refuse(ErrorCode::bad_value, at("softcap"),
                "{} is neither 0 (off) nor a finite positive normal {} number",
                {text(options_.softcap), name(problem_.numbers)});
}

Error OptionRules::mask() const {
  problem_.mask = {};
  if (!options_.mask.given()) return {};
  if (Error error = check_dtype(at("mask"), options_.mask, {DType::boolean})) return error;
  return broadcast(at("mask"), options_.mask, &problem_.mask);
}

Error OptionRules::bias() const {
  problem_.bias = {};
  if (!options_.bias.given()) return {};
  if (Error error =
          check_dtype(at("bias"), options_.bias, {DType::f32, DType::f64, DType::f16, DType::bf16}))
    return error;
  return broadcast(at("bias"), options_.bias, &problem_.bias);
}

Error OptionRules::window() const {
  problem_.window_left = options_.window_left;
  problem_.window_right = options_.window_right;
  if (options_.window_left < -1)
    return refuse(ErrorCode::bad_value, at("window_left"), "{} is below -1 (open)",
                  {text(options_.window_left)});
  if (options_.window_right < -1)
    return refuse(ErrorCode::bad_value, at("window_right"), "{} is below -1 (open)",
                  {text(options_.window_right)});
  return {};
}

// i32 or i64 [B].
Error OptionRules::integers(Argument argument, const ConstTensor& view) const {
  if (Error error = check_dtype(argument, view, {DType::i32, DType::i64})) return error;
  if (Error error = check_extents(argument, view, {problem_.batch}, "[B]")) return error;
  return layout(argument, view);
}

Error OptionRules::length(Argument argument, const ConstTensor& view, std::int64_t limit) const {
  if (!view.given()) return {};
  if (Error error = integers(argument, view)) return error;
  for (std::int64_t b = 0; with_data_ && b < problem_.batch; ++b) {
    const std::int64_t length = read_integer(view, b);
    if (length < 0 || length > limit)
      return refuse(ErrorCode::bad_value, argument, "batch {} has {}, expected 0 ... {}",
                    {text(b), text(length), text(limit)});
  }
  return {};
}

Error OptionRules::lengths() const {
  if (Error error = length(at("kv_lengths"), options_.kv_lengths, problem_.kv_len)) return error;
  return length(at("q_lengths"), options_.q_lengths, problem_.q_len);
}

Error OptionRules::diagonal() const {
  const Causal& causal = options_.causal;
  problem_.causal = causal.kind() != Causal::Kind::none;
  const bool offset = causal.kind() == Causal::Kind::offset;
  if (options_.diagonal && offset && *options_.diagonal != causal.diagonal())
    return refuse(ErrorCode::bad_value, at("diagonal"), "{} contradicts Causal::offset({})",
                  {text(*options_.diagonal), text(causal.diagonal())});
  if (!options_.diagonals.given()) return {};
  const Argument argument = at("diagonals");
  if (options_.diagonal)
    return refuse(ErrorCode::bad_value, argument, "given together with diagonal {}",
                  {text(*options_.diagonal)});
  if (Error error = integers(argument, options_.diagonals)) return error;
  for (std::int64_t b = 0; with_data_ && offset && b < problem_.batch; ++b) {
    const std::int64_t given = read_integer(options_.diagonals, b);
    if (given != causal.diagonal())
      return refuse(ErrorCode::bad_value, argument, "batch {} has {}, against Causal::offset({})",
                    {text(b), text(given), text(causal.diagonal())});
  }
  return {};
}

Error OptionRules::alibi_slopes() const {
  const ConstTensor& view = options_.alibi_slopes;
  problem_.has_alibi = view.given();
  if (!view.given()) return {};
  const Argument argument = at("alibi_slopes");
  if (Error error = check_numbers(argument, view, problem_)) return error;
  const bool per_batch = view.rank == 2;
  if (!(per_batch ? view.extent(0) == problem_.batch && view.extent(1) == problem_.q_heads
                  : view.rank == 1 && view.extent(0) == problem_.q_heads)) {
    if (view.rank < 0 || view.rank > 2)
      return refuse(ErrorCode::bad_shape, argument, "rank {}, expected 1 for [Hq] or 2 for [B, Hq]",
                    {text(std::int64_t{view.rank})});
    return refuse(ErrorCode::bad_shape, argument,
                  "extents {} differ from [Hq] = {} and [B, Hq] = {}",
                  {text(view), text({problem_.q_heads}), text({problem_.batch, problem_.q_heads})});
  }
  if (Error error = layout(argument, view)) return error;
  for (std::int64_t b = 0; with_data_ && b < (per_batch ? problem_.batch : 1); ++b)
    for (std::int64_t head = 0; head < problem_.q_heads; ++head) {
      const double slope = per_batch ? read_number(view, b, head) : read_number(view, head);
      if (!std::isfinite(slope))
        return refuse(ErrorCode::bad_value, argument,
                      "batch {}, head {} has {}, expected a finite number",
                      {text(b), text(head), text(slope)});
    }
  return {};
}

Error OptionRules::sinks() const {
  const ConstTensor& view = options_.sinks;
  if (!view.given()) return {};
  const Argument argument = at("sinks");
  if (Error error = head_numbers(argument, view)) return error;
  for (std::int64_t head = 0; with_data_ && head < problem_.q_heads; ++head) {
    const double sink = read_number(view, head);
    if (std::isnan(sink) || sink == std::numeric_limits<double>::infinity())
      return refuse(ErrorCode::bad_value, argument,
                    "head {} has {}, expected a finite number or -inf", {text(head), text(sink)});
  }
  return {};
}

// The counter of the generator has 32 bits for a batch, a head, a query and four keys.
Error OptionRules::dropout() const {
  const Dropout& dropout = options_.dropout;
  const Argument argument = at("dropout");
  if (!(dropout.probability >= 0 && dropout.probability < 1))
    return refuse(ErrorCode::bad_value, argument, "probability {} is not in [0, 1)",
                  {text(dropout.probability)});
  if (dropout.probability == 0) return {};
  constexpr std::int64_t kPlaces = std::int64_t{1} << 32;
  const struct {
    const char *offset_name, *name;
    std::int64_t offset, count, places;
  } axes[] = {
      {"batch_offset", "batches", dropout.batch_offset, problem_.batch, kPlaces},
      {"head_offset", "query heads", dropout.head_offset, problem_.q_heads, kPlaces},
      {"query_offset", "queries", dropout.query_offset, problem_.q_len, kPlaces},
      {"key_offset", "keys", dropout.key_offset, problem_.kv_len, 4 * kPlaces},
  };
  for (const auto& axis : axes)
    if (axis.offset < 0 || axis.offset > axis.places - axis.count)
      return refuse(ErrorCode::bad_value, argument, "{} {} and {} {} do not fit in 0 ... {}",
                    {axis.offset_name, text(axis.offset), text(axis.count), axis.name,
                     text(axis.places - 1)});
  return {};
}

Error OptionRules::threads() const {
  if (options_.executor != nullptr) {
    const int slots = options_.executor->slots();
    if (slots >= 1) return {};
    return refuse(ErrorCode::bad_value, at("executor"), "has {} slots, expected at least 1",
                  {text(std::int64_t{slots})});
  }
  if (options_.threads >= 0 && options_.threads <= kMaxThreads) return {};
  return refuse(ErrorCode::bad_value, at("threads"), "{} is not in 0 (default) ... {}",
                {text(std::int64_t{options_.threads}), text(std::int64_t{kMaxThreads})});
}

}  // namespace

Error check_numbers(Argument argument, const ConstTensor& view, const Problem& problem) {
  if (problem.dtype == problem.numbers)
    return check_dtype_like(argument, view, "query", problem.dtype);
  return check_dtype(argument, view, {problem.numbers});  // 16-bit inputs come with f32 numbers
}

Error check_broadcast(Argument argument, const ConstTensor& view, bool with_data,
                      const Problem& problem, ConstTensor* full) {
  if (view.rank < 0 || view.rank > kMaxRank)
    return refuse(ErrorCode::bad_shape, argument, "rank {}, expected 0 ... 4 for [B, Hq, Lq, Lk]",
                  {text(std::int64_t{view.rank})});
  if (Error error = (with_data ? check_layout : check_sizes)(argument, view)) return error;
  full->data = view.data;
  full->dtype = view.dtype;
  full->rank = kMaxRank;
  full->extents = {problem.batch, problem.q_heads, problem.q_len, problem.kv_len};
  for (int axis = 0; axis < kMaxRank; ++axis) {
    const int own = axis - (kMaxRank - view.rank);
    std::int64_t& stride = full->strides[static_cast<std::size_t>(axis)];
    if (own < 0 || view.extent(own) == 1)
      stride = 0;
    else if (view.extent(own) == full->extent(axis))
      stride = view.stride(own);
    else
      return refuse(ErrorCode::bad_shape, argument,
                    "shape {} does not broadcast to [B, Hq, Lq, Lk] = {}",
                    {text(view), text(*full)});
  }
  return {};
}

Error check_options(const char* call, const Options& options, bool with_data, Problem* problem) {
  const OptionRules rules(call, options, with_data, problem);
  if (Error error = rules.scale()) return error;
  if (Error error = rules.softcap()) return error;
  if (Error error = rules.mask()) return error;
  if (Error error = rules.bias()) return error;
  if (Error error = rules.window()) return error;
  if (Error error = rules.lengths()) return error;
  if (Error error = rules.diagonal()) return error;
  if (Error error = rules.alibi_slopes()) return error;
  if (Error error = rules.sinks()) return error;
  if (Error error = rules.dropout()) return error;
  if (Error error = rules.threads()) return error;
  problem->options = options;
  if (!with_data)
    for (ConstTensor* view : {&problem->options.scale_per_head, &problem->options.diagonals,
                              &problem->options.kv_lengths, &problem->options.q_lengths,
                              &problem->options.alibi_slopes, &problem->options.sinks})
      *view = {};
  return {};
}

void read_inputs(const Problem& problem, AliasCheck* aliases) {
  const Options& options = problem.options;
  aliases->reads("query", problem.query);
  aliases->reads("key", problem.key);
  aliases->reads("value", problem.value);
  aliases->reads("scale_per_head", options.scale_per_head);
  aliases->reads("mask", options.mask);
  aliases->reads("bias", options.bias);
  aliases->reads("diagonals", options.diagonals);
  aliases->reads("kv_lengths", options.kv_lengths);
  aliases->reads("q_lengths", options.q_lengths);
  aliases->reads("alibi_slopes", options.alibi_slopes);
  aliases->reads("sinks", options.sinks);
}

Error check_stats_request(const char* call, const StatsRequest& request, DType dtype) {
  const Argument argument{call, "stats"};
  if (request.level > StatsLevel::full)
    return refuse(ErrorCode::bad_value, argument, "level {} is not one of off, max, core, full",
                  {text(static_cast<std::int64_t>(request.level))});
  if (request.every < 1 || request.every > kMaxEvery)
    return refuse(ErrorCode::bad_value, argument, "every {} is not in 1 ... {}",
                  {text(std::int64_t{request.every}), text(std::int64_t{kMaxEvery})});
  if (!std::isfinite(rounded(request.histogram_low, dtype)))
    return refuse(ErrorCode::bad_value, argument, "histogram_low {} is not a finite {} number",
                  {text(request.histogram_low), name(dtype)});
  if (!finite_positive(request.histogram_width, dtype))
    return refuse(ErrorCode::bad_value, argument,
                  "histogram_width {} is not a finite positive normal {} number",
                  {text(request.histogram_width), name(dtype)});
  if (!(request.stand_in_bias < std::numeric_limits<double>::infinity()))
    return refuse(ErrorCode::bad_value, argument, "stand_in_bias {} is not a number below infinity",
                  {text(request.stand_in_bias)});
  if (!(std::isfinite(request.near_tie_gap) && request.near_tie_gap >= 0))
    return refuse(ErrorCode::bad_value, argument, "near_tie_gap {} is not a finite number >= 0",
                  {text(request.near_tie_gap)});
  for (std::size_t k = 0; k < request.tracked.size(); ++k)
    if (request.tracked[k] < 0)
      return refuse(ErrorCode::bad_value, argument, "tracked key {} is {}, expected 0 or more",
                    {text(static_cast<std::int64_t>(k)), text(request.tracked[k])});
  return {};
}

}  // namespace poise
