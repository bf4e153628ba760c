// The contestant's end of the driver's protocol (protocol.py) for programs in C++.
//
// A worker derives from Contestant and hands itself to serve(). Inputs are read from the file the
// driver names into memory of the worker's own, aligned to kAlignment, before load() sees them.
// Requests that cannot be carried out are answered with one sentence; nothing ends the process but
// the end of the input. The clock stands around call() and nothing else.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peers {

inline constexpr std::size_t kAlignment = 64;

// Memory for one tensor, owned; from aligned().
struct Free {
  void operator()(void* memory) const;
};
using Memory = std::unique_ptr<std::byte, Free>;

// `bytes` rounded up to kAlignment, aligned, not touched: what a call fills is counted as its
// memory (memory.py). Throws std::bad_alloc.
Memory aligned(std::int64_t bytes);

// One problem, fields as in shapes.py. Views are [B, H, L, D], strided when the layout is blhd;
// results are for the worker to fill, each in the layout and dtype of the input it is like.
struct Problem {
  std::string work;
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;
  int threads = 1;
  poise::ConstTensor query, key, value;
  poise::ConstTensor lengths;                                  // i32 [B], absent without padding
  std::map<std::string, poise::ConstTensor> reads;             // beside query, key and value
  std::vector<std::pair<std::string, poise::Tensor>> results;  // in the order of an answer
  std::vector<Memory> memory;                                  // behind the views

  // By name, absent when the request did not bring it.
  poise::ConstTensor read(const std::string& name) const;
  poise::Tensor result(const std::string& name) const;
};

class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual std::map<std::string, std::string> versions() const = 0;
  // Gets ready for a problem, which lives until the next load(). Returns the reason why it cannot
  // be run, empty when it can; *ran says what will run.
  virtual std::string load(const Problem& problem, std::string* ran) = 0;
  // Runs the problem once; an error is a sentence.
  virtual poise::Error call() = 0;
};

// Answers requests line by line until `in` ends.
void serve(Contestant& contestant, std::istream& in, std::ostream& answers);

}  // namespace peers
