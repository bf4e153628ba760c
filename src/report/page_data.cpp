// The numbers of every head as the page carries them for its script: cards, sorting, CSV and JSON.
// In: the model. Out: one JSON element that no text from outside can leave. Four significant
// digits, three from kManyHeads on: `poise report --json` has all of them. At most 200 bytes a
// head.
#include "report/figure.h"
#include "report/findings.h"
#include "report/html_parts.h"
#include "report/json_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

namespace poise::report {
namespace {

struct DataColumn {
  const char* key;  // as in docs/report-json.md
  double (*value)(const ReportHead& head);
};

const std::vector<DataColumn>& data_columns() {
  using Head = const ReportHead&;
  static const std::vector<DataColumn> columns = {
      {"scale", [](Head h) { return h.scale; }},
      {"keys", [](Head h) { return h.health.readout.keys; }},
      {"sigma", [](Head h) { return h.health.readout.sigma; }},
      {"x", [](Head h) { return h.health.readout.x; }},
      {"variance", [](Head h) { return h.health.expectation.measured; }},
      {"norm_factor", [](Head h) { return h.health.expectation.norm_factor; }},
      {"alignment_factor", [](Head h) { return h.health.expectation.alignment_factor; }},
      {"max_score", [](Head h) { return h.health.readout.max_score; }},
      {"max_abs_logit", [](Head h) { return h.health.readout.max_abs_logit; }},
      {"max_abs_dot", [](Head h) { return h.health.readout.max_abs_dot; }},
      {"entropy_ratio", [](Head h) { return h.health.readout.entropy_ratio; }},
      {"top1", [](Head h) { return h.health.readout.top1; }},
      {"above_99", [](Head h) { return h.health.readout.above_99; }},
      {"trace", [](Head h) { return h.health.readout.trace; }},
      {"gain", [](Head h) { return h.health.readout.gain; }},
      {"dead", [](Head h) { return h.health.readout.dead; }},
      {"effective_keys", [](Head h) { return h.health.readout.effective_keys; }},
      {"near_tie", [](Head h) { return h.health.readout.near_tie; }},
      {"sink_weight", [](Head h) { return h.health.readout.sink_weight; }},
      {"factor", scale_factor},
      {"transmission", [](Head h) { return h.health.readout.transmission; }},
      {"expected_transmission",
       [](Head h) {
         return h.gradient_rows > 0 ? h.health.readout.expected_transmission : std::nan("");
       }},
  };
  return columns;
}

std::string digits(double value, int precision = 4) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general, precision);
  return {buffer.data(), end.ptr};
}

// A histogram as lower end, bin width, % per unit of its highest bin, and one character per bin in
// use: its height on a logarithmic scale of kDecades below that peak in kSteps steps, a space where
// nothing fell. The characters are printable ASCII but for those that mean something to JSON or
// HTML.
constexpr double kDecades = 4;
constexpr int kSteps = 85;

char height(double share_of_peak) {
  if (!(share_of_peak > 0)) return ' ';
  const double level = 1 + std::log10(share_of_peak) / kDecades;  // 1 at the peak
  const int step = std::clamp(static_cast<int>(std::lround(level * kSteps)), 0, kSteps);
  int code = '#' + step;  // '#' is the first above space, ! and "
  for (const char taken : {'&', '<', '\\'}) code += code >= taken ? 1 : 0;
  return static_cast<char>(code);
}

// Half as many bins, twice as wide.
HeadHistogram halved(const HeadHistogram& h) {
  HeadHistogram out = h;
  out.width = 2 * h.width;
  out.counts.assign((h.counts.size() + 1) / 2, 0);
  for (std::size_t i = 0; i < h.counts.size(); ++i) out.counts[i / 2] += h.counts[i];
  return out;
}

std::string histogram_text(const HeadHistogram& h) {
  std::size_t first = 0, last = h.counts.size();
  while (first < last && h.counts[first] == 0) ++first;
  while (last > first && h.counts[last - 1] == 0) --last;
  if (first == last) return "0";
  const auto peak = static_cast<double>(*std::max_element(h.counts.begin(), h.counts.end()));
  std::string bins;
  for (std::size_t i = first; i < last; ++i)
    bins += height(static_cast<double>(h.counts[i]) / peak);
  return "[" + digits(h.low + static_cast<double>(first) * h.width) + "," + digits(h.width) + "," +
         digits(100 * peak / static_cast<double>(h.total) / h.width) + ",\"" + bins + "\"]";
}

// At the factor that a flag advises, recomputed: H/ln n, share of one-hot rows, trace, gain.
std::string bought(const ReportHead& head) {
  const double factor = scale_factor(head);
  const WhatIfReadout* nearest = nullptr;
  double least = std::log(1.5);  // farther from the advised factor it says nothing about it
  for (const WhatIfReadout& w : head.what_ifs) {
    const double distance = std::abs(std::log(w.scale / head.scale / factor));
    if (std::isnan(w.first_order_entropy_change) || !(distance < least)) continue;
    least = distance;
    nearest = &w;
  }
  if (!nearest) return "0";
  return "[" + digits(nearest->scale / head.scale) + "," + digits(nearest->entropy_ratio) + "," +
         digits(nearest->above_99) + "," + digits(nearest->trace) + "," + digits(nearest->gain) +
         "]";
}

}  // namespace

std::string data_html(const Report& report) {
  const ReportInput& in = report.input;
  Json measured = {{"title", in.title},
                   {"model", in.model},
                   {"precision", in.precision},
                   {"mask", in.mask},
                   {"date", in.date},
                   {"command", in.command},
                   {"head_dim", report.head_dim},
                   {"layers", report.layers},
                   {"heads", report.heads.size()},
                   {"rows", report.rows},
                   {"headline", report.headline_alarm + report.headline_rest}};
  // Of many heads less is kept of each, so that the page stays below its megabyte.
  const bool many = report.heads.size() >= kManyHeads;
  const int precision = many ? 3 : 4;
  std::vector<const DataColumn*> shown;
  Json keys = Json::array();
  for (const DataColumn& column : data_columns()) {
    const bool some =
        std::any_of(report.heads.begin(), report.heads.end(),
                    [&](const ReportHead& h) { return std::isfinite(column.value(h)); });
    if (!some) continue;
    shown.push_back(&column);
    keys.push_back(column.key);
  }
  std::string out = "{\"measured\":" + dump(measured, -1) + ",\"columns\":" + dump(keys, -1) +
                    ",\"decades\":" + digits(kDecades) + ",\"steps\":" + std::to_string(kSteps) +
                    ",\"heads\":[\n";
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const ReportHead& head = report.heads[i];
    out += "[";
    for (const DataColumn* column : shown) out += digits(column->value(head), precision) + ",";
    out += histogram_text(many ? halved(head.histogram) : head.histogram) + "," + bought(head) +
           (i + 1 < report.heads.size() ? "],\n" : "]");
  }
  out += "]}";
  // The end of the element is the only markup that its content could hold.
  for (std::size_t at = out.find('<'); at != std::string::npos; at = out.find('<', at))
    out.replace(at, 1, "\\u003c");
  return "<script type=\"application/json\" id=\"data\">" + out + "</script>\n";
}

}  // namespace poise::report
