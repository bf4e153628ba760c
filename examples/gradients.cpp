// One step of training an attention head: forward, backward, and how much gradient got through.
//
// In: random query, key and value, once with the scale 1/sqrt(head_dim) and once without. Out: the
// size of the gradient that reaches the queries, and the share of it that the softmax let through.
#include <poise/poise.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t kHeads = 4, kLength = 256, kHeadDim = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const std::size_t count = kHeads * kLength * kHeadDim;
  std::vector<float> query(count), key(count), value(count), dout(count);
  for (auto* tensor : {&query, &key, &value, &dout})
    for (float& element : *tensor) element = normal(random);
  std::vector<float> out(count), dq(count), dk(count), dv(count);
  std::vector<float> row_max(kHeads * kLength), row_sum(row_max.size());
  const auto heads = [&](auto& data) {
    return poise::view(data.data(), {1, kHeads, kLength, kHeadDim});
  };
  const auto rows = [&](auto& data) { return poise::view(data.data(), {1, kHeads, kLength}); };

  for (const double scale : {1 / std::sqrt(static_cast<double>(kHeadDim)), 1.0}) {
    const poise::Options options{.causal = poise::Causal::top_left(), .scale = scale};
    const poise::Tensor max = rows(row_max), sum = rows(row_sum);
    poise::Stats stats;
    stats.request.level = poise::StatsLevel::full;
    if (const auto error =
            poise::attention(heads(query), heads(key), heads(value), heads(out), options,
                             {.stats = &stats, .row_max = &max, .row_sum = &sum})) {
      std::cerr << error.message() << '\n';
      return 1;
    }
    // What forward left, the gradient of the loss, and where the gradients go.
    if (const auto error = poise::backward(
            heads(query), heads(key), heads(value),
            {.out = heads(out), .row_max = max, .row_sum = sum}, {.dout = heads(dout)},
            {.dq = heads(dq), .dk = heads(dk), .dv = heads(dv)}, options, &stats)) {
      std::cerr << error.message() << '\n';
      return 1;
    }
    double squares = 0;
    for (const float x : dq) squares += static_cast<double>(x) * static_cast<double>(x);
    std::printf("scale %.3f: |dq| %.1f, head 0 lets %.4f of its gradient through (expected %.4f)\n",
                scale, std::sqrt(squares), stats.heads[0].gradient.rms_transmission(),
                stats.heads[0].expected_transmission());
  }
}
