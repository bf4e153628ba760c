// What can be chosen about the training model and its optimiser.
//
// In and out: plain numbers. Must not happen here: Eigen; the command reads this header.
#pragma once

#include <cstdint>
#include <string_view>

namespace poise::lab::training {

// What the scores are multiplied by; D = head_dim.
//   one            1
//   inverse_sqrt   1/sqrt(D)
//   inverse        1/D
//   learned        exp(t)/sqrt(D), one t per head, 0 at the start
//   qk_norm        1/sqrt(D), after an RMS norm of each head's q and k with learned gains
enum class ScaleRule : std::uint8_t { one, inverse_sqrt, inverse, learned, qk_norm };
inline constexpr ScaleRule kScaleRules[] = {ScaleRule::one, ScaleRule::inverse_sqrt,
                                            ScaleRule::inverse, ScaleRule::learned,
                                            ScaleRule::qk_norm};
std::string_view name(ScaleRule rule);  // "1", "1/sqrt(D)", "1/D", "learned", "qk-norm"

struct AttentionShape {
  std::int64_t width = 64, heads = 2, head_dim = 64, value_dim = 32;  // width: of a token's row
};

struct AdamSettings {
  double learning_rate = 3e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

}  // namespace poise::lab::training
