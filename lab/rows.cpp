// One call of attention() and backward() per unit: batches are rows, the query heads of one group
// are widths and scales, so that all of them read the batch's keys.
//
// In: a request. Out: cells. Statistics are per head over the unit's rows; means of units have the
// scatter that standard errors come from. Must not happen here: random numbers shared by units.
#include "lab/rows.h"

#include <poise/gradient.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "lab/random.h"

namespace poise::lab {
namespace {

constexpr std::size_t kRules = kScaleRules.size();

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }
double square(double x) { return x * x; }

// Few rows keep what a unit hands out in the caches; a unit's mean wants some.
std::int64_t rows_per_unit(const RowsRequest& request) {
  return std::clamp<std::int64_t>(3200 / request.keys, 10, 50);
}

struct CellUnit {
  std::array<double, static_cast<std::size_t>(Signal::count)> means{};
  Sketch traces;
};

// One call: rows of one or several widths that read the same keys.
class Call {
 public:
  Call(const RowsRequest& request, std::span<const std::int64_t> head_dims)
      : head_dims_(head_dims),
        rows_(rows_per_unit(request)),
        keys_(request.keys),
        dim_(request.explicit_components ? head_dims[0]
             : request.gradients         ? 2
                                         : 1),
        heads_(static_cast<std::int64_t>(head_dims.size() * kRules)),
        gradients_(request.gradients),
        explicit_(request.explicit_components),
        q_(index(rows_ * heads_ * dim_)),
        k_(index(rows_ * keys_ * dim_)),
        v_(index(rows_ * keys_)),
        out_(index(rows_ * heads_)) {
    for (const std::int64_t head_dim : head_dims)
      for (const ScaleRule rule : kScaleRules)
        scales_.push_back(static_cast<float>(scale_of(rule, head_dim)));
  }

  Error run(Random& random, std::span<CellUnit> cells) {
    draw(random);
    const ConstTensor query = view(q_.data(), {rows_, heads_, 1, dim_});
    const ConstTensor key = view(k_.data(), {rows_, 1, keys_, dim_});
    const ConstTensor value = view(v_.data(), {rows_, 1, keys_, 1});
    const Tensor out = view(out_.data(), {rows_, heads_, 1, 1});
    Stats stats;
    stats.request.level = StatsLevel::full;
    Options options;
    options.scale_per_head = view(scales_.data(), {heads_});
    options.executor = &serial_executor();
    Extras extras;
    extras.stats = &stats;
    std::vector<float> weights, scores, row_max, row_sum, dq;
    Tensor all_weights, all_scores, all_max, all_sum;
    if (gradients_) {
      weights.resize(index(rows_ * heads_ * keys_));
      scores.resize(weights.size());
      row_max.resize(out_.size());
      row_sum.resize(out_.size());
      dq.resize(q_.size());
      all_weights = view(weights.data(), {rows_, heads_, 1, keys_});
      all_scores = view(scores.data(), {rows_, heads_, 1, keys_});
      all_max = view(row_max.data(), {rows_, heads_, 1});
      all_sum = view(row_sum.data(), {rows_, heads_, 1});
      extras.weights = &all_weights;
      extras.scores = &all_scores;
      extras.row_max = &all_max;
      extras.row_sum = &all_sum;
    }
    if (Error error = attention(query, key, value, out, options, extras)) return error;
    if (gradients_) {
      // dP = dout value^T, and value is one standard normal number per key.
      const std::vector<float> ones(out_.size(), 1.0F);
      const OutGradient gradient{view(ones.data(), {rows_, heads_, 1, 1}), {}};
      Gradients gradients;
      gradients.dq = view(dq.data(), {rows_, heads_, 1, dim_});
      if (Error error = backward(query, key, value, {out, all_max, all_sum, {}}, gradient,
                                 gradients, options, &stats))
        return error;
    }
    for (std::size_t head = 0; head < cells.size(); ++head) {
      read_statistics(stats.heads[head], &cells[head]);
      if (gradients_) read_gradients(head, weights, scores, dq, stats.heads[head], &cells[head]);
    }
    return {};
  }

 private:
  void draw(Random& random) {
    random.fill_normal(k_);
    random.fill_normal(v_);
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::size_t width = 0; width < head_dims_.size(); ++width) {
        float* first = &q_[(index(row * heads_) + width * kRules) * index(dim_)];
        const std::span<float> query(first, index(dim_));
        if (explicit_) {
          random.fill_normal(query);
        } else {
          std::fill(query.begin(), query.end(), 0.0F);
          query[0] = static_cast<float>(std::sqrt(random.chi_squared(head_dims_[width])));
        }
        for (std::size_t rule = 1; rule < kRules; ++rule)
          std::copy(query.begin(), query.end(), first + rule * query.size());
      }
  }

  void read_statistics(const HeadStats& head, CellUnit* cell) const {
    const auto n = static_cast<double>(head.measured_rows);
    const auto set = [&](Signal signal, double sum) {
      cell->means[static_cast<std::size_t>(signal)] = sum / n;
    };
    set(Signal::top1, head.sum_top1);
    set(Signal::entropy_ratio, head.sum_entropy_ratio);
    set(Signal::effective_keys, head.sum_effective_keys);
    set(Signal::one_hot, static_cast<double>(head.rows_above_99));
    set(Signal::lse, head.sum_lse);
    set(Signal::squares, head.sum_squares);
    set(Signal::variance, head.scores.sum_variance);
    set(Signal::dead, static_cast<double>(head.dead_rows));
    set(Signal::trace, head.sum_trace);
    set(Signal::frobenius, head.sum_frobenius);
    cell->traces = head.trace;
  }

  void read_gradients(std::size_t head, const std::vector<float>& weights,
                      const std::vector<float>& scores, const std::vector<float>& dq,
                      const HeadStats& stats, CellUnit* cell) const {
    const auto scale = static_cast<double>(scales_[head]);
    const auto head_dim = static_cast<double>(head_dims_[head / kRules]);
    double to_q = 0, to_q_squared = 0, dq_squared = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::size_t place = index(row * heads_) + head, first = place * index(dim_);
      double length = 0;
      for (std::size_t d = 0; d < index(dim_); ++d) {
        length += square(static_cast<double>(q_[first + d]));
        // The second component stands for all those across the query.
        const bool across = !explicit_ && d > 0;
        dq_squared += square(static_cast<double>(dq[first + d])) * (across ? head_dim - 1 : 1);
      }
      const double mean = row_mean(&weights[place * index(keys_)], &scores[place * index(keys_)],
                                   1 / (scale * std::sqrt(length)), head_dim);
      to_q_squared += scale * scale * mean;
      to_q += scale * std::sqrt(mean);
    }
    const auto n = static_cast<double>(rows_);
    const auto set = [&](Signal signal, double mean) {
      cell->means[static_cast<std::size_t>(signal)] = mean;
    };
    set(Signal::to_q, to_q / n);
    set(Signal::to_q_squared, to_q_squared / n);
    set(Signal::dq_squared, dq_squared / n);
    set(Signal::transmission_squared, square(stats.gradient.rms_transmission()));
    set(Signal::expected_transmission, square(stats.expected_transmission()));
  }

  // Mean over unit dP of |J dP pulled back to q|^2 without the scale: sum (p (z - mean z))^2 along
  // the query, with z = q . k / |q|, and |J|_F^2 for each of the D - 1 directions across it.
  double row_mean(const float* weights, const float* scores, double z_per_score,
                  double head_dim) const {
    const auto z = [&](std::size_t j) { return static_cast<double>(scores[j]) * z_per_score; };
    double mean = 0, second = 0, third = 0, along = 0, top = 0;
    for (std::size_t j = 0; j < index(keys_); ++j) {
      const auto p = static_cast<double>(weights[j]);
      mean += p * z(j);
      top = std::max(top, p);
    }
    double rest = 0;  // of the weights but the largest: 1 - top without the cancellation
    bool skipped = false;
    for (std::size_t j = 0; j < index(keys_); ++j) {
      const auto p = static_cast<double>(weights[j]);
      along += square(p * (z(j) - mean));
      if (p == top && !skipped) {
        skipped = true;
        continue;
      }
      rest += p;
      second += p * p;
      third += p * p * p;
    }
    const double frobenius =
        square(top * rest) + 2 * square(top) * second + second - 2 * third + square(second);
    return along + (head_dim - 1) * std::max(0.0, frobenius);
  }

  std::span<const std::int64_t> head_dims_;
  std::int64_t rows_, keys_, dim_, heads_;
  bool gradients_, explicit_;
  std::vector<float> q_, k_, v_, out_, scales_;
};

}  // namespace

const char* name(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::none:
      return "1";
    case ScaleRule::inverse_root:
      return "1/sqrt(D)";
    case ScaleRule::inverse:
      return "1/D";
  }
  return "?";
}

double scale_of(ScaleRule rule, std::int64_t head_dim) {
  const auto d = static_cast<double>(head_dim);
  switch (rule) {
    case ScaleRule::none:
      return 1;
    case ScaleRule::inverse_root:
      return 1 / std::sqrt(d);
    case ScaleRule::inverse:
      return 1 / d;
  }
  return 0;
}

Estimate RowsCell::root(Signal signal) const {
  const Estimate mean = estimate(signal);
  const double root = std::sqrt(mean.value);
  return {root, root > 0 ? mean.error / (2 * root) : 0};  // squares of mean 0 do not scatter
}

Estimate RowsCell::median_trace() const {
  // The quantiles one standard deviation of a rank away enclose two standard errors.
  const double off = 0.5 / std::sqrt(static_cast<double>(traces.count()));
  const double high = traces.quantile(std::min(1.0, 0.5 + off));
  const double low = traces.quantile(std::max(0.0, 0.5 - off));
  const double median = traces.quantile(0.5);
  // Somewhere in its bin: the standard deviation of that, unless it is an exact 0.
  double width = 0;
  if (median > 0) {
    int bin = traces.first_bin();
    while (Sketch::border(bin + 1) <= median) ++bin;
    width = Sketch::border(bin + 1) - Sketch::border(bin);
  }
  return {median, std::hypot((high - low) / 2, width / std::sqrt(12.0))};
}

std::int64_t row_units(const RowsRequest& request) {
  const std::int64_t per_unit = rows_per_unit(request);
  return std::max<std::int64_t>(2, (request.rows + per_unit - 1) / per_unit);
}

Error run_rows(const RowsRequest& request, const RunSettings& settings,
               std::vector<RowsCell>* cells) {
  const std::size_t count = request.head_dims.size() * kRules;
  const std::int64_t units = row_units(request);
  std::vector<std::vector<CellUnit>> outcomes(index(units));
  // Widths share keys unless every component is drawn.
  const std::size_t together = request.explicit_components ? 1 : request.head_dims.size();
  const auto unit = [&](std::int64_t number) -> Error {
    std::vector<CellUnit>& outcome = outcomes[index(number)];
    outcome.resize(count);
    for (std::size_t first = 0; first < request.head_dims.size(); first += together) {
      Random random(settings.seed, {static_cast<std::uint64_t>(request.keys),
                                    static_cast<std::uint64_t>(number), first});
      Call call(request, std::span(request.head_dims).subspan(first, together));
      if (Error error =
              call.run(random, std::span(outcome).subspan(first * kRules, together * kRules)))
        return error;
    }
    return {};
  };
  if (Error error = run_units(settings, units, unit)) return error;
  cells->assign(count, {});
  for (std::size_t i = 0; i < count; ++i) {
    RowsCell& cell = (*cells)[i];
    cell.head_dim = request.head_dims[i / kRules];
    cell.rule = kScaleRules[i % kRules];
    cell.rows = units * rows_per_unit(request);
    for (const auto& outcome : outcomes) {
      for (std::size_t s = 0; s < cell.means.size(); ++s) cell.means[s].add(outcome[i].means[s]);
      cell.traces.merge(outcome[i].traces);
    }
  }
  return {};
}

}  // namespace poise::lab
