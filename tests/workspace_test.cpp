// Plan: the bits of attention() in memory that is sized once, and no allocation after the first
// call. malloc and its kin are counted by the linker's --wrap (tests/CMakeLists.txt).
#include <poise/plan.h>
#include <poise/tangent.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "support/isa.h"
#include "support/problem.h"
#include "support/thread_executor.h"

namespace {
std::atomic<long> allocations{0};
}

extern "C" {
void* __real_malloc(std::size_t);
void* __real_calloc(std::size_t, std::size_t);
void* __real_realloc(void*, std::size_t);
void* __real_aligned_alloc(std::size_t, std::size_t);
void* __wrap_malloc(std::size_t size) { return ++allocations, __real_malloc(size); }
void* __wrap_calloc(std::size_t n, std::size_t size) {
  return ++allocations, __real_calloc(n, size);
}
void* __wrap_realloc(void* at, std::size_t size) { return ++allocations, __real_realloc(at, size); }
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  return ++allocations, __real_aligned_alloc(alignment, size);
}
}

// std::vector and std::string allocate inside libstdc++, which --wrap does not reach. Not inlined:
// g++ takes free() at a delete-expression for a mismatch with its new.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* at = std::malloc(size == 0 ? 1 : size)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace poise::test {
namespace {

// The shapes that use different memory: one row, a group's rows, long rows in ranges of splits.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{1, 4, 4, 16, 16, 8, 8},
                                         {1, 8, 2, 1, 1600, 64, 64},
                                         {2, 6, 2, 9, 1100, 40, 24},
                                         {1, 2, 2, 300, 700, 64, 64}};
  return all;
}

struct Ready {
  Problem problem;
  TensorBuffer out;
  Options options;

  explicit Ready(const Shape& shape, DType dtype = DType::f32, int threads = 1)
      : problem(make_problem(shape, dtype, 5)),
        out(dtype, Extents{shape.batch, shape.q_heads, shape.q_len, shape.value_dim}),
        options(problem.call_options()) {
    options.threads = threads;
  }
  Error make(Plan* plan, const Extras& extras = {}) const {
    return Plan::make(problem.query.view(), problem.key.view(), problem.value.view(), out.view(),
                      options, extras, plan);
  }
  Error run(Plan& plan, const Extras& extras = {}) const {
    return plan.attention(problem.query.view(), problem.key.view(), problem.value.view(),
                          out.view(), options, extras);
  }
  Error run_without_plan() const {
    return attention(problem.query.view(), problem.key.view(), problem.value.view(), out.view(),
                     options);
  }
  std::vector<char> bytes() const {
    const Shape& s = problem.shape;
    const auto* data = static_cast<const char*>(out.view().data);
    return {data,
            data + s.batch * s.q_heads * s.q_len * s.value_dim * size_bytes(out.view().dtype)};
  }
};

TEST(workspace, a_plan_gives_the_bits_of_attention_in_its_own_memory_and_in_the_callers) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& shape : shapes())
      for (const int threads : {1, 2}) {
        const Ready ready(shape, dtype, threads);
        ASSERT_EQ(ready.run_without_plan().message(), "");
        const std::vector<char> expected = ready.bytes();
        Plan plan;
        ASSERT_EQ(ready.make(&plan).message(), "");
        ASSERT_GT(plan.workspace_bytes(), 0);
        ASSERT_EQ(plan.workspace_bytes() % 64, 0);
        for (int times = 0; times < 2; ++times) {
          ASSERT_EQ(ready.run(plan).message(), "");
          EXPECT_EQ(ready.bytes(), expected);
        }
        // Memory that holds anything, with a fence behind it.
        const auto size = static_cast<std::size_t>(plan.workspace_bytes());
        char* memory = static_cast<char*>(std::aligned_alloc(64, size + 64));
        std::memset(memory, 0xa5, size + 64);
        ASSERT_EQ(plan.use_workspace(memory).message(), "");
        ASSERT_EQ(ready.run(plan).message(), "");
        EXPECT_EQ(ready.bytes(), expected);
        for (std::size_t i = size; i < size + 64; ++i) ASSERT_EQ(memory[i], '\xa5');
        ASSERT_EQ(plan.use_workspace(nullptr).message(), "");
        std::free(memory);
        ASSERT_EQ(ready.run(plan).message(), "");
        EXPECT_EQ(ready.bytes(), expected);
      }
  });
}

TEST(workspace, nothing_is_allocated_after_the_first_call) {
  for (const Shape& shape : shapes())
    for (const int threads : {1, 2}) {
      const Ready ready(shape, DType::f32, threads);
      Plan plan;
      ASSERT_EQ(ready.make(&plan).message(), "");
      ASSERT_EQ(ready.run(plan).message(), "");
      ASSERT_EQ(ready.run_without_plan().message(), "");
      const long before = allocations;
      for (int times = 0; times < 5; ++times) {
        ASSERT_FALSE(ready.run(plan));
        ASSERT_FALSE(ready.run_without_plan());
      }
      EXPECT_EQ(allocations - before, 0) << ready.problem.describe();
    }
  const long before = allocations;
  void* volatile kept = std::malloc(1000);  // volatile: the pair would be optimised away
  std::free(kept);
  EXPECT_GT(allocations, before) << "the count counts";
}

TEST(workspace, a_plan_at_the_full_length_of_a_cache_serves_every_shorter_one) {
  ThreadExecutor executor(3);
  for (const Shape& full : shapes()) {
    Ready longest(full);
    longest.options.executor = &executor;
    Plan plan;
    ASSERT_EQ(longest.make(&plan).message(), "");
    for (std::int64_t length = 1; length <= full.kv_len; length += 1 + full.kv_len / 9) {
      Shape shape = full;
      shape.kv_len = length;
      Ready ready(shape);
      ready.options.executor = &executor;
      ASSERT_EQ(ready.run(plan).message(), "") << length;
    }
  }
}

TEST(workspace, a_call_that_needs_more_than_was_planned_is_refused_and_writes_nothing) {
  const Ready small(Shape{1, 2, 2, 4, 100, 16, 16}), large(Shape{1, 2, 2, 4, 100, 64, 64});
  Plan plan;
  ASSERT_EQ(small.make(&plan).message(), "");
  const std::vector<char> before = large.bytes();
  const std::string message = large.run(plan).message();
  EXPECT_EQ(message.find("[plan] workspace: " + std::to_string(plan.workspace_bytes()) +
                         " bytes, expected at least "),
            0u)
      << message;
  EXPECT_EQ(large.bytes(), before);
  Plan none;
  EXPECT_TRUE(static_cast<bool>(small.run(none)));
  EXPECT_TRUE(static_cast<bool>(small.make(nullptr)));
  alignas(64) char memory[128] = {};
  EXPECT_EQ(plan.use_workspace(memory + 8).message(), "[plan] memory: not aligned to 64 bytes");
}

// A pool of any size, whose threads nobody calls.
class IdlePool : public Executor {
 public:
  explicit IdlePool(int slots) : slots_(slots) {}
  void run(std::int64_t, void (*)(void*, std::int64_t, int), void*) override {
    ADD_FAILURE() << "ran with less memory than it needs";
  }
  int slots() const override { return slots_; }

 private:
  int slots_;
};

// Strides of 0 claim any number of elements for free; no machine has the memory of such calls.
TEST(workspace, sizes_beyond_int64_are_refused_as_beyond_memory) {
  constexpr std::int64_t kMany = std::int64_t{1} << 60, kWide = std::int64_t{1} << 32;
  std::vector<float> numbers(64), written(64), row(1);
  const float one = 1;
  const auto query = view(std::as_const(numbers).data(), {1, 1, 64, 1});
  const auto keys = view(&one, {1, 1, kMany, 1}, {0, 0, 0, 0});
  const auto wide = view(std::as_const(numbers).data(), {1, 1, 64, kWide}, {0, 0, 1, 0});
  const auto wide_key = view(&one, {1, 1, 1, kWide}, {0, 0, 0, 0});
  const auto out = view(written.data(), {1, 1, 64, 1});
  Options two, many;
  two.threads = 2;
  // A kept block is not what is handed out for a size that passed the range.
  ASSERT_EQ(attention(query, view(&one, {1, 1, 1, 1}), view(&one, {1, 1, 1, 1}), out).message(),
            "");
  for (int power : {21, 22, 31}) {
    IdlePool pool(static_cast<int>((std::int64_t{1} << power) - (power == 31)));
    many.executor = &pool;
    EXPECT_EQ(attention(wide, wide_key, view(&one, {1, 1, 1, 1}), out, many).code(),
              ErrorCode::out_of_memory)
        << power;
  }
  // Products that pass the range come out as any number, so several are tried.
  for (const std::int64_t value_dim : {1, 2, 3, 4, 5, 6, 7}) {
    std::vector<float> values(static_cast<std::size_t>(64 * value_dim), 7.0f);
    const auto value = view(&one, {1, 1, kMany, value_dim}, {0, 0, 0, 0});
    const auto into = view(values.data(), {1, 1, 64, value_dim});
    EXPECT_EQ(attention(query, keys, value, into, two).code(), ErrorCode::out_of_memory);
    Plan plan;
    ASSERT_EQ(Plan::make(query, keys, value, into, two, {}, &plan).message(), "");
    EXPECT_GT(plan.workspace_bytes(), std::int64_t{1} << 50);
    EXPECT_EQ(plan.attention(query, keys, value, into, two).code(), ErrorCode::out_of_memory);
    EXPECT_EQ(values, std::vector<float>(values.size(), 7.0f));
  }

  const float four[4] = {};
  const auto queries = view(&one, {1, 1, kMany, 1}, {0, 0, 0, 0});
  const auto key = view(&one, {1, 1, 1, 1}), value = view(four, {1, 1, 1, 4});
  Forward forward;
  forward.out = view(four, {1, 1, kMany, 4}, {0, 0, 0, 1});
  forward.lse = view(&one, {1, 1, kMany}, {0, 0, 0});
  SecondGradients second;
  second.key = view(row.data(), {1, 1, 1, 1});
  EXPECT_EQ(double_backward(queries, key, value, forward, {forward.out, {}}, {}, second).code(),
            ErrorCode::out_of_memory);
}

TEST(workspace, a_moved_plan_keeps_its_memory) {
  const Ready ready(Shape{1, 2, 2, 4, 100, 16, 16});
  Plan plan;
  ASSERT_EQ(ready.make(&plan).message(), "");
  ASSERT_EQ(ready.run(plan).message(), "");
  Plan moved(std::move(plan));
  EXPECT_EQ(plan.workspace_bytes(), 0);
  EXPECT_EQ(ready.run(moved).message(), "");
  plan = std::move(moved);
  EXPECT_EQ(ready.run(plan).message(), "");
}

}  // namespace
}  // namespace poise::test
