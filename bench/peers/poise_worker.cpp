// poise as a contestant of bench/peers: one call of attention() per timed call, nothing else asked.
//
// In: requests on standard input (protocol.py). Out: answers on standard output. Window and causal
// are options of the call, padding is kv_lengths, strided layouts are views: nothing is rearranged.
#include <poise/attention.h>
#include <poise/cpu.h>

#include <iostream>

#include "bench/peers/worker.h"

namespace {

class Poise : public peers::Contestant {
 public:
  std::map<std::string, std::string> versions() const override {
    return {{"poise", POISE_VERSION},
            {"poise instruction set", poise::active_isa()},
            {"compiler", __VERSION__}};
  }

  std::string load(const peers::Problem& problem, std::string* ran) override {
    problem_ = &problem;
    options_ = {};
    options_.threads = problem.threads;
    options_.kv_lengths = problem.lengths;
    if (problem.causal) options_.causal = poise::Causal::bottom_right();
    if (problem.window > 0)
      options_.window_left = problem.window - 1;  // the query's own key counts
    *ran = poise::active_isa();
    return call().message();
  }

  poise::Error call() override {
    return poise::attention(problem_->query, problem_->key, problem_->value, problem_->out,
                            options_);
  }

 private:
  const peers::Problem* problem_ = nullptr;
  poise::Options options_;
};

}  // namespace

int main() {
  Poise contestant;
  peers::serve(contestant, std::cin, std::cout);
  return 0;
}
