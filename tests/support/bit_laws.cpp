// The laws themselves, and their check by RapidCheck.
//
// In: Draws. Out: sentences about what broke. Nothing here knows how attention() does its work.
#include "support/bit_laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "support/bounds.h"
#include "support/child_process.h"
#include "support/drawn_law.h"
#include "support/isa.h"
#include "support/shuffled_executor.h"
#include "support/slices.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kEvery[] = {1, 2, 8};
constexpr int kMostRows = 80;  // of one kv head in a chunk
// A NaN differs from itself, and none may be in a statistic.
constexpr const char* kStatisticsDiffer = "statistics differ, or hold a NaN";

std::string difference(const Outputs& a, const Outputs& b, const std::string& when) {
  for (const Outputs* o : {&a, &b})
    if (o->error) return when + ": " + o->error.message();
  const std::string found = first_difference(a, b);
  return found.empty() ? found : when + ": " + found;
}

StatsRequest drawn_request(int way) {
  return {.level = static_cast<StatsLevel>(way % 4), .every = kEvery[way / 4 % 3]};
}

std::string words(const StatsRequest& request) {
  return std::string("level ") + name(request.level) + " every " + std::to_string(request.every);
}

std::string chunk_difference(const Problem& p, const Outputs& whole, std::int64_t begin,
                             std::int64_t count) {
  return difference(sliced(whole, 2, begin, count), run(query_chunk(p, begin, count)),
                    "queries " + std::to_string(begin) + " + " + std::to_string(count));
}

// The counts of two heads differ, or a sum by more than rounding.
std::string statistics_difference(const HeadStats& a, const HeadStats& b) {
  std::ostringstream found;
  auto same = [&](const char* what, auto x, auto y) {
    if (x != y) found << what << ' ' << x << " against " << y << "; ";
  };
  auto near = [&](const char* what, double x, double y) {
    // A double sum of at most a few hundred terms, in another order.
    if (!(std::fabs(x - y) <= 1e-11 * (1 + std::fabs(x) + std::fabs(y)))) same(what, x, y);
  };
  same("rows", a.rows, b.rows);
  same("measured_rows", a.measured_rows, b.measured_rows);
  same("empty_rows", a.empty_rows, b.empty_rows);
  same("single_rows", a.single_rows, b.single_rows);
  same("visible_keys", a.visible_keys, b.visible_keys);
  same("scores.max", a.scores.max, b.scores.max);
  same("scores.min", a.scores.min, b.scores.min);
  same("lse_max", a.lse_max, b.lse_max);
  near("sum_entropy", a.sum_entropy, b.sum_entropy);
  near("sum_variance", a.scores.sum_variance, b.scores.sum_variance);
  near("sum_top1", a.sum_top1, b.sum_top1);
  near("sum_squares", a.sum_squares, b.sum_squares);
  near("sum_frobenius", a.sum_frobenius, b.sum_frobenius);
  near("tracked weight", a.tracked[0].sum_weight, b.tracked[0].sum_weight);
  if (a.argmax_column != b.argmax_column) found << "argmax_column differs; ";
  if (!(a.histogram == b.histogram)) found << "histogram differs; ";
  return found.str();
}

// Lengths of [0, longest], where not given [0, all].
TensorBuffer shorter_lengths(Rng& rng, const TensorBuffer& longest, std::int64_t batch,
                             std::int64_t all) {
  TensorBuffer lengths(DType::i64, Extents{batch});
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t most = longest.given() ? static_cast<std::int64_t>(longest.at(b)) : all;
    lengths.set(b, static_cast<double>(rng.integer(0, most)));
  }
  return lengths;
}

}  // namespace

std::string broken_by_measuring(const Draw& draw) {
  const Problem p = problem_of(draw);
  const Outputs columns = run(p);
  std::string found = difference(columns, run(p, {.columns = false}), "without lse");
  if (found.empty() && draw.way % 4 == 0)
    found = difference(columns, run(p, {.pairs = true}), "with weights");
  for (StatsLevel level : {StatsLevel::max, StatsLevel::core, StatsLevel::full}) {
    if (!found.empty()) break;
    const StatsRequest request{.level = level, .every = kEvery[draw.way % 3]};
    found = difference(columns, run(p, {.stats = request}), words(request));
  }
  return found;
}

std::string broken_by_threads(const Draw& draw) {
  const Problem p = problem_of(draw);
  const StatsRequest request = drawn_request(draw.way);
  const bool pairs = draw.way % 5 == 0;
  const Outputs one = run(p, {.pairs = pairs, .stats = request, .executor = &serial_executor()});
  const int threads = 1 + draw.way / 12 % 5;
  ThreadExecutor pool(threads);
  ShuffledExecutor shuffled(threads, static_cast<std::uint64_t>(draw.seed));
  struct Way {
    const char* name;
    Executor* executor;
  };
  for (const Way& way :
       {Way{"std::thread", &pool}, Way{"shuffled", &shuffled}, Way{"oneTBB", nullptr}}) {
    const Outputs other =
        run(p, {.pairs = pairs, .stats = request, .executor = way.executor, .threads = threads});
    const std::string when =
        std::to_string(threads) + " threads (" + way.name + "), " + words(request);
    const std::string found = difference(one, other, when);
    if (!found.empty()) return found;
    if (one.stats.heads != other.stats.heads) return when + ": " + kStatisticsDiffer;
  }
  return {};
}

std::string broken_by_batch(const Draw& draw) {
  const Problem p = problem_of(draw);
  const Outputs whole = run(p);
  for (std::int64_t b = 0; b < p.shape.batch; ++b) {
    const std::string found = difference(sliced(whole, 0, b, 1), run(batch_entry(p, b)),
                                         "batch entry " + std::to_string(b));
    if (!found.empty()) return found;
  }
  return {};
}

std::string broken_by_chunks(const Draw& draw) {
  const Problem p = problem_of(draw);
  const Outputs whole = run(p);
  const std::int64_t most = std::max(1, std::min(draw.q_len, kMostRows / draw.group));
  const std::int64_t count = 1 + draw.way % most;
  // Three chunks: the first, the last, and one that begins anywhere.
  const std::int64_t last = draw.q_len - count;
  for (std::int64_t begin : {std::int64_t{0}, last, last * (draw.way / 80) / 13}) {
    const std::string found =
        chunk_difference(p, whole, std::clamp<std::int64_t>(begin, 0, last), count);
    if (!found.empty()) return found;
  }
  return {};
}

std::string broken_by_decode(const Draw& draw) {
  const Problem p = problem_of(draw);
  return chunk_difference(p, run(p), draw.q_len - 1, 1);
}

std::string broken_by_plan(const Draw& draw) {
  const Problem longest = problem_of(draw);
  ThreadExecutor pool(1 + draw.way / 2 % 4);
  Wish wish{.pairs = draw.way % 5 == 0,
            .stats = drawn_request(draw.way),
            .executor = draw.way % 2 == 0 ? &pool : nullptr,
            .threads = 1 + draw.way / 12 % 5};
  Plan plan;
  if (const Error error = make_plan(longest, wish, &plan)) return error.message();
  Rng rng(static_cast<std::uint64_t>(draw.seed) + 3);
  for (int call = 0; call < 4; ++call) {
    const std::int64_t keys = call % 2 == 0 ? draw.kv_len : rng.integer(1, draw.kv_len);
    Problem p = keys == draw.kv_len ? longest : key_part(longest, 0, keys);
    if (call > 0) p.kv_lengths = shorter_lengths(rng, p.kv_lengths, p.shape.batch, keys);
    if (call > 1) p.q_lengths = shorter_lengths(rng, p.q_lengths, p.shape.batch, draw.q_len);
    wish.plan = nullptr;
    const Outputs expected = run(p, wish);
    wish.plan = &plan;
    const Outputs planned = run(p, wish);
    const std::string when = "in a plan, " + p.describe();
    const std::string found = difference(expected, planned, when);
    if (!found.empty()) return found;
    if (expected.stats.heads != planned.stats.heads) return when + ": " + kStatisticsDiffer;
  }
  return {};
}

std::string broken_by_splits(const Draw& draw) {
  Problem p = problem_of(draw);
  p.sinks = TensorBuffer();  // a sink joins once, at the end, and states carry none
  const Outputs whole = run(p);
  Outputs joined = run(key_part(p, 0, std::min(kSplit, p.shape.kv_len)));
  if (joined.error) return joined.error.message();
  const State state{joined.row_max.view(), joined.row_sum.view(), joined.accumulator.view()};
  for (std::int64_t begin = kSplit; begin < p.shape.kv_len; begin += kSplit) {
    const Outputs part = run(key_part(p, begin, std::min(kSplit, p.shape.kv_len - begin)));
    if (part.error) return part.error.message();
    if (const Error error =
            merge(state, {part.row_max.view(), part.row_sum.view(), part.accumulator.view()}))
      return error.message();
  }
  if (const Error error = finish(state, joined.out.view(), joined.lse.view()))
    return error.message();
  joined.lse_without_sink = joined.max_score = TensorBuffer();  // merge() does not touch them
  return difference(whole, joined, "merged splits");
}

std::string broken_by_layout(const Draw& draw) {
  const Problem p = problem_of(draw);
  const bool pairs = draw.way % 4 == 0;
  const StatsRequest full{.level = StatsLevel::full};
  const Outputs expected = run(p, {.pairs = pairs, .stats = full});
  return in_forked_child([&]() -> std::string {
    for (Placement placement : {Placement::before_guard, Placement::after_guard}) {
      const Layout layout = kLayouts[static_cast<std::size_t>(draw.way) % std::size(kLayouts)];
      Problem other = p;
      for (TensorBuffer* tensor : other.tensors()) *tensor = tensor->copied(layout, placement);
      const Outputs o =
          run(other, {.pairs = pairs, .stats = full, .layout = layout, .placement = placement});
      const std::string when = std::string("layout ") + name(layout);
      const std::string found = difference(expected, o, when);
      if (!found.empty()) return found;
      if (expected.stats.heads != o.stats.heads) return when + ": " + kStatisticsDiffer;
      for (const auto& [label, tensor] : o.tensors())
        if (tensor->given() && !tensor->gaps_untouched()) return when + ": wrote outside " + label;
    }
    return {};
  });
}

std::string broken_by_strangers(const Draw& draw) {
  const Problem clean = problem_of(draw);
  const Shape& s = clean.shape;
  Rng rng(static_cast<std::uint64_t>(draw.seed) + 2);
  const std::int64_t b = rng.integer(0, s.batch - 1), h = rng.integer(0, s.q_heads - 1),
                     i = rng.integer(0, s.q_len - 1), j = rng.integer(0, s.kv_len - 1),
                     kv_head = h / draw.group;
  Problem bad = clean;
  const double strange = rng.pick({kNaN, kInfinity, -kInfinity});
  auto spoil = [&](TensorBuffer& tensor, std::int64_t head, std::int64_t row) {
    tensor = tensor.copied(Layout::contiguous);
    tensor.set(tensor.index({b, head, row, rng.integer(0, tensor.extent(3) - 1)}), strange);
  };
  if (draw.way % 2 == 0) spoil(bad.query, h, i);
  if (draw.way % 3 != 0) spoil(bad.key, kv_head, j);
  if (draw.way % 5 != 0) spoil(bad.value, kv_head, j);

  Outputs before = run(clean), after = run(bad);
  const ReferenceResult<double> r = reference_of<double>(clean);
  // Rows that see a stranger may say anything.
  for (std::int64_t head = kv_head * draw.group; head < (kv_head + 1) * draw.group; ++head)
    for (std::int64_t row = 0; row < s.q_len; ++row) {
      const std::int64_t at = r.row_index(b, head, row);
      const bool sees = r.logits[static_cast<std::size_t>(at * s.kv_len + j)] > -kInfinity;
      if (!sees && !(head == h && row == i)) continue;
      for (const Outputs* o : {&before, &after})
        for (const auto& [label, tensor] : o->tensors())
          if (tensor->given() && tensor->count() > 0) {
            TensorBuffer rows = *tensor;  // a view of the same elements
            const std::int64_t width = rows.count() / (s.batch * s.q_heads * s.q_len);
            for (std::int64_t c = 0; c < width; ++c) rows.set(at * width + c, 0);
          }
    }
  return difference(before, after, "beside a stranger");
}

std::string broken_by_definition(const Draw& draw) {
  const Problem p = problem_of(draw);
  const testing::AssertionResult result = agrees(p, run(p, {.pairs = draw.way % 4 == 0}));
  return result ? std::string() : result.message();
}

std::string broken_by_merged_statistics(const Draw& draw) {
  const Problem p = problem_of(draw);
  const Wish full{.stats = {.level = StatsLevel::full}};
  const Outputs whole = run(p, full);
  if (whole.error) return whole.error.message();
  Stats merged;
  const std::int64_t count = 1 + draw.way % std::max(1, kMostRows / draw.group);
  for (std::int64_t begin = 0; begin < p.shape.q_len; begin += count) {
    const std::int64_t rows = std::min(count, p.shape.q_len - begin);
    const Outputs part = run(query_chunk(p, begin, rows), full);
    if (part.error) return part.error.message();
    if (const Error error = merged.merge(part.stats)) return error.message();
  }
  for (std::size_t h = 0; h < whole.stats.heads.size(); ++h) {
    const std::string found = statistics_difference(whole.stats.heads[h], merged.heads[h]);
    if (!found.empty())
      return "head " + std::to_string(h) + ", chunks of " + std::to_string(count) + ": " + found;
  }
  return {};
}

void check_law(std::string (*broken)(const Draw&), const DrawLimits& limits, int cases,
               std::uint64_t seed) {
  for_each_isa_and_dtype([&](DType dtype) {
    const int draws_of_set = active_isa() == "scalar" ? std::max(1, cases / 4) : cases;
    check_draws(broken, dtype, limits, draws_of_set, seed, active_isa());
  });
}

}  // namespace poise::test
