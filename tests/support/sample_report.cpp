// Inputs of the report tests, and the comparison with golden files. In: files under tests/golden.
// Out: inputs, and one line about the first difference. Golden files are written only when the
// environment asks for it. What each function promises: sample_report.h.
#include "support/sample_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace poise::test {
namespace {

const std::string kGoldenFolder = std::string(POISE_SOURCE_DIR) + "/tests/golden/";

Stats stats_from(const nlohmann::ordered_json& json) {
  Stats stats;
  if (const Error error = from_json(json.dump(), stats)) throw std::runtime_error(error.message());
  return stats;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ReportInput sample_input() {
  const auto json =
      nlohmann::ordered_json::parse(read_file(kGoldenFolder + "rxnmapper_stats.json"));
  ReportInput input;
  for (const auto& layer : json.at("layers")) {
    LayerInput next;
    next.label = layer.at("label").get<std::string>();
    next.stats = stats_from(layer.at("stats"));
    if (layer.contains("wide")) next.wide = stats_from(layer.at("wide"));
    input.layers.push_back(std::move(next));
  }
  input.title = "rxnmapper 0.4.3, one reaction";
  input.model = "rxnmapper 0.4.3";
  input.licence = "MIT";
  input.text = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F";
  input.precision = "float32";
  input.mask = "no mask";
  input.isa = "avx512";
  input.threads = 2;
  input.date = "29 Nov 2026 23:58 UTC";
  input.command = "poise report recorded.safetensors --html report.html";
  input.attention_ms = 1.9;
  input.measuring_percent = 2;
  input.batch = 1;
  input.q_len = input.kv_len = 56;
  input.tokens = {"[CLS]", "C", "C", "("};
  input.context.layers_share_weights = true;
  return input;
}

HeadStats head_of_spread(double sigma, std::int64_t rows, std::int64_t keys) {
  const auto n = static_cast<double>(rows), k = static_cast<double>(keys);
  HeadStats head;
  head.scale = 0.125;
  head.rows = head.measured_rows = rows;
  head.visible_keys = n * k;
  head.sum_log_keys = n * std::log(k);
  head.scores.max = 3 * sigma;
  head.scores.min = -3 * sigma;
  head.scores.sum_variance = n * sigma * sigma;
  head.scores.sigma.add(sigma, rows);
  head.max_dot = 3 * sigma / head.scale;
  head.min_dot = -head.max_dot;
  // A softmax that sharpens with the spread, from uniform to one-hot.
  const double top1 = std::min(1 - 1e-6, std::exp(sigma) / k);
  const double rest = 1 - top1, entropy = rest * std::log(k);
  head.lse_min = head.lse_max = std::log(k) + sigma;
  head.sum_lse = n * head.lse_max;
  head.sum_entropy = n * entropy;
  head.sum_entropy_ratio = n * rest;
  head.sum_kl = n * (std::log(k) - entropy);
  head.sum_top1 = n * top1;
  head.sum_trace = n * rest;
  head.entropy_ratio.add(rest, rows);
  head.kl.add(std::log(k) - entropy, rows);
  head.top1.add(top1, rows);
  head.rest.add(rest, rows);
  head.trace.add(rest, rows);
  head.gain.add(10 * rest, rows);
  head.effective_keys.add(1 / top1, rows);
  head.rows_above_99 = top1 > 0.99 ? rows : 0;
  head.dead_rows = 10 * rest < 0.1 ? rows : 0;
  head.histogram.counts[kHistogramBins / 2] = rows * keys;
  head.argmax_column = {{5, rows / 2}, {9, rows - rows / 2}};
  head.argmax_offset = {{2, rows / 2}, {3, rows - rows / 2}};
  return head;
}

LayerInput layer_of(std::vector<HeadStats> heads, std::int64_t head_dim) {
  LayerInput layer;
  layer.stats.request.level = StatsLevel::full;
  layer.stats.head_dim = head_dim;
  layer.stats.kv_heads = static_cast<std::int64_t>(heads.size());
  layer.stats.heads = std::move(heads);
  return layer;
}

LayerInput large_layer(int seed) {
  constexpr int kHeads = 32, kKeys = 64;
  const auto spread_of = [&](int h) { return 0.3 + 0.0537 * ((seed * 37 + h * 11) % 97); };
  const auto at = [&](double factor) {
    std::vector<HeadStats> heads;
    for (int h = 0; h < kHeads; ++h) {
      HeadStats head = head_of_spread(spread_of(h) * factor, kKeys, kKeys);
      head.scale *= factor;
      head.max_dot /= factor;
      head.min_dot /= factor;
      head.sum_temperature_variance = kKeys * spread_of(h);
      head.inputs.q_rows = head.inputs.k_rows = kKeys;
      head.inputs.q_variance = head.inputs.k_variance = head.inputs.q_second_moment = 1.51234;
      head.inputs.k_variance_centred = 1 + 0.0123 * h;
      head.inputs.alignment = 1 + 0.0789 * seed;
      // Wide and with many heights, as a histogram of real scores is.
      for (int bin = 0; bin < kHistogramBins; ++bin) {
        const double from_middle = (bin - 31.5) / (6 + h % 24);
        head.histogram.counts[static_cast<std::size_t>(bin)] =
            1 + static_cast<std::int64_t>(9e4 * std::exp(-from_middle * from_middle / 2)) + seed;
      }
      // A sink in nearly every head, as large language models have.
      if (h % 16 != 0) head.tracked[0].sum_weight = kKeys * (0.31 + 0.019 * h);
      heads.push_back(std::move(head));
    }
    return layer_of(std::move(heads), kKeys);
  };
  LayerInput layer = at(1);
  for (const double factor : {8.0, 0.125, 0.25, 0.5, 0.71, 1.41, 2.0, 4.0}) {
    layer.what_ifs.push_back({"scale × " + std::to_string(factor), true, at(factor).stats});
  }
  return layer;
}

std::string compare_with_golden(const std::string& name, const std::string& text) {
  const std::string path = kGoldenFolder + name;
  if (const char* update = std::getenv("POISE_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream(path, std::ios::binary) << text;
    return "";
  }
  const std::string golden = read_file(path);
  if (golden == text) return "";
  const auto [mine, theirs] = std::mismatch(text.begin(), text.end(), golden.begin(), golden.end());
  const auto line = 1 + std::count(text.begin(), mine, '\n');
  const auto from = static_cast<std::size_t>(mine - text.begin());
  const std::size_t start = from < 40 ? 0 : from - 40;
  return name + " differs in line " + std::to_string(line) + ": got '" + text.substr(start, 120) +
         "', expected '" + golden.substr(std::min(start, golden.size()), 120) +
         "' (POISE_UPDATE_GOLDEN=1 rewrites it)";
}

}  // namespace poise::test
