// Generators of Draws and the Problems they stand for.
//
// In: limits, Draws. Out: rc::Gen, Problem. No number is drawn here but by RapidCheck or from
// Draw::seed, so that a Draw names its Problem completely.
#include "support/drawn_problem.h"

#include <algorithm>
#include <limits>
#include <ostream>

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSpreads[] = {1, 4, 0.05, 0.3, 30};
constexpr double kSoftcaps[] = {0, 5, 0.5, 50};
constexpr double kDropouts[] = {0, 0.1, 0.5, 0.9};
constexpr DType kBiasDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
constexpr int kAxes = 16;  // subsets of [B, Hq, Lq, Lk]

// Both ends included; shrinks to low.
rc::Gen<int> whole(int low, int high) {
  // inRange reaches its end only at the nominal size.
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}

// True once in n; shrinks to false.
rc::Gen<bool> once_in(int n) {
  return rc::gen::map(whole(0, n - 1), [n](int x) { return x == n - 1; });
}

// 0 but once in n, then one of 1 ... highest; shrinks to 0.
rc::Gen<int> sometimes(int n, int highest) {
  const int zeros = (n - 1) * highest;
  return rc::gen::map(whole(0, n * highest - 1),
                      [=](int x) { return x < zeros ? 0 : x - zeros + 1; });
}

// Lengths beside multiples of a unit.
rc::Gen<int> beside(int unit, int highest) {
  return rc::gen::apply(
      [=](int times, int tail) { return std::clamp(times * unit + tail, 1, highest); },
      whole(0, highest / unit), whole(-3, 5));
}

rc::Gen<int> kv_lens(int highest) {
  return rc::gen::oneOf(whole(1, std::min(highest, 140)), beside(static_cast<int>(kBlock), highest),
                        beside(static_cast<int>(kSplit), highest), whole(1, highest));
}

rc::Gen<int> dims(int highest) {
  return rc::gen::oneOf(whole(1, std::min(highest, 20)), whole(1, std::min(highest, 48)),
                        beside(16, highest), whole(1, highest));
}

Extents broadcast_extents(const Shape& s, int axes) {
  Extents extents = {s.batch, s.q_heads, s.q_len, s.kv_len};
  for (int axis = 0; axis < kMaxRank; ++axis)
    if ((axes >> axis & 1) != 0) extents[static_cast<std::size_t>(axis)] = 1;
  return extents;
}

void add_positions(Problem& p, const Draw& d, Rng& rng) {
  const Shape& s = p.shape;
  const std::int64_t offset = s.kv_len - s.q_len + d.offset;
  const Causal kinds[] = {Causal::none(), Causal::top_left(), Causal::bottom_right(),
                          Causal::offset(offset)};
  p.options.causal = kinds[d.causal];
  p.options.window_left = d.window_left - 1;
  p.options.window_right = d.window_right - 1;
  // A call names one diagonal: Causal::offset beside another one is refused.
  if (p.options.causal.kind() != Causal::Kind::offset && d.diagonal == 1)
    p.options.diagonal = offset;
  if (p.options.causal.kind() != Causal::Kind::offset && d.diagonal == 2) {
    p.diagonals = TensorBuffer(DType::i32, Extents{s.batch});
    p.diagonals.fill([&] { return static_cast<double>(offset + rng.integer(-9, 9)); });
  }
  if (d.kv_lengths) p.kv_lengths = random_lengths(rng, s.batch, s.kv_len);
  if (d.q_lengths) p.q_lengths = random_lengths(rng, s.batch, s.q_len);
}

// A few numbers that are not finite, in key, value or both.
void poison(Problem& p, int kind, Rng& rng) {
  for (TensorBuffer* tensor : {&p.key, &p.value}) {
    if ((tensor == &p.key ? kind : kind >> 1) % 2 == 0) continue;
    for (int n = 0; n < 3; ++n)
      tensor->set(rng.integer(0, tensor->count() - 1),
                  rng.pick({kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}));
  }
}

void lay_out(Problem& p, int layouts, Rng& rng) {
  if (layouts == 0) return;
  for (TensorBuffer* tensor : p.tensors()) {
    if (!tensor->given()) continue;
    const auto drawn = kLayouts[rng.integer(0, std::size(kLayouts) - 1)];
    *tensor = tensor->copied(layouts == 1 ? Layout::blhd : drawn);
  }
}

}  // namespace

rc::Gen<Draw> draws(DType dtype, const DrawLimits& limits) {
  using rc::gen::set;
  // Rows of one kv head first: they decide which kernel runs.
  const auto shaped = rc::gen::apply(
      [=](int rows, int group, int more) {
        Draw d;
        d.dtype = dtype;
        d.group = group;
        d.q_len = std::clamp(rows / group + more, 1, limits.max_q_len);
        return d;
      },
      whole(1, limits.max_rows), whole(1, 8), sometimes(3, limits.max_q_len));
  return rc::gen::build<Draw>(
      shaped, set(&Draw::batch, whole(1, 2)), set(&Draw::kv_heads, whole(1, 2)),
      set(&Draw::kv_len, kv_lens(limits.max_kv_len)), set(&Draw::head_dim, dims(limits.max_dim)),
      set(&Draw::value_dim, dims(limits.max_dim)), set(&Draw::causal, sometimes(2, 3)),
      set(&Draw::diagonal, sometimes(4, 2)), set(&Draw::offset, whole(0, 40)),
      set(&Draw::window_left, sometimes(4, 700)), set(&Draw::window_right, sometimes(5, 300)),
      set(&Draw::mask, sometimes(3, kAxes)), set(&Draw::bias, sometimes(3, kAxes)),
      set(&Draw::bias_dtype, whole(0, 3)), set(&Draw::softcap, sometimes(4, 3)),
      set(&Draw::scale, sometimes(4, 4)), set(&Draw::dropout, sometimes(3, 3)),
      set(&Draw::spread, whole(0, 4)), set(&Draw::kv_lengths, once_in(4)),
      set(&Draw::q_lengths, limits.q_lengths ? once_in(4) : rc::gen::just(false)),
      set(&Draw::alibi, once_in(4)), set(&Draw::sinks, once_in(4)),
      set(&Draw::layouts, sometimes(2, 6)),
      set(&Draw::poison, limits.poison ? sometimes(6, 3) : rc::gen::just(0)),
      set(&Draw::way, whole(0, 999)), set(&Draw::seed, whole(0, 999999)));
}

Problem problem_of(const Draw& d) {
  const Shape s{d.batch,  d.kv_heads * d.group, d.kv_heads, d.q_len,
                d.kv_len, d.head_dim,           d.value_dim};
  Problem p = make_problem(s, d.dtype, static_cast<std::uint64_t>(d.seed), kSpreads[d.spread]);
  Rng rng(static_cast<std::uint64_t>(d.seed) + 1);
  add_positions(p, d, rng);
  p.options.softcap = kSoftcaps[d.softcap];
  if (d.scale > 0 && d.scale < 4) p.options.scale = d.scale == 1 ? 0.125 : d.scale == 2 ? -0.3 : 0;
  if (d.scale == 4) {
    p.scale_per_head = TensorBuffer(p.number_dtype(), Extents{s.q_heads});
    p.scale_per_head.fill([&] { return rng.pick({0.0, -0.5, 0.25, 0.1}); });
  }
  if (d.mask > 0)
    add_random_mask(p, rng, rng.pick({0.05, 0.7, 0.97}), broadcast_extents(s, d.mask - 1));
  if (d.bias > 0)
    add_random_bias(p, rng, kBiasDTypes[d.bias_dtype], broadcast_extents(s, d.bias - 1),
                    rng.pick({0.0, 0.2}));
  if (d.alibi) add_alibi(p);
  if (d.sinks) add_sinks(p, rng);
  if (d.dropout > 0) add_dropout(p, rng, kDropouts[d.dropout]);
  if (d.poison > 0) poison(p, d.poison, rng);
  lay_out(p, d.layouts, rng);
  return p;
}

std::ostream& operator<<(std::ostream& os, const Draw& d) {
  const Draw plain;
  os << "Draw{.dtype = DType::" << name(d.dtype);
  auto field = [&](const char* label, int value, int usual) {
    if (value != usual) os << ", ." << label << " = " << value;
  };
  field("batch", d.batch, plain.batch);
  field("kv_heads", d.kv_heads, plain.kv_heads);
  field("group", d.group, plain.group);
  field("q_len", d.q_len, plain.q_len);
  field("kv_len", d.kv_len, plain.kv_len);
  field("head_dim", d.head_dim, plain.head_dim);
  field("value_dim", d.value_dim, plain.value_dim);
  field("causal", d.causal, plain.causal);
  field("diagonal", d.diagonal, plain.diagonal);
  field("offset", d.offset, plain.offset);
  field("window_left", d.window_left, plain.window_left);
  field("window_right", d.window_right, plain.window_right);
  field("mask", d.mask, plain.mask);
  field("bias", d.bias, plain.bias);
  field("bias_dtype", d.bias_dtype, plain.bias_dtype);
  field("softcap", d.softcap, plain.softcap);
  field("scale", d.scale, plain.scale);
  field("dropout", d.dropout, plain.dropout);
  field("spread", d.spread, plain.spread);
  if (d.kv_lengths) os << ", .kv_lengths = true";
  if (d.q_lengths) os << ", .q_lengths = true";
  if (d.alibi) os << ", .alibi = true";
  if (d.sinks) os << ", .sinks = true";
  field("layouts", d.layouts, plain.layouts);
  field("poison", d.poison, plain.poison);
  field("way", d.way, plain.way);
  field("seed", d.seed, plain.seed);
  return os << "}: " << problem_of(d).describe();
}

}  // namespace poise::test
