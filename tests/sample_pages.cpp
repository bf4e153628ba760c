// Pages for the browser tests (tests/browser), made from stored and synthetic statistics, so that
// they depend on no kernel. In: a folder. Out: sample.html, large.html, gradient.html, plain.html,
// hostile.html in it. Must not happen here: a page that the library could not make.
#include <poise/report.h>

#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "support/sample_report.h"

namespace {

using namespace poise;

// As the recording is, with what-ifs of its first layer made up from its own statistics.
ReportInput large(int layers) {
  ReportInput input = test::sample_input();
  input.layers.clear();
  for (int i = 0; i < layers; ++i) input.layers.push_back(test::large_layer(i));
  input.context.layers_share_weights = false;
  return input;
}

ReportInput with_gradients() {
  ReportInput input = large(3);
  int number = 0;
  for (LayerInput& layer : input.layers) {
    for (HeadStats& head : layer.stats.heads) {
      head.sum_expected_transmission_squared = 64 * (0.01 + 0.003 * (number % 17));
      head.gradient.measured_rows = 64;
      head.gradient.sum_transmission_squared =
          head.sum_expected_transmission_squared * (number % 29 == 0 ? 0.02 : 0.9);
      ++number;
    }
  }
  return input;
}

ReportInput plain() {
  ReportInput input;
  input.layers = {test::layer_of({test::head_of_spread(1), test::head_of_spread(1.1)})};
  return input;
}

ReportInput hostile() {
  ReportInput input = test::sample_input();
  const std::string text =
      "</title></script><script>window.obeyed=1</script>'\"&<!--\x80\u202E=1+1";
  input.title = input.model = input.licence = input.text = input.mask = input.command = text;
  input.tokens.assign(56, text);
  // Short enough to be shown whole.
  const std::string label = "=</script><script>obeyed=1;//\x80\u202E";
  for (LayerInput& layer : input.layers) layer.label = label;
  return input;
}

bool write(const std::string& path, const ReportInput& input) {
  std::ofstream file(path, std::ios::binary);
  file << to_html(build_report(input));
  return file.good();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: poise_sample_pages FOLDER\n";
    return 2;
  }
  const std::string folder = std::string(arguments[1]) + "/";
  const bool done = write(folder + "sample.html", test::sample_input()) &&
                    write(folder + "large.html", large(48)) &&
                    write(folder + "gradient.html", with_gradients()) &&
                    write(folder + "plain.html", plain()) &&
                    write(folder + "hostile.html", hostile());
  if (!done) std::cerr << "cannot write into " << folder << "\n";
  return done ? 0 : 1;
}
