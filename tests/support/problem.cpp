// Making, describing and running problems.
//
// In: shapes and seeds. Out: Problem and Outputs. Only the public API of poise is called here.
#include "support/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void fill_normal(TensorBuffer& tensor, Rng& rng, double factor) {
  tensor.fill([&] { return factor * rng.normal(); });
}

// A shape that broadcasts to [B, Hq, Lq, Lk]: axes shrunk to 1 or left away from the left.
Extents random_broadcast(const Shape& s, Rng& rng) {
  Extents extents = {s.batch, s.q_heads, s.q_len, s.kv_len};
  for (std::int64_t& extent : extents)
    if (rng.chance(0.25)) extent = 1;
  extents.erase(extents.begin(), extents.begin() + rng.integer(0, 3));
  return extents;
}

Causal random_causal(Rng& rng, const Shape& s) {
  switch (rng.integer(0, 5)) {
    case 0:
      return Causal::top_left();
    case 1:
      return Causal::bottom_right();
    case 2:
      return Causal::offset(rng.integer(-s.q_len, s.kv_len));
    default:
      return Causal::none();
  }
}

void add_random_positions(Problem& p, Rng& rng, const RandomLimits& limits) {
  const Shape& s = p.shape;
  if (limits.empty_rows) p.options.causal = random_causal(rng, s);
  if (limits.empty_rows && rng.chance(0.2)) p.options.window_left = rng.integer(0, s.kv_len);
  if (limits.empty_rows && rng.chance(0.2)) p.options.window_right = rng.integer(0, s.kv_len);
  // A call names one diagonal: Causal::offset beside another one is refused.
  const bool has_offset = p.options.causal.kind() == Causal::Kind::offset;
  if (!has_offset && rng.chance(0.15)) p.options.diagonal = rng.integer(-s.q_len, s.kv_len);
  if (!has_offset && !p.options.diagonal && rng.chance(0.15)) {
    p.diagonals = TensorBuffer(rng.pick({DType::i32, DType::i64}), Extents{s.batch});
    p.diagonals.fill([&] { return static_cast<double>(rng.integer(-s.q_len, s.kv_len)); });
  }
  if (limits.empty_rows && rng.chance(0.25)) p.kv_lengths = random_lengths(rng, s.batch, s.kv_len);
  if (rng.chance(0.2)) p.q_lengths = random_lengths(rng, s.batch, s.q_len);
}

Layout random_layout(Rng& rng) { return kLayouts[rng.integer(0, std::size(kLayouts) - 1)]; }

}  // namespace

Options Problem::call_options() const {
  Options o = options;
  o.scale_per_head = scale_per_head.view();
  o.mask = mask.view();
  o.bias = bias.view();
  o.diagonals = diagonals.view();
  o.kv_lengths = kv_lengths.view();
  o.q_lengths = q_lengths.view();
  o.alibi_slopes = alibi_slopes.view();
  o.sinks = sinks.view();
  return o;
}

std::vector<TensorBuffer*> Problem::tensors() {
  return {&query,     &key,        &value,     &scale_per_head, &mask, &bias,
          &diagonals, &kv_lengths, &q_lengths, &alibi_slopes,   &sinks};
}

std::string Problem::describe() const {
  std::ostringstream text;
  text << name(dtype) << " B=" << shape.batch << " Hq=" << shape.q_heads
       << " Hkv=" << shape.kv_heads << " Lq=" << shape.q_len << " Lk=" << shape.kv_len
       << " D=" << shape.head_dim << " Dv=" << shape.value_dim;
  if (options.causal.kind() != Causal::Kind::none)
    text << " causal kind " << static_cast<int>(options.causal.kind()) << " offset "
         << options.causal.diagonal();
  if (options.scale) text << " scale=" << *options.scale;
  if (options.softcap > 0) text << " softcap=" << options.softcap;
  if (options.window_left >= 0) text << " window_left=" << options.window_left;
  if (options.window_right >= 0) text << " window_right=" << options.window_right;
  if (options.diagonal) text << " diagonal=" << *options.diagonal;
  if (options.dropout.probability > 0) text << " dropout=" << options.dropout.probability;
  auto tensor = [&](const char* label, const TensorBuffer& t) {
    if (!t.given()) return;
    text << ' ' << label << ' ' << name(t.dtype()) << '[';
    for (int axis = 0; axis < t.view().rank; ++axis)
      text << (axis > 0 ? "," : "") << t.extent(axis) << ':' << t.view().stride(axis);
    text << ']';
  };
  tensor("query", query);
  tensor("key", key);
  tensor("value", value);
  tensor("scale_per_head", scale_per_head);
  tensor("mask", mask);
  tensor("bias", bias);
  tensor("diagonals", diagonals);
  tensor("kv_lengths", kv_lengths);
  tensor("q_lengths", q_lengths);
  tensor("alibi", alibi_slopes);
  tensor("sinks", sinks);
  return text.str();
}

Problem make_problem(const Shape& s, DType dtype, std::uint64_t seed, double spread) {
  Problem p;
  p.shape = s;
  p.dtype = dtype;
  Rng rng(seed);
  p.query = TensorBuffer(dtype, Extents{s.batch, s.q_heads, s.q_len, s.head_dim});
  p.key = TensorBuffer(dtype, Extents{s.batch, s.kv_heads, s.kv_len, s.head_dim});
  p.value = TensorBuffer(dtype, Extents{s.batch, s.kv_heads, s.kv_len, s.value_dim});
  fill_normal(p.query, rng, spread);
  fill_normal(p.key, rng, 1);
  fill_normal(p.value, rng, 1);
  return p;
}

void add_random_mask(Problem& p, Rng& rng, double keep, const Extents& extents) {
  p.mask = TensorBuffer(DType::boolean, extents);
  p.mask.fill([&] { return rng.chance(keep) ? 1.0 : 0.0; });
}

void add_random_bias(Problem& p, Rng& rng, DType dtype, const Extents& extents, double masked) {
  p.bias = TensorBuffer(dtype, extents);
  p.bias.fill([&] { return rng.chance(masked) ? -kInfinity : 2 * rng.normal(); });
}

void add_dropout(Problem& p, Rng& rng, double probability) {
  p.options.dropout = {.probability = probability, .seed = rng.next(), .offset = rng.next()};
}

// Slopes as in Press et al. 2021 (2108.12409): 2^(-8 (h + 1) / Hq).
void add_alibi(Problem& p) {
  p.alibi_slopes = TensorBuffer(p.number_dtype(), Extents{p.shape.q_heads});
  double h = 0;
  p.alibi_slopes.fill([&] { return std::exp2(-8 * ++h / static_cast<double>(p.shape.q_heads)); });
}

void add_sinks(Problem& p, Rng& rng) {
  p.sinks = TensorBuffer(p.number_dtype(), Extents{p.shape.q_heads});
  p.sinks.fill([&] { return rng.chance(0.2) ? -kInfinity : 2 * rng.normal(); });
}

TensorBuffer random_lengths(Rng& rng, std::int64_t batch, std::int64_t bound) {
  TensorBuffer lengths(DType::i32, Extents{batch});
  lengths.fill([&] { return static_cast<double>(rng.integer(0, bound)); });
  return lengths;
}

Problem random_problem(std::uint64_t seed, DType dtype, const RandomLimits& limits) {
  Rng rng(seed);
  Shape s;
  s.batch = rng.integer(1, 3);
  s.kv_heads = rng.integer(1, 3);
  s.q_heads = s.kv_heads * rng.integer(1, 3);
  s.q_len = rng.integer(1, limits.max_len);
  s.kv_len = rng.integer(1, limits.max_len);
  s.head_dim = rng.integer(1, limits.max_dim);
  s.value_dim = rng.chance(0.5) ? s.head_dim : rng.integer(1, limits.max_dim);
  Problem p = make_problem(s, dtype, rng.next(), rng.pick({0.05, 1.0, 1.0, 4.0}));

  add_random_positions(p, rng, limits);
  if (rng.chance(0.2)) p.options.softcap = rng.pick({0.5, 5.0, 50.0});
  if (rng.chance(0.3)) p.options.scale = rng.pick({0.0, -0.25, 0.125, 1.0});
  if (!p.options.scale && rng.chance(0.15)) {
    p.scale_per_head = TensorBuffer(p.number_dtype(), Extents{s.q_heads});
    p.scale_per_head.fill([&] { return rng.pick({0.0, -0.5, 0.25, 0.1}); });
  }
  if (limits.empty_rows && rng.chance(0.25))
    add_random_mask(p, rng, rng.pick({0.1, 0.7}), random_broadcast(s, rng));
  if (rng.chance(0.25))
    add_random_bias(p, rng, rng.pick({DType::f32, DType::f64, DType::f16, DType::bf16}),
                    random_broadcast(s, rng), limits.empty_rows ? 0.3 : 0);
  if (rng.chance(0.2)) add_alibi(p);
  if (rng.chance(0.2)) add_sinks(p, rng);
  if (limits.layouts)
    for (TensorBuffer* tensor : p.tensors())
      if (tensor->given() && rng.chance(0.4)) *tensor = tensor->copied(random_layout(rng));
  if (rng.chance(0.2)) add_dropout(p, rng, rng.pick({0.1, 0.5, 0.9}));
  return p;
}

std::vector<Problem> long_problems(DType dtype) {
#if defined(POISE_TEST_EMULATED)
  // A tenth of the work: an emulator is that much slower and more. Still three splits of keys, and
  // as many tiles of queries (16 rows of NEON) as AVX-512 has below (64).
  const Shape s{2, 2, 1, 35, 1091, 24, 12};
#elif defined(__SANITIZE_THREAD__)
  // An eighth of the work, whose every access it checks. Still three splits of keys, and two tasks
  // (of 256 rows) for the group of a key head.
  const Shape s{2, 2, 1, 131, 1091, 8, 4};
#else
  const Shape s{2, 4, 2, 131, 1091, 40, 24};
#endif
  std::vector<Problem> problems;
  problems.push_back(make_problem(s, dtype, 101));

  problems.push_back(make_problem(s, dtype, 102, 4));
  problems.back().options.causal = Causal::bottom_right();

  Rng rng(103);
  problems.push_back(make_problem(s, dtype, 104));
  Problem& padded = problems.back();
  padded.options.causal = Causal::bottom_right();
  padded.options.window_left = 700;
  padded.options.softcap = 5;
  padded.kv_lengths = TensorBuffer(DType::i64, {s.batch});
  padded.kv_lengths.set(0, 1027);
  // Fewer keys than queries: rows without keys.
  padded.kv_lengths.set(1, static_cast<double>(s.q_len * 7 / 10));
  add_alibi(padded);
  add_sinks(padded, rng);

  problems.push_back(make_problem(s, dtype, 105));
  Problem& masked = problems.back();
  add_random_mask(masked, rng, 0.6, {s.batch, 1, s.q_len, s.kv_len});
  add_random_bias(masked, rng, dtype, {s.q_heads, 1, s.kv_len}, 0.2);
  masked.options.scale = -0.3;
  add_dropout(masked, rng, 0.3);
  return problems;
}

std::vector<std::pair<const char*, const TensorBuffer*>> Outputs::tensors() const {
  return {{"out", &out},
          {"lse", &lse},
          {"row_max", &row_max},
          {"row_sum", &row_sum},
          {"lse_without_sink", &lse_without_sink},
          {"max_score", &max_score},
          {"accumulator", &accumulator},
          {"scores", &scores},
          {"capped", &capped},
          {"logits", &logits},
          {"weights", &weights}};
}

namespace {

// Makes the outputs that were wished for and hands a call's arguments to `act`.
template <class Act>
Outputs with_call(const Problem& p, const Wish& wish, const Act& act) {
  const Shape& s = p.shape;
  auto make_column = [&](DType dtype) {
    return TensorBuffer(dtype, Extents{s.batch, s.q_heads, s.q_len}, wish.layout, wish.placement);
  };
  auto make = [&](DType dtype, std::int64_t last_axis) {
    return TensorBuffer(dtype, Extents{s.batch, s.q_heads, s.q_len, last_axis}, wish.layout,
                        wish.placement);
  };
  Outputs o;
  o.out = make(p.dtype, s.value_dim);
  if (wish.columns) {
    for (TensorBuffer* column : {&o.lse, &o.lse_without_sink, &o.max_score, &o.row_max, &o.row_sum})
      *column = make_column(p.number_dtype());
    o.accumulator = make(p.number_dtype(), s.value_dim);
  }
  if (wish.pairs)
    for (TensorBuffer* matrix : {&o.scores, &o.capped, &o.logits, &o.weights})
      *matrix = make(p.number_dtype(), s.kv_len);

  Tensor views[10];
  Extras extras;
  const Tensor** const slots[10] = {
      &extras.lse,       &extras.row_max,     &extras.row_sum, &extras.lse_without_sink,
      &extras.max_score, &extras.accumulator, &extras.scores,  &extras.capped,
      &extras.logits,    &extras.weights};
  const auto tensors = o.tensors();
  for (std::size_t n = 0; n < 10; ++n) {
    const TensorBuffer& tensor = *tensors[n + 1].second;
    if (!tensor.given()) continue;
    views[n] = tensor.view();
    *slots[n] = &views[n];
  }
  if (wish.stats.level != StatsLevel::off) {
    o.stats.request = wish.stats;
    extras.stats = &o.stats;
  }
  Options options = p.call_options();
  const CallThreads threads(options, wish.executor, wish.threads);
  o.error = act(p.query.view(), p.key.view(), p.value.view(), o.out.view(), options, extras);
  return o;
}

}  // namespace

Outputs run(const Problem& p, const Wish& wish) {
  return with_call(p, wish, [&](const auto&... call) {
    return wish.plan == nullptr ? attention(call...) : wish.plan->attention(call...);
  });
}

Error make_plan(const Problem& p, const Wish& wish, Plan* plan) {
  return with_call(p, wish, [&](const auto&... call) { return Plan::make(call..., plan); }).error;
}

std::string first_difference(const Outputs& a, const Outputs& b) {
  const auto of_a = a.tensors(), of_b = b.tensors();
  for (std::size_t n = 0; n < of_a.size(); ++n) {
    if (!of_a[n].second->given() || !of_b[n].second->given()) continue;
    const std::string difference = first_difference(*of_a[n].second, *of_b[n].second);
    if (!difference.empty()) return std::string(of_a[n].first) + ' ' + difference;
  }
  return {};
}

}  // namespace poise::test
