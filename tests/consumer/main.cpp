// A program of somebody else: attention, statistics, verdicts and the report from an installed
// poise. Exit code 0 when each of them answered.
#include <poise/poise.h>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> tensor(1 * 2 * 8 * 4, 0.5f);
  std::vector<float> out(tensor.size());
  const auto input = poise::view(tensor.data(), {1, 2, 8, 4});
  poise::ReportInput report;
  report.layers.emplace_back();
  poise::Extras extras;
  extras.stats = &report.layers[0].stats;
  if (const auto error = poise::attention(input, input, input,
                                          poise::view(out.data(), {1, 2, 8, 4}), {}, extras)) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  }
  const bool judged = !poise::to_text(poise::judge(report.layers[0].stats)).empty();
  const bool shown = !poise::to_html(poise::build_report(report)).empty();
  return judged && shown && out[0] == 0.5f ? 0 : 1;
}
