// The options of the experiments that take seconds: sizes, with the bounds that keep them so.
//
// In: what was typed. Out: a request for lab/. Must not happen here: a measurement, an option that
// every experiment has (lab.cpp).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab.h"
#include "lab/example.h"
#include "lab/gradient.h"
#include "lab/saturation.h"
#include "lab/variance.h"

namespace poise::cli {

namespace {

constexpr std::int64_t kMostSize = 65536;

// Ascending, each once.
void sort_sizes(std::vector<std::int64_t>* sizes) {
  std::sort(sizes->begin(), sizes->end());
  sizes->erase(std::unique(sizes->begin(), sizes->end()), sizes->end());
}

// A list of sizes.
void add_sizes(CLI::App& verb, const std::string& option, std::int64_t least,
               std::vector<std::int64_t>* sizes, const std::string& help) {
  std::string usual;
  for (const std::int64_t size : *sizes) usual += (usual.empty() ? "" : ",") + std::to_string(size);
  verb.add_option(option, *sizes, help + "; " + usual + " unless given")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(least, kMostSize))
      ->type_name("N,...");
}

using GridExperiment = Error (*)(const lab::GridRequest&, const lab::RunSettings&, lab::Outcome*);

LabExperiment add_grid(CLI::App* verb, const std::vector<std::int64_t>& keys,
                       GridExperiment experiment) {
  auto request = std::make_shared<lab::GridRequest>();
  request->keys = keys;
  add_sizes(*verb, "--head-dims", 1, &request->head_dims, "components D of q and k");
  add_sizes(*verb, "--keys", 2, &request->keys, "keys n of a row");
  verb->add_option("--rows", request->rows,
                   "rows of every n, a quarter of them from 1024 keys on; 20000 unless given")
      ->check(CLI::Range(100, 10'000'000))
      ->type_name("N");
  verb->add_flag("--explicit", request->explicit_components,
                 "draw every component of q and k, instead of rows of the same law");
  return {verb, [request, experiment](const lab::RunSettings& settings, lab::Outcome* outcome) {
            lab::GridRequest sorted = *request;
            sort_sizes(&sorted.head_dims);
            sort_sizes(&sorted.keys);
            return experiment(sorted, settings, outcome);
          }};
}

}  // namespace

LabExperiment add_lab_variance(CLI::App& lab) {
  auto* verb = lab.add_subcommand("variance", "Var(q.k) against head_dim, with and without scale");
  auto request = std::make_shared<lab::VarianceRequest>();
  add_sizes(*verb, "--head-dims", 1, &request->head_dims, "components D of q and k");
  verb->add_option("--sets", request->sets,
                   "sets of 64 queries and 64 keys for every D and kind of elements; 48 unless "
                   "given")
      ->check(CLI::Range(2, 100'000))
      ->type_name("N");
  verb->add_option("--model-dim", request->model_dim,
                   "components that LayerNorm normalises; 512 unless given")
      ->check(CLI::Range(std::int64_t{2}, kMostSize))
      ->type_name("N");
  verb->add_option("--correlation", request->correlation,
                   "correlation of correlated components; 0.1 unless given")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("R");
  return {verb, [request](const lab::RunSettings& settings, lab::Outcome* outcome) {
            lab::VarianceRequest sorted = *request;
            sort_sizes(&sorted.head_dims);
            return lab::run_variance(sorted, settings, outcome);
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
      ->check(CLI::Range(1, 4096))
      ->type_name("D");
  verb->add_option("--sets", request->sets,
                   "sets of 64 queries and 64 keys in the histogram; 400 unless given")
      ->check(CLI::Range(2, 100000))
      ->type_name("N");
  return {verb, [request](const lab::RunSettings& settings, lab::Outcome* outcome) {
            return lab::run_example(*request, settings, outcome);
          }};
}

}  // namespace poise::cli
