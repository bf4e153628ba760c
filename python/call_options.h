// Everything that changes a result, as one Python object: the keyword arguments of the public
// functions, checked for their kind once and then used by forward, backward and jvp alike.
//
// In: Python values. Out: poise::Options for each call of the library. What must not happen here:
// rules on values or shapes; they are the library's. Per-head numbers (scale, sinks, slopes) of
// another float type than the computation's are converted here: they are few, and the library takes
// one type.
#pragma once

#include <poise/attention.h>

#include <memory>
#include <string>
#include <vector>

#include "array.h"
#include "cut.h"

namespace poise::python {

// The keyword arguments as they come.
struct OptionArguments {
  nb::handle causal, scale, softcap, attn_mask, mask, bias, window, diagonal, kv_lengths, q_lengths,
      alibi_slopes, sinks, threads, dropout_p, dropout_seed, dropout_offset;
};

class CallOptions {
 public:
  explicit CallOptions(const OptionArguments& arguments);

  // The bias, given as such or as an attn_mask of floats.
  const Array& bias() const { return mask_adds_ ? attn_mask_ : bias_; }
  bool mask_given() const { return mask_.given() || (attn_mask_.given() && !mask_adds_); }
  const Array& slopes() const { return alibi_slopes_; }
  const Array& scale_per_head() const { return scale_per_head_; }
  const Options& plain() const { return plain_; }

 private:
  friend class ResolvedOptions;
  Options plain_;  // without tensors and threads
  int threads_ = 0;
  bool mask_adds_ = false;
  Array attn_mask_, mask_, bias_, scale_per_head_, diagonals_, kv_lengths_, q_lengths_,
      alibi_slopes_, sinks_;
};

// The options of one call from Python: its threads, its type of numbers, its leading axes.
class ResolvedOptions {
 public:
  // `leads` is the number of leading axes of the views in `cut`, `lead` their extents. Masks and
  // biases of a call with several leading axes take part in the cut, so this comes before it is
  // used.
  ResolvedOptions(const CallOptions& options, DType numbers, const Axes& lead, int leads,
                  const char* call, Cut* cut);

  Options of(const Cut& cut, std::int64_t index) const;

 private:
  ConstTensor convert(const Array& array, DType numbers, std::vector<double>* memory);

  Options options_;
  bool several_;  // leading axes: masks are lifted
  View mask_, bias_;
  bool has_mask_ = false, has_bias_ = false;
  std::vector<double> scales_, slopes_, sinks_;  // f32 numbers use half of it
};

// Threads of calls that name none: what set_num_threads() said, else POISE_THREADS, else torch's
// number when torch is loaded, else the library's.
int num_threads();
void set_num_threads(int threads);

}  // namespace poise::python
