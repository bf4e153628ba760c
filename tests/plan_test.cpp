// The plan: every row in exactly one task, pairs counted as a loop over all pairs counts them,
// threads only where they pay, and explain()'s words.
#include "plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace poise {
namespace {

// Numbers of a kernel that is planned for and never run.
constexpr std::int64_t wide_bytes(std::int64_t head_dim, std::int64_t value_dim) {
  return 100 * head_dim + value_dim;
}
constexpr std::int64_t narrow_bytes(std::int64_t, std::int64_t) { return 1; }
constexpr std::int64_t record_bytes(std::int64_t rows, std::int64_t value_dim) {
  return rows * value_dim;
}
constexpr KernelSet kNumbers = {.lanes = 16,
                                .wide = {.tile_rows = 16,
                                         .task_rows = 32,
                                         .workspace_bytes = wide_bytes,
                                         .record_bytes = record_bytes,
                                         .forward = nullptr,
                                         .join = nullptr},
                                .narrow = {.tile_rows = 8,
                                           .task_rows = 8,
                                           .workspace_bytes = narrow_bytes,
                                           .record_bytes = record_bytes,
                                           .forward = nullptr,
                                           .join = nullptr},
                                .backward = {},
                                .bias_step = nullptr,
                                .tangent = {},
                                .second = {},
                                .materialise = nullptr,
                                .merge = nullptr,
                                .finish = nullptr,
                                .exp = nullptr,
                                .tanh = nullptr,
                                .fma_chain = nullptr,
                                .read_stream = nullptr};
constexpr KernelSet wider() {
  KernelSet numbers = kNumbers;
  numbers.lanes = 8;
  numbers.wide.task_rows = 16;
  return numbers;
}
constexpr Kernels kKernels = {"numbers", kNumbers, wider()};

Problem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t q_len, std::int64_t kv_len,
                   std::int64_t head_dim = 8) {
  Problem problem;
  problem.batch = batch;
  problem.q_heads = problem.kv_heads = heads;
  problem.q_len = q_len;
  problem.kv_len = kv_len;
  problem.head_dim = head_dim;
  problem.value_dim = 6;
  return problem;
}

void set_causal(Problem* problem, Causal causal) {
  problem->options.causal = causal;
  problem->causal = causal.kind() != Causal::Kind::none;
}

TEST(plan, every_row_of_every_head_is_in_exactly_one_unit) {
  for (const bool causal : {false, true})
    for (const std::int64_t group : {1, 3, 20})
      for (const std::int64_t q_len : {0, 1, 2, 15, 16, 31, 33, 100}) {
        Problem problem = problem_of(2, 3 * group, q_len, 50);
        problem.kv_heads = 3;
        problem.group = group;
        if (causal) set_causal(&problem, Causal::top_left());
        const TaskPlan plan = make_plan(problem, kKernels, 4);
        std::vector<int> seen(static_cast<std::size_t>(2 * 3 * group * q_len));
        for (std::int64_t unit = 0; unit < plan.units; ++unit) {
          const TaskIndex at = unit_at(plan, unit);
          ASSERT_LE(at.heads, kMostHeads);
          ASSERT_EQ(at.first_head / group, (at.first_head + at.heads - 1) / group);
          ASSERT_LE(at.row_end - at.row_begin, plan.forward->task_rows);
          for (std::int64_t row = at.row_begin; row < at.row_end; ++row) {
            const std::int64_t head = at.first_head + row % at.heads, i = row / at.heads;
            ++seen[static_cast<std::size_t>((at.b * 3 * group + head) * q_len + i)];
          }
        }
        EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      }
}

TEST(plan, few_queries_share_tasks_with_the_heads_of_their_group) {
  Problem problem = problem_of(1, 8, 1, 5000);
  problem.kv_heads = 2;
  problem.group = 4;
  const TaskPlan decode = make_plan(problem, kKernels, 1);
  EXPECT_EQ(decode.units, 2);
  EXPECT_EQ(unit_at(decode, 1).heads, 4);
  EXPECT_EQ(decode.forward, &kKernels.f32.narrow);
  problem.q_len = 3;
  EXPECT_EQ(make_plan(problem, kKernels, 1).forward, &kKernels.f32.wide);
  EXPECT_EQ(make_plan(problem, kKernels, 1).units, 2);
  problem.q_len = 16;  // a tile of their own
  EXPECT_EQ(make_plan(problem, kKernels, 1).units, 8);
}

TEST(plan, few_units_are_cut_into_ranges_of_whole_splits_for_more_threads) {
  const Problem problem = problem_of(1, 1, 4, 10 * kSplit - 5, 64);
  EXPECT_EQ(make_plan(problem, kKernels, 1).parts, 1);
  const TaskPlan plan = make_plan(problem, kKernels, 2);
  ASSERT_EQ(plan.slots, 2);
  EXPECT_EQ(plan.tasks, 8);
  std::int64_t next = 0;
  for (std::int64_t index = 0; index < plan.tasks; ++index) {
    const TaskIndex task = task_at(plan, index);
    EXPECT_EQ(task.unit, 0);
    EXPECT_EQ(task.split_begin, next);
    EXPECT_GT(task.split_end, task.split_begin);
    next = task.split_end;
  }
  EXPECT_EQ(next, plan.splits);
  EXPECT_EQ(plan.workspace_bytes, plan.slots * plan.slot_bytes + 10 * 4 * 6);
  EXPECT_EQ(make_row_plan(problem, kKernels, 2).tasks, 1);
}

TEST(plan, causal_tasks_of_a_head_come_longest_first_and_others_in_order) {
  Problem problem = problem_of(1, 2, 100, 100);
  EXPECT_EQ(unit_at(make_plan(problem, kKernels, 1), 0).row_begin, 0);
  set_causal(&problem, Causal::bottom_right());
  const TaskPlan plan = make_plan(problem, kKernels, 1);
  for (std::int64_t head = 0; head < 2; ++head)
    for (std::int64_t place = 0; place < 4; ++place) {
      const TaskIndex task = unit_at(plan, head * 4 + place);
      EXPECT_EQ(task.first_head, head);
      EXPECT_EQ(task.row_begin, 32 * (3 - place));
    }
}

TEST(plan, visible_pairs_equal_a_count_over_all_pairs) {
  std::mt19937 random(7);
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    const std::int64_t batch = number(0, 3), q_len = number(0, 12), kv_len = number(0, 12);
    Problem problem = problem_of(batch, 2, q_len, kv_len);
    std::vector<std::int64_t> kv_lengths, q_lengths;
    for (std::int64_t b = 0; b < batch; ++b) {
      kv_lengths.push_back(number(0, kv_len));
      q_lengths.push_back(number(0, q_len));
    }
    if (number(0, 1) != 0)
      problem.options.kv_lengths = view(std::as_const(kv_lengths).data(), {batch});
    if (number(0, 1) != 0)
      problem.options.q_lengths = view(std::as_const(q_lengths).data(), {batch});
    if (number(0, 1) != 0) set_causal(&problem, Causal::offset(number(-15, 15)));
    problem.window_left = number(-1, 6);
    problem.window_right = number(-1, 6);
    std::int64_t visible = 0;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < problem.q_length(b); ++i)
        for (std::int64_t j = 0; j < problem.kv_length(b); ++j) {
          const std::int64_t distance = j - i - problem.diagonal(b);
          if (problem.causal && distance > 0) continue;
          if (problem.window_left >= 0 && distance < -problem.window_left) continue;
          if (problem.window_right >= 0 && distance > problem.window_right) continue;
          visible += 2;  // heads
        }
    const TaskPlan plan = make_plan(problem, kKernels, 1);
    ASSERT_EQ(plan.visible_pairs, static_cast<double>(visible)) << "round " << round;
    ASSERT_EQ(plan.all_pairs, static_cast<double>(2 * batch * q_len * kv_len));
    ASSERT_EQ(plan.flops, 2 * (8 + 6) * plan.visible_pairs);
  }
}

TEST(plan, counts_of_long_sequences_do_not_overflow) {
  Problem problem = problem_of(1, 1, std::int64_t{1} << 40, std::int64_t{1} << 40);
  set_causal(&problem, Causal::top_left());
  const double length = 0x1p40;
  EXPECT_DOUBLE_EQ(make_plan(problem, kKernels, 1).visible_pairs, length * (length + 1) / 2);
}

TEST(plan, small_work_stays_on_the_calling_thread_and_large_work_is_shared) {
  EXPECT_EQ(make_plan(problem_of(1, 4, 16, 16), kKernels, 8).slots, 1);
  EXPECT_EQ(make_plan(problem_of(8, 8, 1024, 1024, 64), kKernels, 8).slots, 8);
  EXPECT_EQ(make_plan(problem_of(8, 8, 1024, 1024, 64), kKernels, 1).slots, 1);
  // Plenty of work in three tasks that cannot be cut keeps three threads busy.
  EXPECT_EQ(make_plan(problem_of(1, 3, 32, kSplit, 1 << 20), kKernels, 8).slots, 3);
  EXPECT_EQ(make_plan(problem_of(0, 3, 32, 32), kKernels, 8).slots, 1);
}

TEST(plan, workspace_is_that_of_the_kernel_per_slot_and_independent_of_lengths) {
  const TaskPlan plan = make_plan(problem_of(8, 8, 1024, 1024, 64), kKernels, 4);
  EXPECT_EQ(plan.slot_bytes, 6464);  // 100 * 64 + 6 rounded up to a multiple of 64
  EXPECT_EQ(plan.workspace_bytes, 4 * 6464);
  EXPECT_EQ(make_plan(problem_of(8, 8, 4096, 8192, 64), kKernels, 4).workspace_bytes, 4 * 6464);
}

TEST(plan, the_dtype_chooses_the_kernel) {
  Problem problem = problem_of(1, 1, 100, 100);
  EXPECT_EQ(make_plan(problem, kKernels, 1).forward->task_rows, 32);
  problem.dtype = DType::f64;
  EXPECT_EQ(make_plan(problem, kKernels, 1).forward->task_rows, 16);
}

TEST(plan, splits_cover_the_longest_sequence) {
  Problem problem = problem_of(2, 1, 4, 2000);
  EXPECT_EQ(make_plan(problem, kKernels, 1).splits, 4);
  const std::int64_t lengths[] = {512, 513};
  problem.options.kv_lengths = view(lengths, {2});
  EXPECT_EQ(make_plan(problem, kKernels, 1).splits, 2);
}

// explain() of a call without data.
std::string explained(const Options& options, std::int64_t length = 1024) {
  const float* none = nullptr;
  const ConstTensor query = view(none, {1, 8, length, 64}), key = view(none, {1, 2, length, 64});
  std::string text;
  const Error error = explain(query, key, key, options, &text);
  EXPECT_EQ(error.message(), "");
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(plan, explain_names_every_decision) {
  const std::string text = explained({});
  for (const char* line : {"call ", "\nkernel ", "\nisa ", "\ntiles ", "\nsplits ", "\ntasks ",
                           "\nthreads ", "\nworkspace ", "\nflops ", "\nskipped "})
    EXPECT_TRUE(contains(text, line)) << line << " is missing in\n" << text;
  EXPECT_TRUE(contains(text, "query [1, 8, 1024, 64], key [1, 2, 1024, 64]")) << text;
  EXPECT_TRUE(contains(text, "4 query heads per key head")) << text;
  EXPECT_TRUE(contains(text, "2 splits of 512 keys")) << text;
  EXPECT_TRUE(contains(text, "for each of 8.38861e+06 visible pairs")) << text;
  EXPECT_TRUE(contains(text, "0 % of 8.38861e+06 pairs")) << text;
}

TEST(plan, explain_says_what_causal_skips_and_why_rows_run_backwards) {
  Options options;
  options.causal = Causal::top_left();
  const std::string text = explained(options);
  EXPECT_TRUE(contains(text, "49.9512 % of")) << text;  // (1 - 1/1024) / 2
  EXPECT_TRUE(contains(text, "last rows first")) << text;
}

TEST(plan, explain_says_that_lengths_are_data_it_does_not_read) {
  Options options;
  options.kv_lengths = view(static_cast<const std::int64_t*>(nullptr), {1});
  options.mask = view(static_cast<const bool*>(nullptr), {1024, 1024});
  const std::string text = explained(options);
  EXPECT_TRUE(contains(text, "lengths and diagonals are data")) << text;
  EXPECT_TRUE(contains(text, "mask and bias are data")) << text;
}

TEST(plan, explain_says_why_a_small_call_uses_one_thread) {
  Options options;
  class TwoSlots final : public Executor {
   public:
    void run(std::int64_t, void (*)(void*, std::int64_t, int), void*) override {}
    int slots() const override { return 2; }
  } executor;
  options.executor = &executor;
  EXPECT_TRUE(contains(explained(options, 16), "1 of 2 allowed: waking more would cost more"));
  EXPECT_TRUE(contains(explained(options, 1024), "2 of 2 allowed"));
}

}  // namespace
}  // namespace poise
