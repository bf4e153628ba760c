// The dropout of a checked call as its kernels take it.
//
// In: Options::dropout, the batch and first head of a task. Out: a DropoutRule. The generator is in
// kernels/philox.h; what must not happen here: a rule about the input (check_options.cpp).
#pragma once

#include <poise/attention.h>

#include "kernels/kernels.h"
#include "kernels/philox.h"

#include <cstdint>

namespace poise {

inline DropoutRule dropout_rule(const Dropout& dropout, std::int64_t batch, std::int64_t head) {
  DropoutRule rule{};
  rule.on = dropout.probability > 0;
  if (!rule.on) return rule;
  const PhiloxKey key = dropout_key(dropout.seed, dropout.offset);
  rule.key[0] = key.word[0];
  rule.key[1] = key.word[1];
  rule.threshold = dropout_threshold(dropout.probability);
  rule.factor = dropout_factor(dropout.probability);
  rule.batch = static_cast<std::uint32_t>(dropout.batch_offset + batch);
  rule.head = static_cast<std::uint32_t>(dropout.head_offset + head);
  rule.query = static_cast<std::uint32_t>(dropout.query_offset);
  rule.first_key = dropout.key_offset;
  return rule;
}

}  // namespace poise
