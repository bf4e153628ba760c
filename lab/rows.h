// Rows of softmax over fresh keys, through attention() and backward(): what saturation and gradient
// measure.
//
// In: widths, a number of keys, scales. Out: per width and scale the means over rows of what the
// library's own statistics and gradients say, with standard errors. Every row has keys of its own:
// rows that share keys have up to five times the naive error.
//
// q and k are iid standard normal. Given q, the scores of fresh keys are independent normals of
// standard deviation scale |q|, and |q|^2 is chi-squared. So a row is drawn exactly, in law, with
// two components: the query is (|q|, 0), a key (z, w), where w stands for the D - 1 components
// across the query, whose gradient is D - 1 times its square in the mean. `explicit_components`
// draws all D instead, to check that. The keys of a row serve every width and scale, so that
// neighbouring widths move together; one width alone is independent rows.
// Must not happen here: a softmax or a gradient that the library did not compute.
#pragma once

#include <poise/error.h>
#include <poise/stats.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/mean.h"
#include "lab/units.h"

namespace poise::lab {

enum class ScaleRule : std::uint8_t { none, inverse_root, inverse };  // 1, 1/sqrt(D), 1/D
inline constexpr std::array<ScaleRule, 3> kScaleRules{ScaleRule::none, ScaleRule::inverse_root,
                                                      ScaleRule::inverse};
const char* name(ScaleRule rule);  // "1", "1/sqrt(D)", "1/D"
double scale_of(ScaleRule rule, std::int64_t head_dim);

struct RowsRequest {
  std::vector<std::int64_t> head_dims;
  std::int64_t keys = 64;      // at least 2
  std::int64_t rows = 20'000;  // at least; whole units are drawn
  bool gradients = false;      // also what backward() says, and the signals after `frobenius`
  bool explicit_components = false;
};

// Of one row; what is averaged.
enum class Signal : std::uint8_t {
  top1,            // largest weight
  entropy_ratio,   // H / ln n
  effective_keys,  // 1 / sum p^2
  one_hot,         // 1 if top-1 > .99
  lse,             // log of the sum of exponentials, nats
  squares,         // sum p^2
  variance,        // of the scores within the row, dividing by n
  dead,            // 1 if the gain |J|_F n / sqrt(n - 1) is below .1
  trace,           // tr J
  frobenius,       // |J|_F
  // With gradients. Of independent unit gradients of the weights, dP:
  to_q,                   // root of the mean of |dq|^2 over dP, from weights and scores
  to_q_squared,           // its square
  dq_squared,             // |dq|^2 for one drawn dP, as backward() computed it
  transmission_squared,   // |dS|^2 / |dP - mean dP|^2 for it, as backward() measured it
  expected_transmission,  // |J|_F^2 / (n - 1), its mean over dP, as attention() measured it
  count
};

struct RowsCell {
  std::int64_t head_dim = 0;
  ScaleRule rule = ScaleRule::none;
  std::int64_t rows = 0;
  std::array<Mean, static_cast<std::size_t>(Signal::count)> means;  // over units of equal size
  Sketch traces;                                                    // tr J, row by row

  Estimate estimate(Signal signal) const {
    return means[static_cast<std::size_t>(signal)].estimate();
  }
  Estimate root(Signal signal) const;  // square root of a mean: root mean square
  Estimate median_trace() const;       // the error counts what a bin of the sketch hides
};

// How many units run_rows() runs.
std::int64_t row_units(const RowsRequest& request);

// Cells by head_dim, then scale rule. Draws the same numbers for the same seed, number of keys and
// choice of components.
Error run_rows(const RowsRequest& request, const RunSettings& settings,
               std::vector<RowsCell>* cells);

}  // namespace poise::lab
