// Problems drawn by RapidCheck over the whole option space, so that a failing one shrinks.
//
// In: a dtype and limits. Out: a generator of Draws, plain numbers that shrink towards the smallest
// problem without options, and the Problem a Draw stands for. The numbers inside tensors come from
// Draw::seed. Lengths crowd where kernels change their ways: few query rows, keys around multiples
// of kBlock and kSplit.
#pragma once

#include <rapidcheck.h>

#include <iosfwd>

#include "support/problem.h"

namespace poise::test {

// One point of the option space. Every field's smallest value means "nothing special".
struct Draw {
  DType dtype = DType::f32;
  int batch = 1, kv_heads = 1, group = 1;
  int q_len = 1, kv_len = 1, head_dim = 1, value_dim = 1;
  int causal = 0;                         // none, top_left, bottom_right, offset
  int diagonal = 0;                       // not given, one for all, one per batch entry
  int offset = 0;                         // what a given diagonal is, from Lk - Lq
  int window_left = 0, window_right = 0;  // 0 = open, else one more than the window
  int mask = 0, bias = 0;                 // 0 = none, else 1 + bits of the axes that broadcast
  int bias_dtype = 0;                     // f32, f64, f16, bf16
  int softcap = 0, scale = 0, spread = 0, dropout = 0;  // places in lists of values
  bool kv_lengths = false, q_lengths = false, alibi = false, sinks = false;
  int layouts = 0;  // 0 = contiguous, 1 = blhd throughout, else a seed of one layout per tensor
  int poison = 0;   // 0 = finite; else keys with NaN or infinity in key or value
  int way = 0;      // for the law: which of its ways to run the problem another time
  int seed = 0;
};

struct DrawLimits {
  int max_rows = 80;  // query rows of one kv head
  int max_q_len = 80;
  int max_kv_len = 2600;
  int max_dim = 130;
  bool poison = true;     // NaN and infinity may lie in key and value
  bool q_lengths = true;  // false: every row is computed
};

rc::Gen<Draw> draws(DType dtype, const DrawLimits& limits);

Problem problem_of(const Draw& draw);

std::ostream& operator<<(std::ostream& os, const Draw& draw);  // fields that are not the default

}  // namespace poise::test
