// The laws of backward() themselves.
//
// In: Draws. Out: sentences about what broke. Nothing here knows how backward() does its work.
#include "support/gradient_laws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/child_process.h"
#include "support/gradient_bounds.h"
#include "support/shuffled_executor.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A shape that broadcasts to [B, Hq, Lq, Lk]; bits of `axes` are summed over.
Extents bias_extents(const Shape& s, int axes) {
  Extents extents = {s.batch, s.q_heads, s.q_len, s.kv_len};
  for (int axis = 0; axis < kMaxRank; ++axis)
    if ((axes >> axis & 1) != 0) extents[static_cast<std::size_t>(axis)] = 1;
  extents.erase(extents.begin(), extents.begin() + axes / 16 % 4);
  return extents;
}

// The wish a draw asks for where a law leaves it open.
GradientWish wish_of(const Draw& draw) {
  GradientWish wish;
  if (draw.way / 2 % 3 == 0)
    wish.bias_extents = bias_extents(problem_of(draw).shape, draw.way % 64);
  wish.scale_per_head = draw.way / 3 % 2 == 0;
  return wish;
}

// dout that repeats along the axes of `axes`.
void repeat_dout(GradientProblem& g, int axes) {
  const TensorBuffer once = g.dout;
  Extents extents, strides;
  std::int64_t step = 1;
  for (int axis = kMaxRank - 1; axis >= 0; --axis) {
    const bool repeats = (axes >> axis & 1) != 0;
    extents.insert(extents.begin(), once.extent(axis));
    strides.insert(strides.begin(), repeats ? 0 : step);
    if (!repeats) step *= std::max<std::int64_t>(once.extent(axis), 1);
  }
  g.dout = TensorBuffer(once.dtype(), extents, strides);
  std::int64_t n = 0;
  g.dout.fill([&] { return once.at(n++); });
}

void set_row(TensorBuffer& tensor, std::int64_t row, double x) {
  if (!tensor.given()) return;
  const std::int64_t dim = tensor.view().rank == 4 ? tensor.extent(3) : 1;
  for (std::int64_t c = 0; c < dim; ++c) tensor.set(row * dim + c, x);
}

// Own memory for everything a law changes.
GradientProblem with_own_tensors(const GradientProblem& g) {
  GradientProblem copy = g;
  for (TensorBuffer* tensor : copy.problem.tensors()) *tensor = tensor->copied(Layout::contiguous);
  copy.dout = g.dout.copied(Layout::contiguous);
  copy.dlse = g.dlse.copied(Layout::contiguous);
  return copy;
}

// `tensor` with `more` further places on one axis, which hold x.
TensorBuffer lengthened(const TensorBuffer& tensor, int axis, std::int64_t more, double x) {
  if (!tensor.given()) return tensor;
  Extents extents;
  for (int a = 0; a < tensor.view().rank; ++a) extents.push_back(tensor.extent(a));
  extents[static_cast<std::size_t>(axis)] += more;
  const TensorBuffer longer(tensor.dtype(), extents);
  TensorBuffer all = longer, old = longer.sliced(axis, 0, tensor.extent(axis));
  all.fill([&] { return x; });
  std::int64_t n = 0;
  old.fill([&] { return tensor.at(n++); });
  return longer;
}

// The same for a mask or bias that has axis `axis` of [B, Hq, Lq, Lk].
TensorBuffer lengthened_broadcast(const TensorBuffer& tensor, int axis, std::int64_t more,
                                  double x) {
  const int own = axis - (kMaxRank - tensor.view().rank);
  if (!tensor.given() || own < 0 || tensor.extent(own) == 1) return tensor;
  return lengthened(tensor, own, more, x);
}

TensorBuffer lengths_of(const TensorBuffer& given, std::int64_t batch, std::int64_t length) {
  TensorBuffer lengths(DType::i64, Extents{batch});
  std::int64_t b = 0;
  lengths.fill([&] { return given.given() ? given.at(b++) : static_cast<double>(length); });
  return lengths;
}

// Rows that see a key, and keys of [B, Hkv, Lk] that a row sees.
struct Seen {
  std::vector<bool> rows, keys;

  Seen(const Shape& s, const ReferenceResult<double>& r)
      : rows(r.lse.size()), keys(static_cast<std::size_t>(s.batch * s.kv_heads * s.kv_len)) {
    const std::int64_t group = s.q_heads / s.kv_heads;
    for (std::size_t pair = 0; pair < r.logits.size(); ++pair) {
      if (r.logits[pair] == -kInfinity) continue;
      const auto row = static_cast<std::int64_t>(pair) / s.kv_len;
      rows[static_cast<std::size_t>(row)] = true;
      keys[static_cast<std::size_t>(row / s.q_len / group * s.kv_len +
                                    static_cast<std::int64_t>(pair) % s.kv_len)] = true;
    }
  }
};

}  // namespace

std::string gradients_broken_by_definition(const Draw& draw) {
  GradientProblem g = gradient_problem_of(draw);
  GradientWish wish = wish_of(draw);
  wish.from_lse = draw.way / 5 % 4 == 0;
  if (draw.way / 7 % 4 == 0) repeat_dout(g, draw.way % 16);
  return disagreement(g, run(g, wish), ExpectedGradients(g, wish.from_lse));
}

std::string gradients_broken_by_wishes(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const ForwardState state(g.problem);
  GradientWish all = wish_of(draw);
  all.from_lse = draw.way / 5 % 4 == 0;
  const GradientOutputs whole = run(g, state, all);
  GradientWish measured = all;
  measured.statistics = true;
  std::string found = difference(whole, run(g, state, measured), "with statistics");
  if (!found.empty()) return found;
  constexpr bool GradientWish::*kEach[] = {
      &GradientWish::dq,     &GradientWish::dk,     &GradientWish::dv,     &GradientWish::dbias,
      &GradientWish::dsinks, &GradientWish::dscale, &GradientWish::dslopes};
  for (std::size_t alone = 0; alone < std::size(kEach); ++alone) {
    GradientWish wish = all;
    for (std::size_t n = 0; n < std::size(kEach); ++n) wish.*kEach[n] = n == alone;
    const GradientOutputs o = run(g, state, wish);
    found = difference(whole, o, std::string(o.tensors()[alone].first) + " alone");
    if (!found.empty()) return found;
  }
  return {};
}

std::string gradients_broken_by_threads(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const ForwardState state(g.problem);
  GradientWish wish = wish_of(draw);
  wish.executor = &serial_executor();
  const GradientOutputs one = run(g, state, wish);
  const int threads = 2 + draw.way / 12 % 4;
  ThreadExecutor pool(threads);
  ShuffledExecutor shuffled(threads, static_cast<std::uint64_t>(draw.seed));
  struct Way {
    const char* name;
    Executor* executor;
  };
  for (const Way& way :
       {Way{"std::thread", &pool}, Way{"shuffled", &shuffled}, Way{"oneTBB", nullptr}}) {
    wish.executor = way.executor;
    wish.threads = threads;
    const std::string found =
        difference(one, run(g, state, wish), std::to_string(threads) + " threads, " + way.name);
    if (!found.empty()) return found;
  }
  return {};
}

std::string gradients_broken_by_batch(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const GradientOutputs whole = run(g);
  for (std::int64_t b = 0; b < g.problem.shape.batch; ++b) {
    const std::string found = difference(batch_entry(whole, b), run(batch_entry(g, b)),
                                         "batch entry " + std::to_string(b));
    if (!found.empty()) return found;
  }
  return {};
}

std::string gradients_broken_by_chunks(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const GradientOutputs whole = run(g);
  const std::int64_t count = 1 + draw.way % draw.q_len, last = draw.q_len - count;
  // The first, the last, and one that begins anywhere.
  for (std::int64_t begin : {std::int64_t{0}, last, last * (draw.way / 80) / 13}) {
    const std::string found =
        difference(query_chunk(whole, begin, count), run(query_chunk(g, begin, count)),
                   "queries " + std::to_string(begin) + " + " + std::to_string(count));
    if (!found.empty()) return found;
  }
  return {};
}

std::string gradients_broken_by_padding(const Draw& draw) {
  const GradientProblem exact = gradient_problem_of(draw);
  const Shape& s = exact.problem.shape;
  const std::int64_t more_keys = 1 + draw.way % 300, more_rows = draw.way / 3 % 80;
  const GradientOutputs expected = run(exact);
  // A chunk that is everything has its diagonal made explicit: bottom_right would move with Lq.
  GradientProblem padded = exact;
  if (!exact.problem.q_lengths.given()) padded = query_chunk(exact, 0, s.q_len);
  Problem& p = padded.problem;
  p.kv_lengths = lengths_of(p.kv_lengths, s.batch, s.kv_len);
  p.key = lengthened(p.key, 2, more_keys, kNaN);
  p.value = lengthened(p.value, 2, more_keys, kInfinity);
  p.mask = lengthened_broadcast(p.mask, 3, more_keys, 1);
  p.bias = lengthened_broadcast(p.bias, 3, more_keys, kNaN);
  p.shape.kv_len += more_keys;
  if (!exact.problem.q_lengths.given()) {
    p.q_lengths = lengths_of({}, s.batch, s.q_len);
    p.query = lengthened(p.query, 2, more_rows, kNaN);
    p.mask = lengthened_broadcast(p.mask, 2, more_rows, 1);
    p.bias = lengthened_broadcast(p.bias, 2, more_rows, kNaN);
    padded.dout = lengthened(padded.dout, 2, more_rows, kNaN);
    padded.dlse = lengthened(padded.dlse, 2, more_rows, kNaN);
    p.shape.q_len += more_rows;
  }
  const GradientOutputs o = run(padded, {.dbias = false});
  if (o.error) return o.error.message();
  GradientOutputs part = o;
  part.dq = o.dq.sliced(2, 0, s.q_len);
  part.dk = o.dk.sliced(2, 0, s.kv_len);
  part.dv = o.dv.sliced(2, 0, s.kv_len);
  const std::string found = difference(expected, part, "padded");
  if (!found.empty()) return found;
  for (const TensorBuffer& beyond :
       {o.dq.sliced(2, s.q_len, p.shape.q_len - s.q_len), o.dk.sliced(2, s.kv_len, more_keys),
        o.dv.sliced(2, s.kv_len, more_keys)})
    for (double x : beyond.values())
      if (x != 0) return "a gradient beyond the lengths is " + std::to_string(x);
  return {};
}

std::string gradients_broken_by_layout(const Draw& draw) {
  const GradientProblem g = gradient_problem_of(draw);
  const ForwardState state(g.problem);
  GradientWish wish = wish_of(draw);
  wish.from_lse = draw.way / 5 % 4 == 0;
  const GradientOutputs expected = run(g, state, wish);
  return in_forked_child([&]() -> std::string {
    for (Placement placement : {Placement::before_guard, Placement::after_guard}) {
      const Layout layout = kLayouts[static_cast<std::size_t>(draw.way) % std::size(kLayouts)];
      GradientProblem other = g;
      for (TensorBuffer* tensor : other.problem.tensors())
        *tensor = tensor->copied(layout, placement);
      other.dout = g.dout.copied(layout, placement);
      other.dlse = g.dlse.copied(layout, placement);
      ForwardState moved = state;
      for (TensorBuffer* tensor : {&moved.out, &moved.row_max, &moved.row_sum, &moved.lse})
        *tensor = tensor->copied(layout, placement);
      wish.layout = layout;
      wish.placement = placement;
      const GradientOutputs o = run(other, moved, wish);
      const std::string when = std::string("layout ") + name(layout);
      const std::string found = difference(expected, o, when);
      if (!found.empty()) return found;
      for (const auto& [label, tensor] : o.tensors())
        if (tensor->given() && !tensor->gaps_untouched()) return when + ": wrote outside " + label;
    }
    return {};
  });
}

std::string gradients_broken_by_hidden(const Draw& draw) {
  const GradientProblem clean = gradient_problem_of(draw);
  const ReferenceResult<double> r = reference_of<double>(clean.problem);
  const Seen seen(clean.problem.shape, r);
  GradientProblem bad = with_own_tensors(clean);
  Problem& p = bad.problem;
  for (std::size_t key = 0; key < seen.keys.size(); ++key) {
    if (seen.keys[key]) continue;
    const auto at = static_cast<std::int64_t>(key);
    set_row(p.key, at, key % 2 == 0 ? kNaN : kInfinity);
    set_row(p.value, at, key % 3 == 0 ? kInfinity : kNaN);
  }
  for (std::size_t row = 0; row < seen.rows.size(); ++row) {
    if (seen.rows[row]) continue;
    const auto at = static_cast<std::int64_t>(row);
    set_row(p.query, at, kNaN);
    set_row(bad.dout, at, row % 2 == 0 ? kNaN : kInfinity);
    if (r.row_sum[row] == 0) set_row(bad.dlse, at, kNaN);
  }
  if (p.bias.given() && p.bias.count() == static_cast<std::int64_t>(r.logits.size()))
    for (std::size_t pair = 0; pair < r.logits.size(); ++pair) {
      const auto at = static_cast<std::int64_t>(pair);
      if (r.logits[pair] == -kInfinity && p.bias.at(at) != -kInfinity) p.bias.set(at, kNaN);
    }
  const GradientWish wish = wish_of(draw);
  return difference(run(clean, wish), run(bad, wish), "beside hidden numbers");
}

std::string gradients_broken_by_strangers(const Draw& draw) {
  const GradientProblem clean = gradient_problem_of(draw);
  GradientProblem bad = with_own_tensors(clean);
  Problem& p = bad.problem;
  Rng rng(static_cast<std::uint64_t>(draw.seed) + 3);
  TensorBuffer* const spoiled[] = {&p.key, &p.value, &p.query, &bad.dout};
  TensorBuffer& tensor = *spoiled[draw.way / 2 % 4];
  if (tensor.count() > 0) tensor.set(rng.integer(0, tensor.count() - 1), kNaN);

  const GradientWish wish = wish_of(draw);
  GradientOutputs before = run(clean, wish), after = run(bad, wish);
  if (before.error) return before.error.message();
  // A row whose weights are all dropped is one without keys to dsinks.
  if (draw.dropout > 0) after.dsinks = TensorBuffer();
  const ExpectedGradients expected(bad);
  // NaN exactly where the definition has it; other elements are put aside below.
  GradientOutputs known = before;
  const auto was = before.tensors(), is = after.tensors();
  const std::vector<double>* const reference[] = {
      &expected.reference.dquery, &expected.reference.dkey, &expected.reference.dvalue};
  for (std::size_t n = 0; n < std::size(reference); ++n)
    for (std::size_t at = 0; at < reference[n]->size(); ++at)
      if (std::isnan((*reference[n])[at])) {
        TensorBuffer view = *was[n].second;  // of the same elements
        view.set(static_cast<std::int64_t>(at), kNaN);
      }
  known.dbias = known.dsinks = known.dscale = known.dslopes = TensorBuffer();
  const std::string found = difference(known, after, "beside a NaN");
  return found.empty() ? disagreement(bad, after, expected) : found;
}

}  // namespace poise::test
