// The definition's gradients: against central differences of the definition's forward pass, and
// against the laws of docs/semantics.md, "Backward".
//
// Nothing here runs a kernel: the definition must be right before anything is compared with it.
// Seeds are fixed, so that two runs do the same.
// ctest-labels: fast laws
#include "reference_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "support/drawn_law.h"
#include "support/gradient_problem.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Small enough to move every element by itself.
constexpr DrawLimits kTiny{
    .max_rows = 8, .max_q_len = 5, .max_kv_len = 9, .max_dim = 4, .poison = false};
constexpr DrawLimits kSmall{
    .max_rows = 24, .max_q_len = 9, .max_kv_len = 20, .max_dim = 7, .poison = false};

// Every option that has a gradient as a tensor of one element per gradient: a scale per head, a
// slope per batch and head (0 where there are none), an f64 bias (on half the draws that have none
// one of zeros, whose gradient is that of an additive mask).
GradientProblem with_every_parameter(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  Problem& p = g.problem;
  const Shape& s = p.shape;
  if (!p.scale_per_head.given()) {
    const double scale = p.options.scale.value_or(1 / std::sqrt(static_cast<double>(s.head_dim)));
    p.scale_per_head = TensorBuffer(DType::f64, Extents{s.q_heads});
    p.scale_per_head.fill([&] { return scale; });
    p.options.scale.reset();
  }
  const TensorBuffer slopes = p.alibi_slopes;
  std::int64_t n = 0;
  p.alibi_slopes = TensorBuffer(DType::f64, Extents{s.batch, s.q_heads});
  p.alibi_slopes.fill([&] { return slopes.given() ? slopes.at(n++ % s.q_heads) : 0; });
  if (p.bias.given()) {
    p.bias = p.bias.copied_as(DType::f64);
  } else if (draw.way / 2 % 2 == 0) {
    p.bias = TensorBuffer(DType::f64, Extents{s.batch, s.q_heads, s.q_len, s.kv_len});
    p.bias.fill([] { return 0.0; });
  }
  return g;
}

std::string broken_by_differences(const Draw& draw) {
  GradientProblem g = with_every_parameter(draw);
  Problem& p = g.problem;
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  const struct {
    const char* name;
    const std::vector<double>& gradient;
    TensorBuffer& moved;
  } parameters[] = {
      {"dquery", gradients.dquery, p.query},         {"dkey", gradients.dkey, p.key},
      {"dvalue", gradients.dvalue, p.value},         {"dbias", gradients.dbias, p.bias},
      {"dsinks", gradients.dsinks, p.sinks},         {"dscale", gradients.dscale, p.scale_per_head},
      {"dslopes", gradients.dslopes, p.alibi_slopes}};
  for (const auto& [name, gradient, moved] : parameters) {
    if (!moved.given()) continue;
    const std::vector<double> expected = numeric_gradient(moved, [&] { return loss_of(g); });
    const std::string found = first_miss(name, gradient, expected, 1e-8);
    if (!found.empty()) return found;
  }
  return {};
}

TEST(reference_gradient, backward_equals_finite_difference) {
  check_draws(broken_by_differences, DType::f64, kTiny, 60, 31);
}

std::string broken_by_types(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  auto as_double = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  auto compare = [&](const auto& other, double tolerance) {
    const ReferenceGradients<double> widened{.forward = {},
                                             .dquery = as_double(other.dquery),
                                             .dkey = as_double(other.dkey),
                                             .dvalue = as_double(other.dvalue),
                                             .dweights = as_double(other.dweights),
                                             .dlogits = as_double(other.dlogits),
                                             .dbias = as_double(other.dbias),
                                             .dsinks = as_double(other.dsinks),
                                             .dscale = as_double(other.dscale),
                                             .dslopes = as_double(other.dslopes)};
    const auto expected = named_gradients(g, gradients), got = named_gradients(g, widened);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      const std::string found =
          first_miss(got[n].name, *got[n].values, *expected[n].values, tolerance);
      if (!found.empty()) return found;
    }
    return std::string();
  };
  const std::string found = compare(reference_gradients_of<long double>(g), 1e-11);
  return found.empty() ? compare(reference_gradients_of<float>(g), 2e-2) : found;
}

TEST(reference_gradient, a_wider_type_changes_no_digit_that_counts) {
  check_draws(broken_by_types, DType::f32, kSmall, 100, 32);
}

// One row per head: dsinks is then that row's.
std::string broken_by_sinks(const Draw& draw) {
  Draw one_row = draw;
  one_row.batch = one_row.q_len = 1;
  one_row.sinks = true;
  const GradientProblem g = gradient_problem_of(one_row);
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  const Shape& s = g.problem.shape;
  for (std::int64_t h = 0; h < s.q_heads; ++h) {
    const auto head = static_cast<std::size_t>(h), keys = static_cast<std::size_t>(s.kv_len);
    double sum = gradients.dsinks[head], largest = std::fabs(sum);
    for (std::size_t j = 0; j < keys; ++j) {
      sum += gradients.dlogits[head * keys + j];
      largest = std::fmax(largest, std::fabs(gradients.dlogits[head * keys + j]));
    }
    const bool counts = g.dlse.given() && std::isfinite(gradients.forward.lse[head]);
    const double expected = counts ? g.dlse.at(h) : 0;
    if (!(std::fabs(sum - expected) <= 1e-13 * (1 + largest)))
      return "head " + std::to_string(h) + ": sum " + std::to_string(sum) + ", dlse " +
             std::to_string(expected);
  }
  return {};
}

TEST(reference_gradient, logit_gradients_with_the_sink_sum_to_dlse_per_row) {
  check_draws(broken_by_sinks, DType::f64, kSmall, 200, 33);
}

std::string broken_by_bias(const Draw& draw) {
  Draw biased = draw;
  if (biased.bias == 0) biased.bias = 1 + draw.way % 16;
  const GradientProblem g = gradient_problem_of(biased);
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  const Shape& s = g.problem.shape;
  const TensorBuffer& bias = g.problem.bias;
  std::vector<double> sums(static_cast<std::size_t>(bias.count()), 0.0);
  std::vector<bool> seen(sums.size(), false);
  std::size_t pair = 0;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.q_heads; ++h)
      for (std::int64_t i = 0; i < s.q_len; ++i)
        for (std::int64_t j = 0; j < s.kv_len; ++j, ++pair) {
          const std::int64_t full[] = {b, h, i, j};
          std::int64_t index = 0;
          for (int axis = 0; axis < 4; ++axis)
            index = index * bias.extent(axis) + (bias.extent(axis) == 1 ? 0 : full[axis]);
          const auto element = static_cast<std::size_t>(index);
          const bool visible = gradients.forward.logits[pair] != -kInfinity;
          if (!visible && gradients.dlogits[pair] != 0) return "dlogits is not 0 where masked";
          sums[element] += gradients.dlogits[pair];
          if (visible) seen[element] = true;
        }
  for (std::size_t n = 0; n < sums.size(); ++n)
    if (!seen[n] && gradients.dbias[n] != 0)
      return "dbias[" + std::to_string(n) + "] is not 0 though nobody sees it";
  return first_miss("dbias", gradients.dbias, sums, 1e-13);
}

TEST(reference_gradient, dbias_is_dlogits_summed_over_broadcast_axes) {
  check_draws(broken_by_bias, DType::f64, kSmall, 200, 34);
}

// The first element of any gradient that is not what it was. `skip` says which
// elements may differ.
std::string first_change(
    const GradientProblem& g, const ReferenceGradients<double>& before,
    const ReferenceGradients<double>& after,
    const std::function<bool(const NamedGradient&, std::size_t)>& skip = nullptr) {
  const auto old_values = named_gradients(g, before), new_values = named_gradients(g, after);
  for (std::size_t k = 0; k < old_values.size(); ++k)
    for (std::size_t n = 0; n < old_values[k].values->size(); ++n) {
      const double x = (*old_values[k].values)[n], y = (*new_values[k].values)[n];
      if (x == y || (skip && skip(old_values[k], n))) continue;
      return std::string(old_values[k].name) + '[' + std::to_string(n) + "] changed from " +
             std::to_string(x) + " to " + std::to_string(y);
    }
  return {};
}

void set_row(TensorBuffer& tensor, std::int64_t row, double value) {
  if (!tensor.given()) return;
  const std::int64_t dim = tensor.view().rank == 4 ? tensor.extent(3) : 1;
  for (std::int64_t c = 0; c < dim; ++c) tensor.set(row * dim + c, value);
}

// Which rows see which keys, and who sees anything.
struct Visibility {
  Shape shape;
  std::vector<bool> pairs;       // [B, Hq, Lq, Lk]
  std::vector<bool> rows, keys;  // [B, Hq, Lq]; [B, Hkv, Lk]: seen by any row of the group

  explicit Visibility(const Shape& s, const ReferenceResult<double>& r)
      : shape(s),
        pairs(r.logits.size()),
        rows(r.lse.size()),
        keys(static_cast<std::size_t>(s.batch * s.kv_heads * s.kv_len)) {
    for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
      if (r.logits[pair] == -kInfinity) continue;
      pairs[pair] = true;
      rows[row_of(pair)] = true;
      keys[key_of(pair)] = true;
    }
  }
  std::size_t row_of(std::size_t pair) const {
    return pair / static_cast<std::size_t>(shape.kv_len);
  }
  std::size_t head_of(std::size_t row) const {  // in [B, Hq]
    return row / static_cast<std::size_t>(shape.q_len);
  }
  std::size_t key_of(std::size_t pair) const {
    const auto kv_len = static_cast<std::size_t>(shape.kv_len),
               group = static_cast<std::size_t>(shape.q_heads / shape.kv_heads);
    return head_of(row_of(pair)) / group * kv_len + pair % kv_len;
  }
};

std::string broken_by_masked_nan(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  Problem& p = g.problem;
  const ReferenceGradients<double> before = reference_gradients_of<double>(g);
  const Visibility sees(p.shape, before.forward);
  for (std::size_t key = 0; key < sees.keys.size(); ++key)
    if (!sees.keys[key]) {
      set_row(p.key, static_cast<std::int64_t>(key), key % 2 == 0 ? kNaN : kInfinity);
      set_row(p.value, static_cast<std::int64_t>(key), key % 3 == 0 ? kInfinity : kNaN);
    }
  for (std::size_t row = 0; row < sees.rows.size(); ++row) {
    if (sees.rows[row]) continue;
    set_row(p.query, static_cast<std::int64_t>(row), kNaN);
    set_row(g.dout, static_cast<std::int64_t>(row), row % 2 == 0 ? kNaN : kInfinity);
    // A row with a sink has an lse, and its dlse reaches the sink.
    if (before.forward.lse[row] == -kInfinity)
      set_row(g.dlse, static_cast<std::int64_t>(row), kNaN);
  }
  // An entry of a full bias at a pair that another mask takes out.
  if (p.bias.given() && p.bias.count() == static_cast<std::int64_t>(sees.pairs.size()))
    for (std::size_t pair = 0; pair < sees.pairs.size(); ++pair)
      if (!sees.pairs[pair] && p.bias.at(static_cast<std::int64_t>(pair)) != -kInfinity)
        p.bias.set(static_cast<std::int64_t>(pair), kNaN);
  const std::string found = first_change(g, before, reference_gradients_of<double>(g));
  return found.empty() ? found : found + " by numbers behind masks";
}

TEST(reference_gradient, nan_behind_a_mask_reaches_no_gradient) {
  check_draws(broken_by_masked_nan, DType::f64, kSmall, 300, 35);
}

// A NaN that somebody sees: rows and keys beyond it keep their bits.
std::string broken_by_strangers(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  Problem& p = g.problem;
  const ReferenceGradients<double> before = reference_gradients_of<double>(g);
  const Visibility sees(p.shape, before.forward);
  Rng rng(static_cast<std::uint64_t>(draw.seed) + 3);
  const auto row =
      static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(sees.rows.size()) - 1));
  const auto key =
      static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(sees.keys.size()) - 1));
  const std::string kind = draw.way / 2 % 4 == 0   ? "query"
                           : draw.way / 2 % 4 == 1 ? "dout"
                           : draw.way / 2 % 4 == 2 ? "key"
                                                   : "value";
  if (kind == "query") set_row(p.query, static_cast<std::int64_t>(row), kNaN);
  if (kind == "dout") set_row(g.dout, static_cast<std::int64_t>(row), kNaN);
  if (kind == "key") set_row(p.key, static_cast<std::int64_t>(key), kNaN);
  if (kind == "value") set_row(p.value, static_cast<std::int64_t>(key), kNaN);

  const bool by_row = kind == "query" || kind == "dout";
  std::set<std::size_t> sick_rows, sick_keys, sick_heads;
  for (std::size_t pair = 0; pair < sees.pairs.size(); ++pair)
    if (sees.pairs[pair] && (by_row ? sees.row_of(pair) == row : sees.key_of(pair) == key)) {
      sick_rows.insert(sees.row_of(pair));
      sick_heads.insert(sees.head_of(sees.row_of(pair)));
    }
  for (std::size_t pair = 0; pair < sees.pairs.size(); ++pair)
    if (sees.pairs[pair] && sick_rows.count(sees.row_of(pair)) > 0)
      sick_keys.insert(sees.key_of(pair));

  const ReferenceGradients<double> after = reference_gradients_of<double>(g);
  for (std::size_t pair = 0; pair < sees.pairs.size(); ++pair)
    if (sees.pairs[pair] && sick_rows.count(sees.row_of(pair)) > 0 &&
        !std::isnan(after.dlogits[pair]))
      return "dlogits[" + std::to_string(pair) + "] of a row that sees NaN in " + kind +
             " is a number";
  const Shape& s = p.shape;
  const std::string found =
      first_change(g, before, after, [&](const NamedGradient& d, std::size_t n) {
        const std::string name = d.name;
        if (name == "dbias") return true;  // sums of dlogits, which are looked at
        if (name == "dsinks" || name == "dscale") {
          for (std::size_t head : sick_heads)
            if (head % static_cast<std::size_t>(s.q_heads) == n) return true;
          return false;
        }
        if (name == "dslopes") return sick_heads.count(n) > 0;
        const auto at = n / static_cast<std::size_t>(d.shape.back());
        return (name == "dkey" || name == "dvalue" ? sick_keys : sick_rows).count(at) > 0;
      });
  return found.empty() ? found : found + " by NaN in " + kind + " that it does not see";
}

TEST(reference_gradient, a_nan_reaches_only_the_rows_that_see_it_and_their_keys) {
  check_draws(broken_by_strangers, DType::f64, kSmall, 300, 36);
}

std::string broken_by_empty_rows(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
  const Visibility sees(g.problem.shape, gradients.forward);
  for (const NamedGradient& d : named_gradients(g, gradients)) {
    const std::string name = d.name;
    const bool of_rows = name == "dquery" || name == "dweights" || name == "dlogits";
    if (!of_rows && name != "dkey" && name != "dvalue") continue;
    for (std::size_t n = 0; n < d.values->size(); ++n) {
      const auto at = n / static_cast<std::size_t>(d.shape.back());
      if (!(of_rows ? sees.rows : sees.keys)[at] && (*d.values)[n] != 0)
        return name + '[' + std::to_string(n) + "] is not 0";
    }
  }
  return {};
}

TEST(reference_gradient, rows_and_keys_that_see_nobody_have_gradient_zero) {
  check_draws(broken_by_empty_rows, DType::f64, kSmall, 300, 37);
}

TEST(reference_gradient, a_row_without_keys_gives_its_dlse_to_the_sink_or_to_nobody) {
  Problem p = make_problem({1, 2, 1, 1, 3, 2, 2}, DType::f64, 38);
  p.mask = TensorBuffer(DType::boolean, {1});
  p.mask.set(0, 0);
  p.sinks = TensorBuffer(DType::f64, {2});
  p.sinks.set(0, 0.5);
  p.sinks.set(1, -kInfinity);
  GradientProblem g = gradient_problem(p, 39, true, false);
  const double dlse = g.dlse.at(0);
  for (double dout : {1.0, kNaN}) {
    g.dout.fill([&] { return dout; });
    const ReferenceGradients<double> gradients = reference_gradients_of<double>(g);
    EXPECT_EQ(gradients.dsinks, (std::vector<double>{dlse, 0}));
    for (const NamedGradient& d : named_gradients(g, gradients)) {
      if (d.values == &gradients.dsinks) continue;
      for (double x : *d.values) EXPECT_EQ(x, 0) << d.name;
    }
  }
}

// Keys and values of each group repeated for every query head.
TensorBuffer repeated_heads(const TensorBuffer& heads, std::int64_t group) {
  TensorBuffer repeated(
      heads.dtype(), {heads.extent(0), heads.extent(1) * group, heads.extent(2), heads.extent(3)});
  const std::int64_t head = heads.extent(2) * heads.extent(3);
  std::int64_t n = 0;
  repeated.fill([&] {
    const std::int64_t from = n / head / group * head + n % head;
    ++n;
    return heads.at(from);
  });
  return repeated;
}

std::vector<double> summed_groups(const std::vector<double>& heads, std::size_t head,
                                  std::size_t group) {
  std::vector<double> sums(heads.size() / group, 0.0);
  for (std::size_t n = 0; n < heads.size(); ++n)
    sums[n / (head * group) * head + n % head] += heads[n];
  return sums;
}

std::string broken_by_groups(const Draw& draw) {
  const GradientProblem grouped = gradient_problem_of(draw);
  GradientProblem repeated = grouped;
  Shape& s = repeated.problem.shape;
  repeated.problem.key = repeated_heads(grouped.problem.key, draw.group);
  repeated.problem.value = repeated_heads(grouped.problem.value, draw.group);
  s.kv_heads = s.q_heads;
  const ReferenceGradients<double> a = reference_gradients_of<double>(grouped);
  ReferenceGradients<double> b = reference_gradients_of<double>(repeated);
  const auto group = static_cast<std::size_t>(draw.group),
             keys = static_cast<std::size_t>(s.kv_len);
  b.dkey = summed_groups(b.dkey, keys * static_cast<std::size_t>(s.head_dim), group);
  b.dvalue = summed_groups(b.dvalue, keys * static_cast<std::size_t>(s.value_dim), group);
  return first_change(grouped, a, b);
}

TEST(reference_gradient, gradients_of_a_group_are_the_sums_of_its_heads) {
  check_draws(broken_by_groups, DType::f64, kSmall, 200, 40);
}

}  // namespace
}  // namespace poise::test
