// poise as a contestant of bench/peers: the calls a problem asks for and nothing else.
//
// In: requests on standard input (protocol.py). Out: answers on standard output. Window and causal
// are options of the call, padding is kv_lengths, strided layouts are views: nothing is rearranged.
// What forward leaves for the derivatives is out, row_max and row_sum. Where forward is not part of
// the timed call, it runs once in load(); nothing else does, so that the first call is the first to
// touch what it needs (memory.py). Must not happen here: a call that does less than the one before.
#include <poise/attention.h>
#include <poise/cpu.h>
#include <poise/gradient.h>
#include <poise/tangent.h>

#include <iostream>

#include "bench/peers/worker.h"

namespace {

// The calls of one work (shapes.py), in this order.
struct Calls {
  bool forward = false, backward = false, jvp = false, double_backward = false;
};

const std::map<std::string, Calls> kWorks = {
    {"forward", {.forward = true}},
    {"backward", {.backward = true}},
    {"forward_backward", {.forward = true, .backward = true}},
    {"jvp", {.forward = true, .jvp = true}},
    {"double_backward", {.double_backward = true}},
    {"gradient_penalty", {.forward = true, .backward = true, .double_backward = true}},
};

class Poise : public peers::Contestant {
 public:
  std::map<std::string, std::string> versions() const override {
    return {{"poise", POISE_VERSION},
            {"poise instruction set", poise::active_isa()},
            {"compiler", __VERSION__}};
  }

  std::string load(const peers::Problem& problem, std::string* ran) override {
    const auto work = kWorks.find(problem.work);
    if (work == kWorks.end()) return "work: '" + problem.work + "', which poise_worker has not";
    problem_ = &problem;
    calls_ = work->second;
    options_ = {};
    options_.threads = problem.threads;
    options_.kv_lengths = problem.lengths;
    if (problem.causal) options_.causal = poise::Causal::bottom_right();
    if (problem.window > 0)
      options_.window_left = problem.window - 1;  // the query's own key counts
    out_ = problem.result("out");
    extras_ = {};
    if (problem.work != "forward") keep_state();
    direction_ = {problem.read("direction_query"), problem.read("direction_key"),
                  problem.read("direction_value")};
    gradient_ = {.dout = problem.read("dout")};
    gradients_ = {
        .dq = problem.result("dq"), .dk = problem.result("dk"), .dv = problem.result("dv")};
    tangent_ = {.out = problem.result("tangent_out")};
    second_ = {.query = problem.result("second_query"),
               .key = problem.result("second_key"),
               .value = problem.result("second_value"),
               .dout = problem.result("second_dout")};
    *ran = poise::active_isa();
    return calls_.forward ? std::string() : forward().message();
  }

  poise::Error call() override {
    const peers::Problem& p = *problem_;
    if (calls_.forward)
      if (poise::Error error = forward()) return error;
    if (calls_.backward)
      if (poise::Error error =
              poise::backward(p.query, p.key, p.value, state_, gradient_, gradients_, options_))
        return error;
    if (calls_.jvp)
      if (poise::Error error =
              poise::jvp(p.query, p.key, p.value, state_, direction_, tangent_, options_))
        return error;
    if (calls_.double_backward)
      return poise::double_backward(p.query, p.key, p.value, state_, gradient_, direction_, second_,
                                    options_);
    return {};
  }

 private:
  poise::Error forward() {
    return poise::attention(problem_->query, problem_->key, problem_->value, out_, options_,
                            extras_);
  }

  // Has forward leave row_max and row_sum, and out where it is not among the results.
  void keep_state() {
    const poise::ConstTensor& query = problem_->query;
    const std::int64_t rows = query.extent(0) * query.extent(1) * query.extent(2);
    const std::int64_t row_bytes = poise::size_bytes(query.dtype) * query.extent(3);
    if (!out_.given()) {
      out_memory_ = peers::aligned(rows * row_bytes);
      out_ = {out_memory_.get(), query.dtype, query.rank, query.extents, query.strides};
    }
    for (int i = 0; i < 2; ++i) {
      row_memory_[i] = peers::aligned(rows * poise::size_bytes(poise::DType::f32));
      rows_[i] = poise::view(reinterpret_cast<float*>(row_memory_[i].get()),
                             {query.extent(0), query.extent(1), query.extent(2)});
    }
    extras_.row_max = &rows_[0];
    extras_.row_sum = &rows_[1];
    state_ = {.out = out_, .row_max = rows_[0], .row_sum = rows_[1]};
  }

  const peers::Problem* problem_ = nullptr;
  Calls calls_;
  poise::Options options_;
  poise::Extras extras_;
  poise::Tensor out_;
  poise::Tensor rows_[2];
  peers::Memory out_memory_, row_memory_[2];
  poise::Forward state_;
  poise::OutGradient gradient_;
  poise::Gradients gradients_;
  poise::Direction direction_;
  poise::Tangent tangent_;
  poise::SecondGradients second_;
};

}  // namespace

int main() {
  Poise contestant;
  peers::serve(contestant, std::cin, std::cout);
  return 0;
}
