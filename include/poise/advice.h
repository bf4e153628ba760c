// Advice: by which numbers to multiply which weights of a head, so that its largest score falls to
// τ (QK-clip) and the spread of its scores within a row to its target.
//
// In: what was measured of the head's scores, and how its weights are laid out (WeightRule). Out: a
// factor of the scores, and the same factor split over scale, query and key. Scores are
// scale · q·k, so a factor f of them may be applied to any of the three, or √f to two of them.
// Nothing here sees a tensor. QK-clip: Kimi K2, arXiv 2507.20534, section 2.1.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace poise {

// Which weights may carry a factor of one head's scores without touching another head's.
enum class WeightRule : std::uint8_t {
  mha,    // every query head has a key head of its own: √f to the head's rows of Wq and of Wk
  gqa,    // its key head serves other query heads too: f to the head's rows of Wq, Wk stays
  mla,    // latent attention: √f to the no-position parts of q and k, f to the rotary part of q;
          // the rotary key is shared by all heads and stays
  scale,  // layers share Wq and Wk: f to the head's scale, the weights stay
};
const char* name(WeightRule rule);  // "mha", "gqa", "mla", "scale"

// mha or gqa by the numbers of heads (Hq a multiple of Hkv; Hkv = 0 reads as Hkv = Hq), scale when
// layers share weights. mla is never told from numbers of heads: ask for it.
WeightRule weight_rule(std::int64_t q_heads, std::int64_t kv_heads, bool layers_share_weights);

// What to multiply by what; 1 = leave it. The product over scale, query and key is the factor of
// the scores. query and key are rows of the head's Wq and Wk (and their bias entries, or the head's
// gain where q and k are normalised after Wq and Wk); query_rope and key_rope its rotary rows,
// which differ from the others for mla only.
struct WeightFactors {
  double scale = 1, query = 1, key = 1, query_rope = 1, key_rope = 1;
};
// factor: >= 0, NaN where no number helps (then what would carry it is NaN).
WeightFactors split_factor(double factor, WeightRule rule);

// QK-clip's γ = min(1, τ/max_score); 1 where max_score is not above 0, or NaN. tau > 0.
double clip_gamma(double max_score, double tau);

// What brings a spread to its target: target/sigma; NaN where that is no finite number, as when all
// scores of a median row are the same.
double spread_factor(double sigma, double target_sigma);

// What advice is made from; NaN where not measured.
struct ScoreFacts {
  WeightRule rule = WeightRule::mha;
  std::int64_t group = 1;  // query heads that share the key head
  double scale = 0;        // the scale the head ran with
  double max_score = std::numeric_limits<double>::quiet_NaN();  // S⁺, signed
  double tau = 100;                                             // the largest score allowed
  double sigma = std::numeric_limits<double>::quiet_NaN();      // median within-row deviation; of a
                                                                // head with a sink, without it
  double target_sigma = std::numeric_limits<double>::quiet_NaN();
};

struct HeadAdvice {
  ScoreFacts facts;
  double gamma = 1;    // of QK-clip
  WeightFactors clip;  // γ, split
  double spread_factor = std::numeric_limits<double>::quiet_NaN();
  WeightFactors spread;  // the same, split: instead of the scale
};
// Cost: a few arithmetic operations; never fails.
HeadAdvice advise(const ScoreFacts& facts);

// "QK-clip, γ = 0.25: Wq and Wk of this head × 0.5 each". UTF-8, no full stop.
std::string clip_text(const HeadAdvice& advice);
// "scale × 0.131 (0.125 → 0.0164) brings σ to 1.99, and so do Wq and Wk × 0.362 each".
// Only where spread_factor is finite.
std::string spread_text(const HeadAdvice& advice);
// Both, as one or two sentences: "Largest score 400, τ = 100: QK-clip, ... . Spread σ ... .". What
// needs no number says so.
std::string to_text(const HeadAdvice& advice);

}  // namespace poise
