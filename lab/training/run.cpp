// The loop of a training run, and what a point reads off the statistics.
//
// In and out: run.h.
#include "lab/training/run.h"

#include <poise/stats.h>

#include <cmath>

#include "lab/training/adam.h"
#include "lab/training/model.h"
#include "lab/training/streams.h"

namespace poise::lab::training {
namespace {

constexpr std::array<MetricInfo, kMetrics> kInfos{{
    {Metric::loss, "loss", "loss", "cross-entropy of the held-out queries, nats", false},
    {Metric::accuracy, "accuracy", "accuracy", "share of the held-out queries answered rightly",
     false},
    {Metric::entropy, "entropy_ratio", "H/ln n", "entropy of the weights: 1 uniform, 0 one key",
     false},
    {Metric::top1, "top1", "top-1", "largest weight of a row", false},
    {Metric::spread, "score_spread", "spread",
     "standard deviation of a row's scores, root mean square over rows", true},
    {Metric::transmission, "transmission", "transmission",
     "|dS| / |dP - mean dP|, root mean square over rows: what of the gradient passes the softmax",
     true},
    {Metric::middle_transmission, "middle_transmission", "middle row",
     "transmission of the row in the middle, the median over rows", true},
    {Metric::dead_rows, "dead_rows", "dead rows", "share of rows that pass next to no gradient",
     false},
    {Metric::query_key_grad, "query_key_gradient", "|dq, dk|",
     "norm of the gradient of the mean loss with respect to every q and k", true},
    {Metric::all_grad, "gradient", "|gradient|",
     "norm of the gradient of the mean loss with respect to every weight", true},
    {Metric::temperature, "scale_times_sqrt_d", "scale sqrt(D)", "mean over heads", true},
}};

void read_statistics(const Stats& stats, Point& point) {
  double rows = 0, entropy = 0, top1 = 0, variance = 0;
  double measured = 0, transmission = 0, dead = 0, gradient = 0;
  Sketch rows_transmission;
  for (const HeadStats& head : stats.heads) {
    rows += static_cast<double>(head.measured_rows);
    entropy += head.sum_entropy_ratio;
    top1 += head.sum_top1;
    variance += head.scores.sum_variance;
    measured += static_cast<double>(head.gradient.measured_rows);
    transmission += head.gradient.sum_transmission_squared;
    rows_transmission.merge(head.gradient.row_transmission);
    dead += static_cast<double>(head.gradient.dead_rows);
    gradient += head.gradient.dq_squares + head.gradient.dk_squares;
  }
  point[Metric::entropy] = entropy / rows;
  point[Metric::top1] = top1 / rows;
  point[Metric::spread] = std::sqrt(variance / rows);
  point[Metric::transmission] = std::sqrt(transmission / measured);
  point[Metric::middle_transmission] = rows_transmission.quantile(0.5);
  point[Metric::dead_rows] = dead / measured;
  point[Metric::query_key_grad] = std::sqrt(gradient);
}

}  // namespace

const std::array<MetricInfo, kMetrics>& all_metrics() { return kInfos; }
const MetricInfo& info(Metric metric) { return kInfos[static_cast<std::size_t>(metric)]; }

std::vector<Point> train(const TrainingRun& run) {
  Model<float> model(run.attention, run.batch, run.rule, run.seed);
  Adam<float> adam(model.parameters(), run.adam);
  Random training = stream(run.seed, Purpose::training_data);
  Random held_out = stream(run.seed, Purpose::held_out_data);
  BatchShape held_out_shape = run.batch;
  held_out_shape.sequences = kHeldOut;
  const Batch test = draw_batch(run.task, held_out_shape, held_out);

  std::vector<Point> points;
  for (int step = 0; step <= run.steps; ++step) {
    const bool recorded = step == run.step_of(static_cast<int>(points.size()));
    Stats stats;
    Point point;
    if (recorded) {
      const Score score = model.forward(test);
      point.step = step;
      point[Metric::loss] = score.loss;
      point[Metric::accuracy] = score.accuracy;
    }
    const Batch batch = draw_batch(run.task, run.batch, training);
    model.forward(batch, recorded ? &stats : nullptr);
    model.backward(batch, recorded ? &stats : nullptr);
    if (recorded) {
      read_statistics(stats, point);
      double squares = 0, temperature = 0;
      for (const Parameter<float>* parameter : model.parameters())
        squares += static_cast<double>(parameter->gradient.squaredNorm());
      for (Index head = 0; head < run.attention.heads; ++head)
        temperature += model.attention().scale(head);
      point[Metric::all_grad] = std::sqrt(squares);
      point[Metric::temperature] = temperature / static_cast<double>(run.attention.heads) *
                                   std::sqrt(static_cast<double>(run.attention.head_dim));
      points.push_back(point);
    }
    adam.step();
  }
  return points;
}

}  // namespace poise::lab::training
