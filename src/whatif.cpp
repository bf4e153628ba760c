// what_if(): a call run again at other temperatures, one attention() per change.
//
// In: query, key, options, changes. Out: one Stats per change. A value of one zero stands in for
// the values, which no statistic reads. What must not happen here: a statistic or a score of its
// own.
#include <poise/whatif.h>

#include "check.h"
#include "check_options.h"
#include "check_view.h"
#include "widen.h"
#include "wording.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace poise {
namespace {

constexpr const char* kCall = "what_if";

// The rows of a view [B, H, L, D], each divided by its root mean square, contiguous. Of batch b
// there are the first length(b); later ones are not touched and become zeros.
class NormalisedRows {
 public:
  template <class Length>
  NormalisedRows(const ConstTensor& rows, const Length& length) {
    const std::size_t count = static_cast<std::size_t>(rows.extent(0) * rows.extent(1)) *
                              static_cast<std::size_t>(rows.extent(2) * rows.extent(3));
    view_ = rows.dtype == DType::f64 ? fill(rows, length, count, &doubles_)
                                     : fill(rows, length, count, &singles_);
  }
  const ConstTensor& view() const { return view_; }

 private:
  template <class T, class Length>
  static ConstTensor fill(const ConstTensor& rows, const Length& length, std::size_t count,
                          std::vector<T>* out) {
    out->reserve(count);
    const std::int64_t dim = rows.extent(3);
    // A huge batch may hold no row.
    for (std::int64_t b = 0; count > 0 && b < rows.extent(0); ++b)
      for (std::int64_t h = 0; h < rows.extent(1); ++h)
        for (std::int64_t i = 0; i < rows.extent(2); ++i) {
          if (i >= length(b)) {
            out->resize(out->size() + static_cast<std::size_t>(dim));
            continue;
          }
          const std::int64_t row = b * rows.stride(0) + h * rows.stride(1) + i * rows.stride(2);
          double squares = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            const double x = element(rows, row + d * rows.stride(3));
            squares += x * x;
          }
          const double size = std::sqrt(squares / static_cast<double>(dim));
          for (std::int64_t d = 0; d < dim; ++d) {
            const double x = element(rows, row + d * rows.stride(3));
            out->push_back(static_cast<T>(size != 0 ? x / size : x));
          }
        }
    return poise::view(static_cast<const T*>(out->data()),
                       {rows.extent(0), rows.extent(1), rows.extent(2), dim});
  }

  std::vector<float> singles_;
  std::vector<double> doubles_;
  ConstTensor view_;
};

Error check(const WhatIf& change, const Problem& problem) {
  const Argument argument{kCall, "what_ifs"};
  if (!std::isfinite(change.scale_factor))
    return refuse(ErrorCode::bad_value, argument, "scale_factor {} is not finite",
                  {text(change.scale_factor)});
  const auto factors = static_cast<std::int64_t>(change.factor_per_head.size());
  if (factors != 0 && factors != problem.q_heads)
    return refuse(ErrorCode::bad_value, argument, "factor_per_head has {} factors for {} heads",
                  {text(factors), text(problem.q_heads)});
  for (const double factor : change.factor_per_head)
    if (!std::isfinite(factor))
      return refuse(ErrorCode::bad_value, argument, "factor_per_head {} is not finite",
                    {text(factor)});
  if (change.trained_keys == 0) return {};
  if (!(change.trained_keys >= 2) || std::isinf(change.trained_keys))
    return refuse(ErrorCode::bad_value, argument,
                  "trained_keys {} is neither 0 (off) nor a finite number of 2 or more",
                  {text(change.trained_keys)});
  if (problem.kv_len < 2)
    return refuse(ErrorCode::bad_value, argument, "trained_keys given for {} keys, expected 2",
                  {text(problem.kv_len)});
  return {};
}

// The changed scale of each head, in the type that scales of this call have.
class Scales {
 public:
  Scales(const WhatIf& change, const Problem& problem) : heads_(problem.q_heads) {
    double factor = change.scale_factor;
    if (change.trained_keys != 0)
      factor *= std::log(static_cast<double>(problem.kv_len)) / std::log(change.trained_keys);
    for (std::int64_t h = 0; h < heads_; ++h) {
      const double own =
          change.factor_per_head.empty() ? 1 : change.factor_per_head[static_cast<std::size_t>(h)];
      const double from =
          change.qk_norm ? 1 / std::sqrt(static_cast<double>(problem.head_dim)) : problem.scale(h);
      doubles_.push_back(from * factor * own);
      singles_.push_back(static_cast<float>(doubles_.back()));
    }
  }
  ConstTensor view(DType dtype) const {
    return dtype == DType::f64 ? poise::view(doubles_.data(), {heads_})
                               : poise::view(singles_.data(), {heads_});
  }

 private:
  std::int64_t heads_;
  std::vector<double> doubles_;
  std::vector<float> singles_;
};

Error run(const Problem& problem, const Options& options, const WhatIf& change,
          const StatsRequest& request, WhatIfStats* result) {
  ConstTensor query = problem.query, key = problem.key;
  std::optional<NormalisedRows> unit_query, unit_key;
  if (change.qk_norm) {
    query = unit_query.emplace(query, [&](std::int64_t b) { return problem.q_length(b); }).view();
    key = unit_key.emplace(key, [&](std::int64_t b) { return problem.kv_length(b); }).view();
  }
  const Scales scales(change, problem);
  Options changed = options;
  changed.scale.reset();
  changed.scale_per_head = scales.view(problem.numbers);
  if (change.softcap) changed.softcap = *change.softcap;
  Problem judged = problem;
  if (Error error = check_options(kCall, changed, true, &judged)) return error;

  const double zero = 0;
  ConstTensor value;
  value.data = &zero;  // zero in every dtype
  value.dtype = query.dtype;
  value.rank = 4;
  value.extents = {problem.batch, problem.kv_heads, problem.kv_len, 1};
  std::vector<double> room(
      static_cast<std::size_t>(problem.batch * problem.q_heads * problem.q_len) + 1);
  Tensor out = view(room.data(), {problem.batch, problem.q_heads, problem.q_len, 1});
  out.dtype = query.dtype;  // of at most the size of a double

  result->label = change.label.empty() ? describe(change) : change.label;
  result->scale_only = !change.qk_norm && !change.softcap;
  result->stats.request = request;
  Extras extras;
  extras.stats = &result->stats;
  return attention(query, key, value, out, changed, extras);
}

Error run_all(const ConstTensor& query, const ConstTensor& key, const Options& options,
              const std::vector<WhatIf>& what_ifs, const StatsRequest& request,
              std::vector<WhatIfStats>* results) {
  Problem problem;
  // The value is not ours to ask for; the key has its sizes.
  if (Error error = check_inputs(kCall, query, key, key, true, &problem)) return error;
  if (Error error = check_options(kCall, options, true, &problem)) return error;
  if (Error error = check_stats_request(kCall, request, problem.numbers)) return error;
  for (const WhatIf& change : what_ifs)
    if (Error error = check(change, problem)) return error;
  for (const WhatIf& change : what_ifs)
    if (Error error = run(problem, options, change, request, &results->emplace_back()))
      return error;
  return {};
}

}  // namespace

std::string describe(const WhatIf& change) {
  std::string words;
  const auto add = [&words](const std::string& part) {
    words += (words.empty() ? "" : ", ") + part;
  };
  if (change.qk_norm) add("QK-norm");
  if (change.scale_factor != 1) add("scale " + times(change.scale_factor));
  if (!change.factor_per_head.empty()) add("scale per head");
  if (change.trained_keys != 0) add("log-n from " + number(change.trained_keys));
  if (change.softcap)
    add(*change.softcap == 0 ? std::string("no softcap") : "softcap " + number(*change.softcap));
  return words.empty() ? "nothing changed" : words;
}

std::vector<double> advised_factors(const Health& health) {
  std::vector<double> factors;
  for (const HeadHealth& head : health.heads) {
    const double factor = advised_factor(head);
    factors.push_back(std::isnan(factor) ? 1 : factor);
  }
  return factors;
}

Error what_if(const ConstTensor& query, const ConstTensor& key, const Options& options,
              const std::vector<WhatIf>& what_ifs, std::vector<WhatIfStats>* results,
              const StatsRequest& request) {
  if (results == nullptr)
    return refuse(ErrorCode::bad_value, {kCall, "results"}, "null, expected a list to append to",
                  {});
  try {
    std::vector<WhatIfStats> runs;
    if (Error error = run_all(query, key, options, what_ifs, request, &runs)) return error;
    for (WhatIfStats& one : runs) results->push_back(std::move(one));
  } catch (const std::exception&) {
    return Error(ErrorCode::out_of_memory, "[what_if] a copy could not be allocated");
  }
  return {};
}

}  // namespace poise
