// What the command reads: tensors by file name, numbers by list or file.
//
// In: specifications as typed: `q.npy`, `layers.npz:query`, `model.safetensors:layer.0.query`,
// `0.5,0.25`. Out: views that live as long as the Inputs object. Element types poise computes in
// are left alone; f16 and bf16 are widened to f32. Must not happen here: a rule on shapes, which
// are attention's to check.
#pragma once

#include <poise/tensor.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/open.h"

namespace poise::cli {

// A whole string as a number; nullopt when it is none.
std::optional<double> parse_number(std::string_view text);
std::optional<std::int64_t> parse_integer(std::string_view text);

class Inputs {
 public:
  // The tensor as stored. `option` names the argument in messages. Throws Failure with poise_io's
  // sentence, or when a file of several tensors is given without a name.
  ConstTensor tensor(const std::string& option, const std::string& specification);

  // Query, key or value: [B, H, L, D], or [H, L, D] as one batch; f16 and bf16 widened to f32.
  ConstTensor attention_tensor(const std::string& option, const std::string& specification);

  // The same elements in f32 when they are 16 bit, else the tensor itself.
  ConstTensor widened(const ConstTensor& tensor);

  // Numbers separated by commas, or a file's floats of rank 1 or 2, as a tensor of `dtype` (f32 or
  // f64), the type poise computes in.
  ConstTensor floats(const std::string& option, const std::string& specification, DType dtype);

  // Integers separated by commas, or a file's i32 or i64 tensor.
  ConstTensor integers(const std::string& option, const std::string& specification);

  // Every file opened so far: none of them may be an output.
  std::vector<std::string> paths() const;

 private:
  const io::File& open(const std::string& option, const std::string& path);

  // Lists, because views point into their elements.
  std::list<io::File> files_;
  std::list<std::vector<float>> singles_;
  std::list<std::vector<double>> doubles_;
  std::list<std::vector<std::int64_t>> integers_;
};

}  // namespace poise::cli
