// The options of poise lab training, the experiment that takes minutes.
//
// In: what was typed. Out: a request for lab/training. --full sets what is not given on its own.
// Must not happen here: a training step, an option that every experiment has (lab.cpp).
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "failure.h"
#include "lab.h"
#include "lab/training/experiment.h"
#include "options.h"

namespace poise::cli {
namespace {

using lab::training::ScaleRule;
using lab::training::Task;
using lab::training::TrainingRequest;

struct Typed {
  bool full = false;
  std::vector<std::string> tasks, scales;
  std::vector<std::int64_t> head_dims;
  int seeds = 0, steps = 0;
  double learning_rate = 0;
};

template <class T, std::size_t kCount>
std::map<std::string, T> by_name(const T (&all)[kCount]) {
  std::map<std::string, T> names;
  for (const T one : all) names.emplace(name(one), one);
  return names;
}

// What was typed, in the order of `all`; everything of `unless` when nothing was.
template <class T, std::size_t kCount>
std::vector<T> chosen(const T (&all)[kCount], const std::vector<std::string>& typed,
                      std::vector<T> unless) {
  if (typed.empty()) return unless;
  std::vector<T> wanted;
  for (const T one : all)
    if (std::find(typed.begin(), typed.end(), name(one)) != typed.end()) wanted.push_back(one);
  return wanted;
}

TrainingRequest request_of(const Typed& typed) {
  TrainingRequest request = typed.full ? lab::training::full_request() : TrainingRequest{};
  request.tasks = chosen(lab::training::kTasks, typed.tasks, request.tasks);
  request.rules = chosen(lab::training::kScaleRules, typed.scales, request.rules);
  if (!typed.head_dims.empty()) request.head_dims = typed.head_dims;
  std::sort(request.head_dims.begin(), request.head_dims.end());
  request.head_dims.erase(std::unique(request.head_dims.begin(), request.head_dims.end()),
                          request.head_dims.end());
  if (typed.seeds > 0) request.seeds = typed.seeds;
  if (typed.steps > 0) request.steps = typed.steps;
  if (typed.learning_rate > 0) request.learning_rate = typed.learning_rate;
  return request;
}

}  // namespace

LabExperiment add_lab_training(CLI::App& lab) {
  auto* verb = lab.add_subcommand(
      "training", "Train a small attention model with and without the scale, seed by seed");
  auto typed = std::make_shared<Typed>();
  verb->add_flag("--full", typed->full,
                 "every scale, head_dim 16, 64, 256 and 512, 5 seeds: ten times the work of the "
                 "default");
  verb->add_option("--task", typed->tasks, "recall, averaging; both unless given")
      ->delimiter(',')
      ->transform(CLI::IsMember(by_name(lab::training::kTasks)))
      ->type_name("TASK");
  verb->add_option("--scale", typed->scales,
                   "1, 1/sqrt(D), 1/D, learned, qk-norm; 1 and 1/sqrt(D) unless given")
      ->delimiter(',')
      ->transform(CLI::IsMember(by_name(lab::training::kScaleRules)))
      ->type_name("SCALE");
  verb->add_option("--head-dim", typed->head_dims, "widths of q and k; 16,64,256 unless given")
      ->delimiter(',')
      ->check(whole_number(1, 1024))
      ->type_name("D");
  verb->add_option("--seeds", typed->seeds, "how many, from --seed on; 3 unless given")
      ->check(whole_number(2, 20))
      ->type_name("N");
  verb->add_option("--steps", typed->steps, "of Adam; 400 unless given")
      ->check(whole_number(40, 100000))
      ->type_name("N");
  verb->add_option("--learning-rate", typed->learning_rate, "of Adam; 0.003 unless given")
      ->check(real_number(1e-9, 1))
      ->type_name("R");
  verb->footer(
      "Examples:\n"
      "  poise lab training\n"
      "  poise lab training --task recall --head-dim 256 --svg recall.svg\n"
      "  poise lab training --full --json training.json");
  return {verb, [typed](const lab::RunSettings& settings, lab::Outcome* outcome) {
            return lab::training::run_training(request_of(*typed), settings, outcome);
          }};
}

}  // namespace poise::cli
