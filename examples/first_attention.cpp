// The smallest useful program: attention over one's own memory, and a look at its scores.
//
// In: random query, key and value in the layout [batch, length, heads, head_dim] that most engines
// keep; poise reads it through strides, without a copy. Out: a line about the result, and the
// health of every head.
#include <poise/poise.h>

#include <iostream>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t kBatch = 1, kLength = 256, kHeads = 4, kHeadDim = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto make = [&] {
    std::vector<float> elements(kBatch * kLength * kHeads * kHeadDim);
    for (float& element : elements) element = normal(random);
    return elements;
  };
  const std::vector<float> query = make(), key = make(), value = make();
  std::vector<float> out(query.size());

  // [B, L, H, D] in memory, seen as the [B, H, L, D] that poise speaks.
  const auto bhld = [&](auto* data) {
    return poise::view(data, {kBatch, kLength, kHeads, kHeadDim}).transposed(1, 2);
  };
  poise::Stats stats;
  poise::Extras extras;
  extras.stats = &stats;
  poise::Options options;
  options.causal = poise::Causal::top_left();
  if (const auto error = poise::attention(bhld(query.data()), bhld(key.data()), bhld(value.data()),
                                          bhld(out.data()), options, extras)) {
    std::cerr << error.message() << '\n';
    return 1;
  }
  std::cout << "out[0] = " << out[0] << ", equal to value[0] = " << value[0]
            << ": the first query sees one key\n"
            << poise::to_text(poise::judge(stats));
}
