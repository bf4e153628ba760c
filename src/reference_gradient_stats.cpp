// The definition of the gradient's statistics: two passes over materialised rows, in double.
//
// In: ReferenceGradients. Out: per row what is sent to the weights and what of it arrives at the
// logits, and their sums per head, by the formulas of docs/health.md. Which rows count, their n and
// their Jacobian are those of reference_statistics(): nothing of that is decided again here.
#include "reference_gradient.h"

#include <cmath>

#include "reference_inputs.h"

namespace poise {
namespace {

// The weights over the keys alone and dP, of the visible keys of one row.
struct SentRow {
  std::vector<double> p, dp;
  std::vector<bool> stand_in;
  bool finite = true;
};

SentRow sent_row(const ReferenceGradients<double>& g, std::int64_t row, double stand_in_bias) {
  const ReferenceResult<double>& r = g.forward;
  SentRow sent;
  for (std::int64_t j = 0; j < r.kv_len; ++j) {
    const auto at = static_cast<std::size_t>(row * r.kv_len + j);
    if (!takes_part(r, at)) continue;
    sent.stand_in.push_back(r.bias[at] <= stand_in_bias);
    sent.p.push_back(std::exp(r.logits[at] - r.lse_without_sink[static_cast<std::size_t>(row)]));
    sent.dp.push_back(g.dweights[at]);
    sent.finite = sent.finite && std::isfinite(g.dweights[at]);
  }
  return sent;
}

ReferenceGradientRow read_row(const ReferenceGradients<double>& g, std::int64_t h,
                              const ReferenceRow& forward, const StatsRequest& request) {
  ReferenceGradientRow out;
  out.batch = forward.batch;
  out.row = forward.row;
  out.nonfinite = forward.nonfinite;
  if (out.nonfinite || forward.keys() < 1) return out;
  const std::int64_t row = g.forward.row_index(forward.batch, h, forward.row);
  const SentRow sent = sent_row(g, row, request.stand_in_bias);
  out.nonfinite = !sent.finite;
  if (out.nonfinite || !forward.measured()) return out;
  out.keys = forward.keys();
  out.expected = forward.frobenius * forward.frobenius / (out.keys - 1);

  double mean = 0, weighted_mean = 0;
  for (std::size_t j = 0; j < sent.p.size(); ++j) {
    if (!sent.stand_in[j]) mean += sent.dp[j] / out.keys;
    weighted_mean += sent.p[j] * sent.dp[j];
  }
  for (std::size_t j = 0; j < sent.p.size(); ++j) {
    if (sent.stand_in[j]) continue;
    const double centred = sent.dp[j] - mean;
    const double arrived = sent.p[j] * (sent.dp[j] - weighted_mean);
    out.sent_squares += centred * centred;
    out.arrived_squares += arrived * arrived;
  }
  out.silent = out.sent_squares == 0;
  out.measured = !out.silent;
  if (out.measured) out.transmission = std::sqrt(out.arrived_squares / out.sent_squares);
  return out;
}

}  // namespace

double ReferenceGradientHead::transmission() const {
  return sent_squares > 0 ? std::sqrt(arrived_squares / sent_squares) : 0;
}

std::vector<ReferenceGradientHead> reference_gradient_statistics(
    const ReferenceGradients<double>& gradients, const StatsRequest& request, std::int64_t lanes) {
  std::vector<ReferenceGradientHead> heads;
  for (const ReferenceHead& forward : reference_statistics(gradients.forward, request, lanes)) {
    const auto h = static_cast<std::int64_t>(heads.size());
    ReferenceGradientHead& head = heads.emplace_back();
    for (const ReferenceRow& row : forward.rows) {
      head.rows.push_back(read_row(gradients, h, row, request));
      const ReferenceGradientRow& added = head.rows.back();
      head.nonfinite_rows += added.nonfinite;
      head.silent_rows += added.silent;
      if (!added.measured) continue;
      ++head.measured_rows;
      head.sent_squares += added.sent_squares;
      head.arrived_squares += added.arrived_squares;
      head.expected += added.expected;
    }
  }
  return heads;
}

}  // namespace poise
