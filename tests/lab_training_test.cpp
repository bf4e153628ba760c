// The training experiment: its tasks, its start, that it learns, that its numbers are the library's
// and do not depend on threads.
// ctest-labels: unit
//
// In: small requests. Out of scope: which scale learns best; docs/lesson-measured.md has that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "lab/training/experiment.h"
#include "lab/training/model.h"
#include "lab/training/streams.h"

namespace poise::lab::training {
namespace {

TrainingRun small_run(ScaleRule rule, Index head_dim) {
  TrainingRun run;
  run.rule = rule;
  run.attention.head_dim = head_dim;
  run.steps = 2;
  run.points = 3;
  return run;
}

TEST(TrainingTask, recall_asks_for_the_value_of_a_key_that_is_there_once) {
  Random random(1, {1});
  const Batch batch = draw_batch(Task::recall, {}, random);
  const BatchShape& shape = batch.shape;
  std::set<int> targets;
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    const auto first = batch.keys.begin() + sequence * shape.pairs;
    EXPECT_EQ(std::set<int>(first, first + shape.pairs).size(),
              static_cast<std::size_t>(shape.pairs));
    for (int i = 0; i < shape.queries; ++i) {
      const auto query = static_cast<std::size_t>(sequence * shape.queries + i);
      const auto found = std::find(first, first + shape.pairs, batch.queries[query]);
      ASSERT_NE(found, first + shape.pairs);
      EXPECT_EQ(batch.values[static_cast<std::size_t>(found - batch.keys.begin())],
                batch.targets[query]);
      targets.insert(batch.targets[query]);
    }
  }
  EXPECT_EQ(targets.size(), static_cast<std::size_t>(shape.values)) << "every value comes up";
}

TEST(TrainingTask, averaging_asks_for_the_value_that_is_most_frequent_alone) {
  Random random(1, {2});
  const Batch batch = draw_batch(Task::averaging, {}, random);
  const BatchShape& shape = batch.shape;
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    const auto first = batch.values.begin() + sequence * shape.pairs;
    const int target = batch.targets[static_cast<std::size_t>(sequence * shape.queries)];
    const auto most = std::count(first, first + shape.pairs, target);
    for (int value = 0; value < shape.values; ++value)
      EXPECT_TRUE(value == target || std::count(first, first + shape.pairs, value) < most);
    for (int i = 0; i < shape.queries; ++i)
      EXPECT_EQ(batch.targets[static_cast<std::size_t>(sequence * shape.queries + i)], target);
  }
}

// The variance of a dot product is D over the weights' draw; over the keys of given weights it
// scatters by a few percent, more for few components.
TEST(TrainingRun, scores_begin_with_the_spread_the_lesson_speaks_of) {
  for (const Index head_dim : {16, 256}) {
    const double d = static_cast<double>(head_dim);
    const auto spread = [&](ScaleRule rule) {
      return train(small_run(rule, head_dim)).front()[Metric::spread];
    };
    EXPECT_NEAR(spread(ScaleRule::one) / std::sqrt(d), 1, 0.2) << head_dim;
    EXPECT_NEAR(spread(ScaleRule::inverse_sqrt), 1, 0.2) << head_dim;
    EXPECT_NEAR(spread(ScaleRule::inverse) * std::sqrt(d), 1, 0.2) << head_dim;
    EXPECT_NEAR(spread(ScaleRule::qk_norm), 1, 0.2) << head_dim;
  }
}

TEST(TrainingRun, a_seed_has_the_same_data_and_first_weights_for_every_scale) {
  const std::vector<Point> fixed = train(small_run(ScaleRule::inverse_sqrt, 16));
  std::vector<Point> learned = train(small_run(ScaleRule::learned, 16));
  // It has a weight more, which has a gradient.
  EXPECT_GT(learned.front()[Metric::all_grad], fixed.front()[Metric::all_grad]);
  learned.front()[Metric::all_grad] = fixed.front()[Metric::all_grad];
  EXPECT_EQ(fixed.front().values, learned.front().values) << "learned begins at 1/sqrt(D)";
  EXPECT_NE(fixed.back()[Metric::loss], learned.back()[Metric::loss]);
  EXPECT_NE(learned.back()[Metric::temperature], 1);
  TrainingRun other = small_run(ScaleRule::inverse_sqrt, 16);
  other.seed = 2;
  EXPECT_NE(train(other).front()[Metric::loss], fixed.front()[Metric::loss]);
}

TEST(TrainingRun, what_it_records_is_what_the_library_measured) {
  const TrainingRun run = small_run(ScaleRule::one, 64);
  const Point point = train(run).front();
  Model<float> model(run.attention, run.batch, run.rule, run.seed);
  Random random = stream(run.seed, Purpose::training_data);
  const Batch batch = draw_batch(run.task, run.batch, random);
  Stats stats;
  model.forward(batch, &stats);
  model.backward(batch, &stats);
  ASSERT_EQ(stats.heads.size(), 2u);
  HeadStats both = stats.heads[0];
  both.merge(stats.heads[1]);
  const auto rows = static_cast<double>(both.measured_rows);
  ASSERT_EQ(both.measured_rows, 2 * run.batch.sequences * run.batch.queries);
  EXPECT_NEAR(point[Metric::entropy], both.sum_entropy_ratio / rows, 1e-12);
  EXPECT_NEAR(point[Metric::top1], both.sum_top1 / rows, 1e-12);
  EXPECT_NEAR(point[Metric::spread], std::sqrt(both.scores.sum_variance / rows), 1e-12);
  EXPECT_NEAR(point[Metric::transmission], both.gradient.rms_transmission(), 1e-12);
  EXPECT_EQ(point[Metric::middle_transmission], both.gradient.row_transmission.quantile(0.5));
  EXPECT_NEAR(point[Metric::query_key_grad],
              std::hypot(both.gradient.dq_norm(), both.gradient.dk_norm()), 1e-12);
  EXPECT_GT(point[Metric::dead_rows], 0.2) << "a spread of 8 leaves many rows dead";
  EXPECT_EQ(point[Metric::temperature], 8);
}

TEST(TrainingRun, learns_both_tasks_at_a_small_width) {
  for (const Task task : kTasks) {
    TrainingRun run;
    run.task = task;
    run.attention.head_dim = 16;
    run.steps = 300;
    run.points = 2;
    const std::vector<Point> points = train(run);
    EXPECT_EQ(points.back().step, 300);
    // A guess costs ln 16 = 2.77 nats and is right once in 16.
    EXPECT_GT(points.front()[Metric::loss], 2.5) << name(task);
    EXPECT_LT(points.back()[Metric::loss], 1.4) << name(task);
    EXPECT_GT(points.back()[Metric::accuracy], 0.5) << name(task);
  }
}

TrainingRequest small_request() {
  TrainingRequest request;
  request.rules = {ScaleRule::one, ScaleRule::qk_norm};
  request.head_dims = {8, 16};
  request.seeds = 2;
  request.steps = 40;
  return request;
}

TEST(TrainingExperiment, numbers_are_the_same_for_any_thread_count) {
  RunSettings serial, parallel;
  serial.threads = 1;
  parallel.threads = 3;
  TrainingRequest request = small_request();
  request.tasks = {Task::recall};
  std::vector<Curve> a, b;
  ASSERT_FALSE(run_curves(request, serial, &a));
  ASSERT_FALSE(run_curves(request, parallel, &b));
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].points.size(), 41u);
    for (std::size_t seed = 0; seed < 2; ++seed)
      for (std::size_t j = 0; j < a[i].points.size(); ++j)
        EXPECT_EQ(a[i].runs[seed][j].values, b[i].runs[seed][j].values) << i << ' ' << j;
  }
}

TEST(TrainingExperiment, averages_over_seeds_with_the_error_of_their_scatter) {
  std::vector<Curve> curves;
  ASSERT_FALSE(run_curves(small_request(), {}, &curves));
  const Curve& curve = curves.front();
  EXPECT_EQ(curve.points.back().step, 40);
  const auto of = [&](Metric metric) {
    return std::pair{curve.runs[0].back()[metric], curve.runs[1].back()[metric]};
  };
  // Two numbers: the standard error of their mean is half their distance.
  const auto [a, b] = of(Metric::loss);
  EXPECT_NEAR(curve.points.back()[Metric::loss].value, (a + b) / 2, 1e-12);
  EXPECT_NEAR(curve.points.back()[Metric::loss].error, std::fabs(a - b) / 2, 1e-12);
  const auto [c, d] = of(Metric::query_key_grad);
  const Estimate gradient = curve.points.back()[Metric::query_key_grad];
  EXPECT_NEAR(gradient.value, std::sqrt(c * d), 1e-12);
  EXPECT_NEAR(gradient.error / gradient.value, std::fabs(std::log(c / d)) / 2, 1e-12);
}

TEST(TrainingExperiment, tables_hold_every_curve_every_run_and_every_step) {
  TrainingRequest request = small_request();
  Outcome outcome;
  ASSERT_FALSE(run_training(request, {}, &outcome));
  std::vector<std::size_t> rows;
  for (const Table& table : outcome.result.tables) {
    rows.push_back(table.rows.size());
    for (const std::vector<Cell>& row : table.rows)
      ASSERT_EQ(row.size(), table.columns.size()) << table.name;
  }
  EXPECT_EQ(rows, (std::vector<std::size_t>{8, 8, 16, 8 * 41}));
  EXPECT_NE(outcome.result.statement.find("recall"), std::string::npos);
  EXPECT_NE(outcome.picture.find("Averaging: every key counts"), std::string::npos);
}

TEST(TrainingExperiment, a_request_out_of_range_is_refused_in_a_sentence) {
  const auto refusal = [](auto change) {
    TrainingRequest request = small_request();
    change(request);
    std::vector<Curve> curves;
    const Error error = run_curves(request, {}, &curves);
    EXPECT_EQ(error.code(), ErrorCode::bad_value);
    EXPECT_TRUE(curves.empty());
    return error.message();
  };
  EXPECT_EQ(refusal([](auto& request) { request.head_dims.push_back(1025); }),
            "head_dim is 1025; expected 1 ... 1024");
  EXPECT_EQ(refusal([](auto& request) { request.seeds = 1; }),
            "seeds is 1; expected 2 ... 20: errors come from the scatter of seeds");
  EXPECT_EQ(refusal([](auto& request) { request.steps = 39; }),
            "steps is 39; expected 40 ... 100000");
  EXPECT_EQ(refusal([](auto& request) { request.learning_rate = 0; }),
            "learning_rate is 0; expected a number above 0 and at most 1");
  EXPECT_EQ(refusal([](auto& request) { request.rules.clear(); }),
            "scales is 0 of them; expected at least one");
}

TEST(TrainingExperiment, a_run_has_learned_at_its_first_point_of_ninety_percent) {
  std::vector<Point> run(3);
  run[1].step = 10;
  run[2].step = 20;
  EXPECT_EQ(step_learned(run), std::nullopt);
  run[1][Metric::accuracy] = run[2][Metric::accuracy] = kLearned;
  EXPECT_EQ(step_learned(run), 10);
}

}  // namespace
}  // namespace poise::lab::training
