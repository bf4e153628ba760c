// Laws about the bits of gradients under threads: which rows share a unit, who waits for whom, and
// executors that run tasks late, backwards, or one after the other.
//
// Long problems on few key heads, so that several threads work on one of them; the same bits, and
// an end, whatever the executor does.
// ctest-labels: fast laws per_isa
#include <gtest/gtest.h>
#include <tbb/parallel_for.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "backward_plan.h"
#include "check.h"
#include "check_options.h"
#include "isa/dispatch.h"
#include "support/child_process.h"
#include "support/gradient_run.h"
#include "support/isa.h"
#include "support/shuffled_executor.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

// Every task, last one first, on the calling thread.
class ReverseExecutor : public Executor {
 public:
  explicit ReverseExecutor(int slots) : slots_(slots) {}
  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t index = count - 1; index >= 0; --index)
      task(context, index, static_cast<int>(index % slots_));
  }
  int slots() const override { return slots_; }

 private:
  int slots_;
};

// Each task on a thread of its own, the next one when it has ended.
class OneAtATimeExecutor : public Executor {
 public:
  explicit OneAtATimeExecutor(int slots) : slots_(slots) {}
  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t index = 0; index < count; ++index)
      std::thread([&] { task(context, index, static_cast<int>(index % slots_)); }).join();
  }
  int slots() const override { return slots_; }

 private:
  int slots_;
};

// Threads that start one after the other, milliseconds apart, the first task last.
class LateExecutor : public Executor {
 public:
  explicit LateExecutor(int slots) : slots_(slots) {}
  void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
    std::vector<std::thread> pool;
    for (std::int64_t index = count - 1; index >= 0; --index) {
      const int slot = static_cast<int>(index % slots_);
      if (static_cast<int>(pool.size()) == slots_) join(pool);
      pool.emplace_back([=] { task(context, index, slot); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    join(pool);
  }
  int slots() const override { return slots_; }

 private:
  static void join(std::vector<std::thread>& pool) {
    for (std::thread& thread : pool) thread.join();
    pool.clear();
  }
  int slots_;
};

// One key head with 11 blocks of keys and an odd tail, alone; then under a group of four, of which
// two heads are at work at once; then more key heads than threads, of which some stay whole.
std::vector<GradientProblem> shared_problems(DType dtype) {
  std::vector<GradientProblem> problems;
  const auto add = [&](const Shape& s, std::uint64_t seed) -> Problem& {
    problems.push_back(gradient_problem(make_problem(s, dtype, seed), seed + 1, true, false));
    return problems.back().problem;
  };
  Rng rng(711);
  Problem& alone = add({1, 1, 1, 260, 1411, 12, 9}, 701);
  alone.options.causal = Causal::bottom_right();
  add_sinks(alone, rng);
  Problem& grouped = add({1, 4, 1, 196, 700, 9, 17}, 703);
  grouped.options.window_left = 500;
  grouped.options.softcap = 6;
  add_alibi(grouped);
  Problem& many = add({3, 2, 2, 140, 700, 16, 5}, 705);
  many.kv_lengths = TensorBuffer(DType::i64, {3});
  many.q_lengths = TensorBuffer(DType::i64, {3});
  for (std::int64_t b = 0; b < 3; ++b) {
    many.kv_lengths.set(b, b == 1 ? 0 : 700 - 130.0 * static_cast<double>(b));
    many.q_lengths.set(b, 140 - 65.0 * static_cast<double>(b));
  }
  add_random_bias(many, rng, DType::f32, {2, 1, 700}, 0.2);
  return problems;
}

GradientWish all_gradients(const GradientProblem& g) {
  GradientWish wish;
  wish.scale_per_head = true;
  wish.bias_extents = {g.problem.shape.q_heads, 1, g.problem.shape.kv_len};
  return wish;
}

BackwardPlan plan_of(const GradientProblem& g, int threads) {
  Problem p = g.problem;
  poise::Problem checked;
  EXPECT_FALSE(
      check_inputs("backward", p.query.view(), p.key.view(), p.value.view(), true, &checked));
  EXPECT_FALSE(check_options("backward", p.call_options(), true, &checked));
  return make_backward_plan(checked, *find_kernels(active_isa().c_str()), threads,
                            Derivative::first);
}

TEST(gradient_bits, threads_change_no_bit) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const GradientProblem& g : shared_problems(dtype)) {
      const ForwardState state(g.problem);
      GradientWish wish = all_gradients(g);
      wish.executor = &serial_executor();
      const GradientOutputs one = run(g, state, wish);
      for (int threads : {1, 2, 3, 5}) {
        ThreadExecutor own(threads);
        ShuffledExecutor shuffled(threads, 720);
        LateExecutor late(threads);
        wish.threads = threads;
        for (Executor* executor :
             {static_cast<Executor*>(&own), static_cast<Executor*>(&shuffled),
              static_cast<Executor*>(&late), static_cast<Executor*>(nullptr)}) {
          wish.executor = executor;
          EXPECT_EQ(difference(one, run(g, state, wish), std::to_string(threads) + " threads"), "")
              << g.problem.describe();
        }
      }
    }
  });
}

// The problems above are what they are for.
TEST(gradient_bits, several_threads_share_a_key_head_when_there_are_few) {
  for_each_isa_and_dtype([](DType dtype) {
    const std::vector<GradientProblem> problems = shared_problems(dtype);
    for (int threads : {2, 3, 5}) {
      const BackwardPlan alone = plan_of(problems[0], threads);
      EXPECT_EQ(alone.slots, std::min<std::int64_t>(threads, alone.tiles));
      EXPECT_GE(alone.tiles, 5);
      EXPECT_EQ(alone.shared_units(), 1);
      EXPECT_EQ(alone.blocks, 12);
      const BackwardPlan grouped = plan_of(problems[1], threads);
      EXPECT_EQ(grouped.slots, std::min<std::int64_t>(threads, grouped.tiles));
      EXPECT_GE(grouped.tiles, 4);
      EXPECT_EQ(grouped.shared_units(), 1);
      EXPECT_EQ(grouped.heads_at_once(true), 2);
    }
    const BackwardPlan many = plan_of(problems[2], 5);
    EXPECT_EQ(many.whole_units, 5);
    EXPECT_EQ(many.shared_units(), 1);
  });
}

// In a child, so that a wait without end is a failure.
TEST(gradient_bits, every_order_of_tasks_comes_to_an_end) {
  for_each_isa_and_dtype([](DType dtype) {
    const std::vector<GradientProblem> problems = shared_problems(dtype);
    const std::string broken = in_forked_child([&]() -> std::string {
      for (const GradientProblem& g : problems) {
        const ForwardState state(g.problem);
        GradientWish wish = all_gradients(g);
        wish.executor = &serial_executor();
        const GradientOutputs one = run(g, state, wish);
        for (int slots : {2, 64}) {
          ReverseExecutor reverse(slots);
          OneAtATimeExecutor single(slots);
          for (Executor* executor :
               {static_cast<Executor*>(&reverse), static_cast<Executor*>(&single)}) {
            wish.executor = executor;
            const std::string found =
                difference(one, run(g, state, wish), std::to_string(slots) + " slots");
            if (!found.empty()) return found;
          }
        }
      }
      return {};
    });
    EXPECT_EQ(broken, "");
  });
}

// A host's executor that computes gradients of its own before it runs ours.
TEST(gradient_bits, a_call_inside_an_executor_keeps_its_bits) {
  const std::vector<GradientProblem> problems = shared_problems(DType::f32);
  const GradientProblem &outer = problems[0], &inner = problems[1];
  const GradientOutputs outer_alone = run(outer), inner_alone = run(inner);
  struct Host : ThreadExecutor {
    Host(const GradientProblem& problem, const GradientOutputs& alone)
        : ThreadExecutor(2), own(problem), own_alone(alone) {}
    void run(std::int64_t count, void (*task)(void*, std::int64_t, int), void* context) override {
      found += difference(own_alone, test::run(own, {.threads = 2}), "inside");
      ThreadExecutor::run(count, task, context);
    }
    const GradientProblem& own;
    const GradientOutputs& own_alone;
    std::string found;
  } host(inner, inner_alone);
  EXPECT_EQ(difference(outer_alone, run(outer, {.executor = &host}), "outside"), "");
  EXPECT_EQ(host.found, "");
}

TEST(gradient_bits, calls_inside_a_hosts_tbb_loop_keep_their_bits) {
  const std::vector<GradientProblem> problems = shared_problems(DType::f32);
  const ForwardState state(problems[0].problem);
  const GradientOutputs alone = run(problems[0], state, {.executor = &serial_executor()});
  std::atomic<int> different{0};
  tbb::parallel_for(0, 16, [&](int) {
    if (!difference(alone, run(problems[0], state, {.threads = 3}), "").empty()) ++different;
  });
  EXPECT_EQ(different, 0);
}

TEST(gradient_bits, a_call_in_a_forked_child_gives_the_bits_of_the_parents_call) {
  const std::vector<GradientProblem> problems = shared_problems(DType::f32);
  for (const GradientProblem& g : problems) {
    const ForwardState state(g.problem);
    const GradientOutputs expected = run(g, state, {.threads = 2});
    for (int n = 0; n < 2; ++n)
      EXPECT_EQ(
          in_forked_child(
              [&] { return difference(expected, run(g, state, {.threads = 2}), "in the child"); },
              kChildSeconds, Leaving::at_once),
          "");
    EXPECT_EQ(difference(expected, run(g, state, {.threads = 2}), "afterwards"), "");
  }
}

}  // namespace
}  // namespace poise::test
