// Laws about bits: what must not change a single one, on every instruction set and dtype.
//
// Long problems (three splits of keys with an odd tail) against themselves, run another way: other
// threads, batches, chunks, splits, strides, outputs, host float modes.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/bounds.h"
#include "support/isa.h"
#include "support/slices.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

void expect_same_bits(const Outputs& a, const Outputs& b, const std::string& when) {
  EXPECT_FALSE(a.error) << a.error.message();
  EXPECT_FALSE(b.error) << b.error.message();
  EXPECT_EQ(first_difference(a, b), "") << when;
}

TEST(laws, measuring_changes_no_output_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Problem& p : long_problems(dtype)) {
      const Outputs plain = run(p, {.columns = false});
      const Outputs columns = run(p);
      expect_same_bits(plain, columns, "with lse: " + p.describe());
      expect_same_bits(columns, run(p, {.pairs = true}), "with weights: " + p.describe());
      for (StatsLevel level : {StatsLevel::max, StatsLevel::core, StatsLevel::full})
        for (int every : {1, 3})
          expect_same_bits(columns, run(p, {.stats = {.level = level, .every = every}}),
                           "level " + std::to_string(static_cast<int>(level)) + " every " +
                               std::to_string(every) + ": " + p.describe());
    }
  });
}

TEST(laws, threads_change_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Problem& p : long_problems(dtype)) {
      const StatsRequest full{.level = StatsLevel::full};
      const Outputs one = run(p, {.stats = full, .executor = &serial_executor()});
      for (int threads : {1, 2, 4, 7}) {
        ThreadExecutor executor(threads);
        const std::string when = std::to_string(threads) + " threads: " + p.describe();
        const Outputs own = run(p, {.stats = full, .executor = &executor});
        expect_same_bits(one, own, when);
        EXPECT_TRUE(one.stats.heads == own.stats.heads) << when;
        const Outputs tbb = run(p, {.stats = full, .threads = threads});
        expect_same_bits(one, tbb, "oneTBB, " + when);
        EXPECT_TRUE(one.stats.heads == tbb.stats.heads) << when;
      }
    }
  });
}

TEST(laws, batch_changes_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    Problem p = make_problem({8, 2, 1, 19, 1091, 33, 20}, dtype, 201);
    Rng rng(202);
    p.options.causal = Causal::bottom_right();
    p.kv_lengths = random_lengths(rng, 8, 1091);
    p.q_lengths = random_lengths(rng, 8, 19);
    add_random_bias(p, rng, DType::f16, {8, 1, 1, 1091}, 0.2);
    const Outputs whole = run(p, {.pairs = true});
    for (std::int64_t b = 0; b < 8; ++b)
      expect_same_bits(sliced(whole, 0, b, 1), run(batch_entry(p, b), {.pairs = true}),
                       "batch entry " + std::to_string(b));
  });
}

TEST(laws, query_chunking_changes_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Problem& p : long_problems(dtype)) {
      const Outputs whole = run(p);
      for (std::int64_t size : {1, 5, 16, 63, 64, 100})
        for (std::int64_t begin = 0; begin < p.shape.q_len; begin += size) {
          // Single rows cost a call each; every third says enough.
          if (size == 1 && begin % 3 != 0) continue;
          const std::int64_t count = std::min(size, p.shape.q_len - begin);
          expect_same_bits(sliced(whole, 2, begin, count), run(query_chunk(p, begin, count)),
                           "queries " + std::to_string(begin) + " + " + std::to_string(count) +
                               ": " + p.describe());
        }
    }
  });
}

TEST(laws, decode_step_equals_last_forward_row) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Problem& p : long_problems(dtype)) {
      const std::int64_t last = p.shape.q_len - 1;
      expect_same_bits(sliced(run(p), 2, last, 1), run(query_chunk(p, last, 1)), p.describe());
    }
  });
}

// Parts of whole splits join to the very bits; a part's state carries no sink, since the sink joins
// once, at the end.
TEST(laws, any_kv_split_then_merge_equals_the_whole) {
  for_each_isa_and_dtype([](DType dtype) {
    for (Problem p : long_problems(dtype)) {
      p.sinks = TensorBuffer();
      const Outputs whole = run(p);
      Outputs joined;
      for (std::int64_t begin = 0; begin < p.shape.kv_len; begin += kSplit) {
        const std::int64_t count = std::min(kSplit, p.shape.kv_len - begin);
        Outputs part = run(key_part(p, begin, count));
        ASSERT_FALSE(part.error) << part.error.message();
        if (begin == 0) {
          joined = part;
          continue;
        }
        for (std::int64_t b = 0; b < p.shape.batch; ++b) {
          const Outputs into = sliced(joined, 0, b, 1), from = sliced(part, 0, b, 1);
          const Error error =
              merge(State{into.row_max.view(), into.row_sum.view(), into.accumulator.view()},
                    State{from.row_max.view(), from.row_sum.view(), from.accumulator.view()});
          ASSERT_FALSE(error) << error.message();
        }
      }
      const Error error =
          finish({joined.row_max.view(), joined.row_sum.view(), joined.accumulator.view()},
                 joined.out.view(), joined.lse.view());
      ASSERT_FALSE(error) << error.message();
      // What merge() does not touch is not compared.
      joined.lse_without_sink = joined.max_score = TensorBuffer();
      expect_same_bits(whole, joined, p.describe());
    }
  });
}

// The whole by (out, lse) pairs of four parts that begin anywhere.
Outputs merged_parts(const Problem& p) {
  Outputs joined;
  std::int64_t begin = 0;
  for (std::int64_t end : {1, 300, 777, 1091}) {
    Problem part = key_part(p, begin, end - begin);
    if (begin > 0) part.sinks = TensorBuffer();  // the sink joins exactly one part
    const Outputs o = run(part);
    EXPECT_FALSE(o.error) << o.error.message();
    begin = end;
    if (!joined.out.given()) {
      joined = o;
      continue;
    }
    const Error error = merge(joined.out.view(), joined.lse.view(), o.out.view(), o.lse.view(),
                              joined.out.view(), joined.lse.view());
    EXPECT_FALSE(error) << error.message();
  }
  return joined;
}

TEST(laws, parts_at_any_keys_merge_within_rounding) {
  for (DType dtype : {DType::f32, DType::f64})
    for (const Problem& p : long_problems(dtype)) {
      const Expected expected(p);
      for (const std::string& isa : available_isas()) {
        const IsaScope scope(isa);
        EXPECT_TRUE(agree(p, merged_parts(p), run(p), expected)) << isa;
      }
    }
}

TEST(laws, merging_with_an_empty_part_changes_nothing) {
  for_each_isa_and_dtype([](DType dtype) {
    if (dtype == DType::f16 || dtype == DType::bf16) return;  // pairs to be merged are f32 or f64
    const Problem p = make_problem({1, 2, 1, 5, 37, 8, 6}, dtype, 203);
    const Outputs full = run(p), empty = run(key_part(p, 0, 0));
    for (const auto& [a, b] : {std::pair(&full, &empty), std::pair(&empty, &full)}) {
      Outputs joined;
      joined.out = full.out.copied(Layout::blhd);
      joined.lse = full.lse.copied(Layout::padded);
      joined.out.fill([] { return 7.0; });
      const Error error = merge(a->out.view(), a->lse.view(), b->out.view(), b->lse.view(),
                                joined.out.view(), joined.lse.view());
      ASSERT_FALSE(error) << error.message();
      expect_same_bits(full, joined, "empty part");
    }
    Outputs nothing;
    nothing.out = full.out.copied(Layout::contiguous);
    nothing.lse = full.lse.copied(Layout::contiguous);
    ASSERT_FALSE(merge(empty.out.view(), empty.lse.view(), empty.out.view(), empty.lse.view(),
                       nothing.out.view(), nothing.lse.view()));
    expect_same_bits(empty, nothing, "two empty parts");
  });
}

void expect_strides_change_nothing(const Problem& p, bool pairs) {
  const Outputs contiguous = run(p, {.pairs = pairs});
  for (Layout layout : kLayouts) {
    Problem other = p;
    for (TensorBuffer* tensor : other.tensors()) *tensor = tensor->copied(layout);
    const Outputs strided = run(other, {.pairs = pairs, .layout = layout});
    expect_same_bits(contiguous, strided, other.describe());
    for (const auto& [name, tensor] : strided.tensors()) {
      const bool untouched = !tensor->given() || tensor->gaps_untouched();
      EXPECT_TRUE(untouched) << name << " wrote outside, " << test::name(layout);
    }
  }
}

TEST(laws, strides_change_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Problem& p : long_problems(dtype)) {
      expect_strides_change_nothing(batch_entry(p, 0), false);
      const Problem few_rows = query_chunk(batch_entry(p, 0), 0, 9);
      expect_strides_change_nothing(few_rows, true);
    }
  });
}

// Stride 0: one row of keys, values or queries seen as many.
TEST(laws, a_repeated_row_may_have_stride_zero) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem one = make_problem({1, 2, 2, 1, 1, 20, 20}, dtype, 204);
    Problem many = one, copied = one;
    many.shape.kv_len = copied.shape.kv_len = 140;
    for (auto member : {&Problem::key, &Problem::value}) {
      TensorBuffer& source = many.*member;
      TensorBuffer repeated(dtype, {1, 2, 140, 20}, {40, 20, 0, 1});
      TensorBuffer copy(dtype, {1, 2, 140, 20});
      for (std::int64_t n = 0; n < copy.count(); ++n) {
        const double x = source.at(n / (140 * 20) * 20 + n % 20);
        repeated.set(n, x);
        copy.set(n, x);
      }
      copied.*member = copy;
      source = repeated;
    }
    expect_same_bits(run(copied), run(many), "stride 0");
  });
}

#if defined(__aarch64__)
std::uint64_t fpcr() {
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control)::"memory");
  return control;
}

void set_fpcr(std::uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
#endif

// The kernels set round-to-nearest and flush-to-zero themselves and put back what they found.
TEST(laws, host_float_modes_change_no_bit_and_are_restored) {
  for_each_isa_and_dtype([](DType dtype) {
    const Problem p = long_problems(dtype)[2];
    const StatsRequest full{.level = StatsLevel::full};
    const Outputs expected = run(p, {.pairs = true, .stats = full});
    for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      const Outputs o = run(p, {.pairs = true, .stats = full});
      const int after = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(after, mode) << "the rounding mode was not restored";
      expect_same_bits(expected, o, "rounding mode " + std::to_string(mode));
      EXPECT_TRUE(expected.stats.heads == o.stats.heads) << "rounding mode " << mode;
    }
#if defined(__x86_64__)
    const unsigned original = _mm_getcsr();
    for (unsigned bits : {0x8000u, 0x0040u, 0x8040u}) {  // flush to zero, denormals are zero, both
      _mm_setcsr(original | bits);
      const Outputs o = run(p, {.pairs = true, .stats = full});
      const unsigned after = _mm_getcsr();
      _mm_setcsr(original);
      EXPECT_EQ(after & 0xffc0u, (original | bits) & 0xffc0u) << "control bits were not restored";
      expect_same_bits(expected, o, "mxcsr bits");
      EXPECT_TRUE(expected.stats.heads == o.stats.heads) << "mxcsr bits";
    }
#elif defined(__aarch64__)
    const std::uint64_t original = fpcr();
    for (int bit : {24, 25, 26}) {  // flush to zero, default NaN, alternative half precision
      set_fpcr(original | std::uint64_t{1} << bit);
      const Outputs o = run(p, {.pairs = true, .stats = full});
      const std::uint64_t after = fpcr();
      set_fpcr(original);
      EXPECT_EQ(after, original | std::uint64_t{1} << bit) << "control bits were not restored";
      expect_same_bits(expected, o, "fpcr bit " + std::to_string(bit));
      EXPECT_TRUE(expected.stats.heads == o.stats.heads) << "fpcr bit " << bit;
    }
#endif
  });
}

}  // namespace
}  // namespace poise::test
