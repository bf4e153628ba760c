// The options of the experiments that take seconds: sizes, with the bounds that keep them so.
//
// In: what was typed. Out: a request for lab/. Must not happen here: a measurement, an option that
// every experiment has (lab.cpp).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "failure.h"
#include "inputs.h"
#include "lab.h"
#include "lab/example.h"
#include "lab/gradient.h"
#include "lab/saturation.h"
#include "lab/variance.h"
#include "options.h"

namespace poise::cli {

namespace {

constexpr std::int64_t kMostSize = 65536;

// A list of sizes. CLI11's own lists pass over an empty place between two commas.
class SizesOption {
 public:
  SizesOption(std::string option, std::int64_t least) : option_(std::move(option)), least_(least) {}
  void add_to(CLI::App& verb, const std::vector<std::int64_t>& usual, const std::string& help) {
    std::string list;
    for (const std::int64_t size : usual) list += (list.empty() ? "" : ",") + std::to_string(size);
    verb.add_option(option_, text_, help + "; " + list + " unless given")->type_name("N,...");
  }
  // Replaces the usual sizes where the option was given: ascending, each once.
  void set(std::vector<std::int64_t>* sizes) const {
    if (!text_) return;
    sizes->clear();
    for (std::size_t begin = 0; begin <= text_->size();) {
      const std::size_t end = std::min(text_->find(',', begin), text_->size());
      const auto size = parse_integer(std::string_view(*text_).substr(begin, end - begin));
      if (!size || *size < least_ || *size > kMostSize)
        throw usage_failure(option_ + ": '" + *text_ + "' is not whole numbers from " +
                            std::to_string(least_) + " to " + std::to_string(kMostSize) +
                            " with commas between them");
      sizes->push_back(*size);
      begin = end + 1;
    }
    std::sort(sizes->begin(), sizes->end());
    sizes->erase(std::unique(sizes->begin(), sizes->end()), sizes->end());
  }

 private:
  std::string option_;
  std::int64_t least_;
  std::optional<std::string> text_;
};

using GridExperiment = Error (*)(const lab::GridRequest&, const lab::RunSettings&, lab::Outcome*);

LabExperiment add_grid(CLI::App* verb, const std::vector<std::int64_t>& keys,
                       GridExperiment experiment) {
  auto request = std::make_shared<lab::GridRequest>();
  request->keys = keys;
  auto head_dims_option = std::make_shared<SizesOption>("--head-dims", 1);
  head_dims_option->add_to(*verb, request->head_dims, "components D of q and k");
  auto keys_option = std::make_shared<SizesOption>("--keys", 2);
  keys_option->add_to(*verb, request->keys, "keys n of a row");
  verb->add_option("--rows", request->rows,
                   "rows of every n, a quarter of them from 1024 keys on; 20000 unless given")
      ->check(whole_number(100, 10'000'000))
      ->type_name("N");
  verb->add_flag("--explicit", request->explicit_components,
                 "draw every component of q and k, instead of rows of the same law");
  return {verb, [=](const lab::RunSettings& settings, lab::Outcome* outcome) {
            head_dims_option->set(&request->head_dims);
            keys_option->set(&request->keys);
            return experiment(*request, settings, outcome);
          }};
}

}  // namespace

LabExperiment add_lab_variance(CLI::App& lab) {
  auto* verb = lab.add_subcommand("variance", "Var(q.k) against head_dim, with and without scale");
  auto request = std::make_shared<lab::VarianceRequest>();
  auto head_dims_option = std::make_shared<SizesOption>("--head-dims", 1);
  head_dims_option->add_to(*verb, request->head_dims, "components D of q and k");
  verb->add_option("--sets", request->sets,
                   "sets of 64 queries and 64 keys for every D and kind of elements; 48 unless "
                   "given")
      ->check(whole_number(2, 100'000))
      ->type_name("N");
  verb->add_option("--model-dim", request->model_dim,
                   "components that LayerNorm normalises; 512 unless given")
      ->check(whole_number(2, kMostSize))
      ->type_name("N");
  verb->add_option("--correlation", request->correlation,
                   "correlation of correlated components; 0.1 unless given")
      ->check(real_number(0, 1))
      ->type_name("R");
  return {verb, [=](const lab::RunSettings& settings, lab::Outcome* outcome) {
            head_dims_option->set(&request->head_dims);
            return lab::run_variance(*request, settings, outcome);
          }};
}

LabExperiment add_lab_saturation(CLI::App& lab) {
  return add_grid(lab.add_subcommand("saturation",
                                     "Largest weight, entropy and effective keys against "
                                     "head_dim and keys"),
                  {8, 64, 512, 4096}, lab::run_saturation);
}

LabExperiment add_lab_gradient(CLI::App& lab) {
  return add_grid(
      lab.add_subcommand("gradient", "Jacobian and gradient that gets through, against head_dim"),
      {8, 64, 512}, lab::run_gradient);
}

LabExperiment add_lab_example(CLI::App& lab) {
  auto* verb = lab.add_subcommand("example", "The worked figures of the lesson, computed");
  auto request = std::make_shared<lab::ExampleRequest>();
  verb->add_option("--head-dim", request->head_dim,
                   "width of the histogram's q and k; 64 unless given")
      ->check(whole_number(1, 4096))
      ->type_name("D");
  verb->add_option("--sets", request->sets,
                   "sets of 64 queries and 64 keys in the histogram; 400 unless given")
      ->check(whole_number(2, 100000))
      ->type_name("N");
  return {verb, [request](const lab::RunSettings& settings, lab::Outcome* outcome) {
            return lab::run_example(*request, settings, outcome);
          }};
}

}  // namespace poise::cli
