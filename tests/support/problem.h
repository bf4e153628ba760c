// One attention call that owns its inputs: made from a shape and a seed, drawn at random, or read
// from a case file; and the outputs of running it.
//
// In: shape, dtype, seed. Out: tensors of standard normal elements, the query multiplied by
// `spread`, so that scaled scores have that standard deviation. Deterministic everywhere.
#pragma once

#include <poise/attention.h>
#include <poise/plan.h>

#include <string>
#include <vector>

#include "reference.h"
#include "support/rng.h"
#include "support/tensor_buffer.h"

namespace poise::test {

struct Shape {
  std::int64_t batch = 1, q_heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 1,
               value_dim = 1;
};

struct Problem {
  Shape shape;
  DType dtype = DType::f32;
  TensorBuffer query, key, value;
  TensorBuffer scale_per_head, mask, bias, diagonals, kv_lengths, q_lengths, alibi_slopes, sinks;
  Options options;  // what is not a tensor; call_options() adds the tensors

  Options call_options() const;
  std::string describe() const;  // shape and options on one line, for failure messages
  // The dtype of scale_per_head, alibi_slopes, sinks and of every output but out.
  DType number_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  // Every tensor, the absent ones too.
  std::vector<TensorBuffer*> tensors();
};

Problem make_problem(const Shape& shape, DType dtype, std::uint64_t seed, double spread = 1);

// What random_problem() may draw. Every option appears, alone or with others, some seeds with none.
struct RandomLimits {
  std::int64_t max_len = 130, max_dim = 70;
  bool layouts = true;     // any strides; else contiguous
  bool empty_rows = true;  // masks may leave rows without keys
};
Problem random_problem(std::uint64_t seed, DType dtype, const RandomLimits& limits = {});

// Problems that reach every rule about bits: Lk = 1091 keys are three splits of kSplit with an odd
// tail, Lq = 131 rows leave part of a vector. Plain, causal, and two with all options between them.
std::vector<Problem> long_problems(DType dtype);

// Options one by one, for tests that need a certain one. Values are drawn from rng.
void add_random_mask(Problem& problem, Rng& rng, double keep, const Extents& extents);
void add_random_bias(Problem& problem, Rng& rng, DType dtype, const Extents& extents,
                     double masked);
void add_dropout(Problem& problem, Rng& rng, double probability);
void add_alibi(Problem& problem);
void add_sinks(Problem& problem, Rng& rng);
// i32 lengths drawn from [0, bound].
TensorBuffer random_lengths(Rng& rng, std::int64_t batch, std::int64_t bound);

template <class T>
ReferenceResult<T> reference_of(const Problem& problem) {
  return reference_attention<T>(problem.query.view(), problem.key.view(), problem.value.view(),
                                problem.call_options());
}

// Which outputs a run asks for besides out.
struct Wish {
  bool columns = true;  // lse, lse_without_sink, max_score, row_max, row_sum, accumulator
  bool pairs = false;   // scores, capped, logits, weights
  StatsRequest stats{.level = StatsLevel::off};
  Layout layout = Layout::contiguous;
  Placement placement = Placement::heap;
  Executor* executor = nullptr;
  int threads = 1;
  Plan* plan = nullptr;  // whose memory the call works in; null = attention()
};

struct Outputs {
  Error error;
  TensorBuffer out, lse, lse_without_sink, max_score, row_max, row_sum, accumulator;
  TensorBuffer scores, capped, logits, weights;
  Stats stats;

  // Every output tensor with its name, the absent ones too.
  std::vector<std::pair<const char*, const TensorBuffer*>> tensors() const;
};

Outputs run(const Problem& problem, const Wish& wish = {});

// A plan for run(problem, wish).
Error make_plan(const Problem& problem, const Wish& wish, Plan* plan);

// "row_sum [0, 1, 5]: 1 against 1.0000001" for the first bit that differs between tensors that both
// runs wrote; empty when none does. out and the softmax state come first.
std::string first_difference(const Outputs& a, const Outputs& b);

}  // namespace poise::test
