// The options of attention as the command line spells them, shared by `attend`, `explain` and, in
// part, `report` and `bench`.
//
// In: what was typed. Out: poise::Options. Rules on values are the library's, which names the
// argument; here is only what cannot be read at all, and the one thing the command line adds: a
// bare
// --causal, allowed when Lq = Lk makes it unambiguous. Must not happen here: computing.
#pragma once

#include <poise/attention.h>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include "inputs.h"

namespace poise::cli {

// --causal.
class CausalOption {
 public:
  void add_to(CLI::App& app);

  bool causal_given() const { return causal_->count() > 0; }
  // The mask for these lengths. Throws Failure when bare --causal is ambiguous.
  Causal causal(std::int64_t q_len, std::int64_t kv_len) const;

 private:
  CLI::Option* causal_ = nullptr;
  std::string causal_text_;
};

// --causal and --scale: what every verb that computes on the user's tensors takes.
class ScoreOptions : public CausalOption {
 public:
  void add_to(CLI::App& app);

  bool scale_given() const { return !scale_text_.empty(); }
  // Sets the scale of *options: one number, or one per head.
  void set_scale(Inputs& inputs, DType dtype, Options* options) const;

 private:
  std::string scale_text_;
};

// The sizes of a call, as `explain` and `bench` take them.
struct Shape {
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0;
};

// "B,Hq,Hkv,Lq,Lk,D", six whole numbers >= 0. `option` names the argument in the Failure.
Shape parse_shape(const std::string& option, const std::string& text);

// top_left, bottom_right, none or an offset. `option` names the argument in the Failure.
Causal parse_causal(const std::string& option, const std::string& text);
std::string causal_text(const Causal& causal);

// Checks of options that are numbers: decimal, in the range, no NaN. CLI11's own let NaN through,
// and take a whole number that is too large for the largest there is.
CLI::Validator whole_number(std::int64_t low, std::uint64_t high);
CLI::Validator real_number(double low, double high);

// Adds --threads.
void add_threads(CLI::App& app, int* threads);

// All options of attention.
class AttentionOptions {
 public:
  void add_to(CLI::App& app);
  // dtype: what q, k and v are computed in.
  Options resolve(Inputs& inputs, DType dtype, std::int64_t q_len, std::int64_t kv_len) const;

 private:
  ScoreOptions scores_;
  double softcap_ = 0;
  int threads_ = 0;
  std::string mask_, bias_, window_, diagonal_, kv_lengths_, q_lengths_, alibi_, sinks_;
};

}  // namespace poise::cli
