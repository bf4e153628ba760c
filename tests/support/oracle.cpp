// Rows of the oracle's law through poise::attention: one head per row, so that every row has its
// own keys and its statistics stay apart. See oracle.h.
#include "support/oracle.h"

#include <gtest/gtest.h>
#include <poise/attention.h>
#include <poise/gradient.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/rng.h"

namespace poise::test {
namespace {

constexpr const char* kTable = POISE_SOURCE_DIR "/tests/oracle/oracle.csv";
constexpr std::int64_t kRowsPerCall = 500;
// Row counts keep a cell within seconds: fewer rows of thousands of keys, whose statistics vary
// less.
constexpr std::int64_t kRows = 20'000, kRowsOfManyKeys = 5'000, kManyKeys = 1'000;
constexpr double kStandardErrors = 4;
constexpr double kRounding = 2e-6;  // of a mean over float32 rows, relative

class Mean {
 public:
  void add(double x) {
    ++count_;
    sum_ += x;
    squares_ += x * x;
  }
  double mean() const { return sum_ / count_; }
  double standard_error() const {
    return std::sqrt(std::max(0.0, squares_ / count_ - mean() * mean()) / count_);
  }
  double count() const { return count_; }

 private:
  double count_ = 0, sum_ = 0, squares_ = 0;
};
using Means = std::map<std::string, Mean>;

// Chi-squared with n degrees of freedom: every two of them are -2 ln of a uniform number.
double chi_squared(Rng& rng, std::int64_t n) {
  double sum = 0, product = 1;
  for (std::int64_t pair = 0; pair < n / 2; ++pair) {
    product *= 1 - rng.uniform();
    if (pair % 16 != 15) continue;  // sixteen factors of at least 2^-53 stay normal numbers
    sum -= 2 * std::log(product);
    product = 1;
  }
  const double last = n % 2 == 1 ? rng.normal() : 0;
  return sum - 2 * std::log(product) + last * last;
}

struct Rows {
  std::int64_t head_dim, keys, dim;  // dim: components actually drawn
  std::vector<float> q, k, v, out, weights, scores;

  Rows(std::int64_t d, std::int64_t n, std::int64_t drawn)
      : head_dim(d),
        keys(n),
        dim(drawn),
        q(static_cast<std::size_t>(kRowsPerCall * drawn)),
        k(static_cast<std::size_t>(kRowsPerCall * n * drawn)),
        v(static_cast<std::size_t>(kRowsPerCall * n)),
        out(static_cast<std::size_t>(kRowsPerCall)),
        weights(static_cast<std::size_t>(kRowsPerCall * n)),
        scores(static_cast<std::size_t>(kRowsPerCall * n)) {}

  void draw(Rng& rng) {
    for (float& x : k) x = static_cast<float>(rng.normal());
    for (std::int64_t row = 0; row < kRowsPerCall; ++row) {
      std::vector<double> vector;
      double drawn = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        vector.push_back(rng.normal());
        drawn += vector.back() * vector.back();
      }
      const double stretch = std::sqrt((drawn + chi_squared(rng, head_dim - dim)) / drawn);
      for (std::int64_t d = 0; d < dim; ++d)
        q[static_cast<std::size_t>(row * dim + d)] =
            static_cast<float>(stretch * vector[static_cast<std::size_t>(d)]);
    }
  }

  double gradient_reaching_q(std::int64_t row, double scale, double frobenius) const {
    double length = 0, mean = 0, sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const auto x = static_cast<double>(q[static_cast<std::size_t>(row * dim + d)]);
      length += x * x;
    }
    const auto first = static_cast<std::size_t>(row * keys);
    const double per_score = 1 / (scale * std::sqrt(length));  // z = q.k / |q| per unit of score
    const auto z = [&](std::size_t j) {
      return static_cast<double>(scores[first + j]) * per_score;
    };
    const auto p = [&](std::size_t j) { return static_cast<double>(weights[first + j]); };
    const auto n = static_cast<std::size_t>(keys);
    for (std::size_t j = 0; j < n; ++j) mean += p(j) * z(j);
    for (std::size_t j = 0; j < n; ++j) {
      const double part = p(j) * (z(j) - mean);
      sum += part * part;
    }
    return scale * std::sqrt(sum + static_cast<double>(head_dim - 1) * frobenius * frobenius);
  }

  void attend(double scale, Means* means) {
    Stats stats;
    stats.request.level = StatsLevel::full;
    const Tensor p = view(weights.data(), {1, kRowsPerCall, 1, keys});
    const Tensor s = view(scores.data(), {1, kRowsPerCall, 1, keys});
    Options options;
    options.scale = scale;
    Extras extras;
    extras.stats = &stats;
    extras.weights = &p;
    extras.scores = &s;
    const Error error = attention(view(q.data(), {1, kRowsPerCall, 1, dim}),
                                  view(k.data(), {1, kRowsPerCall, keys, dim}),
                                  view(v.data(), {1, kRowsPerCall, keys, 1}),
                                  view(out.data(), {1, kRowsPerCall, 1, 1}), options, extras);
    ASSERT_FALSE(error) << error.message();
    for (std::int64_t row = 0; row < kRowsPerCall; ++row) {
      const HeadStats& head = stats.heads[static_cast<std::size_t>(row)];
      ASSERT_EQ(head.measured_rows, 1);
      const std::pair<const char*, double> signals[] = {
          {"maxlogit", head.scores.max},
          {"lse", head.sum_lse},
          {"maxp", head.sum_top1},
          {"hnorm", head.sum_entropy_ratio},
          {"trJ", head.sum_trace},
          {"froJ", head.sum_frobenius},
          {"frac99", static_cast<double>(head.rows_above_99)},
          {"sump2", head.sum_squares},
          {"neff", head.sum_effective_keys},
          {"rowstd", std::sqrt(head.scores.sum_variance)},
          {"scalefroJ", scale * head.sum_frobenius},
          {"gradq", gradient_reaching_q(row, scale, head.sum_frobenius)},
      };
      for (const auto& [signal, value] : signals) (*means)[signal].add(value);
    }
  }
};

void compare(const Means& means, const std::map<std::string, double>& cell) {
  for (const auto& [signal, measured] : means) {
    const double expected = cell.at(signal + "_mean");
    double error = std::hypot(cell.at(signal + "_se"), measured.standard_error());
    // Few rows above .99 leave no spread to estimate an error from: take that of the expected
    // share.
    if (signal == "frac99")
      error = std::hypot(error, std::sqrt(expected * (1 - expected) / measured.count()));
    EXPECT_NEAR(measured.mean(), expected,
                kStandardErrors * error + kRounding * std::fabs(expected))
        << signal << ", " << (measured.mean() - expected) / error << " standard errors";
  }
}

// Scores of a row are scale |q| z with z normal: one component of the keys holds z, the query looks
// along it, and the other head_dim - 1 components are drawn as their mean: orthogonal from key to
// key, each of length sqrt(head_dim - 1). |dq|^2 is then the square of column gradq, exactly.
struct GradientRows {
  std::int64_t rows, keys;
  std::vector<double> q, k, v, out, dout, dq, lse;

  GradientRows(std::int64_t head_dim, std::int64_t n, std::int64_t count, Rng& rng)
      : rows(count),
        keys(n),
        q(index(count * n * (n + 1))),
        k(index(count * n * (n + 1))),
        v(index(n * n)),
        out(index(count * n * n)),
        dout(index(n * n)),
        dq(q.size()),
        lse(index(count * n)) {
    const double others = std::sqrt(static_cast<double>(head_dim - 1));
    for (std::int64_t row = 0; row < rows; ++row) {
      const double length = std::sqrt(chi_squared(rng, head_dim));
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = (row * n + j) * (n + 1);
        q[index(at)] = length;
        k[index(at)] = rng.normal();
        k[index(at + 1 + j)] = others;
      }
    }
    for (std::int64_t j = 0; j < n; ++j) v[index(j * n + j)] = dout[index(j * n + j)] = 1;
  }

  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

  Stats run(double scale) {
    const std::int64_t n = keys, dim = n + 1;
    const auto seen = [](const std::vector<double>& x, const auto& extents) {
      return view(x.data(), extents);
    };
    const std::initializer_list<std::int64_t> wide = {1, rows, n, dim};
    const ConstTensor query = seen(q, wide), key = seen(k, wide);
    // One identity for every head.
    const ConstTensor value = view(v.data(), {1, rows, n, n}, {0, 0, n, 1});
    const ConstTensor sent = view(dout.data(), {1, rows, n, n}, {0, 0, n, 1});
    const Tensor result = view(out.data(), {1, rows, n, n});
    const Tensor row_lse = view(lse.data(), {1, rows, n});
    Stats stats;
    stats.request.level = StatsLevel::full;
    Options options;
    options.scale = scale;
    Extras extras;
    extras.stats = &stats;
    extras.lse = &row_lse;
    Error error = attention(query, key, value, result, options, extras);
    Forward forward;
    forward.out = result;
    forward.lse = row_lse;
    Gradients gradients;
    gradients.dq = view(dq.data(), wide);
    if (!error)
      error = backward(query, key, value, forward, {sent, {}}, gradients, options, &stats);
    EXPECT_FALSE(error) << error.message();
    return stats;
  }
};

}  // namespace

// scale_name is the only column of text.
OracleCells oracle_cells(std::int64_t head_dim, std::int64_t keys) {
  std::ifstream file(kTable);
  std::vector<std::string> columns;
  OracleCells cells;
  for (std::string line, field; std::getline(file, line);) {
    std::istringstream fields(line);
    const bool is_header = columns.empty();
    std::map<std::string, double> cell;
    std::string scale_name;
    for (std::size_t i = 0; std::getline(fields, field, ','); ++i) {
      if (is_header)
        columns.push_back(field);
      else if (columns.at(i) == "scale_name")
        scale_name = field;
      else
        cell[columns.at(i)] = std::strtod(field.c_str(), nullptr);
    }
    if (is_header || cell["d_k"] != static_cast<double>(head_dim) ||
        cell["n"] != static_cast<double>(keys))
      continue;
    cells[scale_name] = cell;
  }
  return cells;
}

Stats oracle_row_stats(std::int64_t head_dim, std::int64_t keys, double scale, std::int64_t rows,
                       std::uint64_t seed) {
  Rng rng(seed);
  return GradientRows(head_dim, keys, rows, rng).run(scale);
}

void expect_oracle_gradient(std::int64_t head_dim, std::int64_t keys, std::int64_t rows) {
  const OracleCells cells = oracle_cells(head_dim, keys);
  ASSERT_EQ(cells.size(), 3U) << kTable;
  Rng rng(static_cast<std::uint64_t>(head_dim * 10'000 + keys + 1));
  std::map<std::string, Means> means;
  const std::int64_t at_once = std::max<std::int64_t>(4096 / keys / keys * 16, 4);
  for (std::int64_t done = 0; done < rows; done += at_once) {
    GradientRows drawn(head_dim, keys, at_once, rng);
    for (const auto& [scale_name, cell] : cells)
      for (const HeadStats& head : drawn.run(cell.at("scale")).heads)
        means[scale_name]["gradq"].add(head.gradient.dq_norm());
  }
  for (const auto& [scale_name, cell] : cells) {
    SCOPED_TRACE("d " + std::to_string(head_dim) + ", n " + std::to_string(keys) + ", scale " +
                 scale_name);
    compare(means[scale_name], cell);
  }
}

void expect_oracle(std::int64_t head_dim, std::int64_t keys, std::int64_t normals_per_row) {
  const OracleCells cells = oracle_cells(head_dim, keys);
  ASSERT_EQ(cells.size(), 3U) << kTable;
  Rng rng(static_cast<std::uint64_t>(head_dim * 10'000 + keys));
  Rows rows(head_dim, keys, std::clamp<std::int64_t>(normals_per_row / keys, 1, head_dim));
  std::map<std::string, Means> means;
  const std::int64_t wanted = keys > kManyKeys ? kRowsOfManyKeys : kRows;
  for (std::int64_t done = 0; done < wanted; done += kRowsPerCall) {
    rows.draw(rng);
    for (const auto& [scale_name, cell] : cells) rows.attend(cell.at("scale"), &means[scale_name]);
  }
  for (const auto& [scale_name, cell] : cells) {
    SCOPED_TRACE("d " + std::to_string(head_dim) + ", n " + std::to_string(keys) + ", scale " +
                 scale_name);
    compare(means[scale_name], cell);
  }
}

}  // namespace poise::test
