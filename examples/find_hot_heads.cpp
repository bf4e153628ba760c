// Watching a training run: statistics of every step are merged, judged, and a hot head gets the
// factor for its query weights (QK-Clip).
//
// In: random queries whose second head grows from step to step, as a diverging head does. Out: a
// line per step with that head's largest score, then the verdicts over all steps.
#include <poise/poise.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <vector>

int main() {
  constexpr std::int64_t kHeads = 2, kLength = 128, kHeadDim = 64;
  constexpr int kSteps = 6;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& elements, float factor) {
    for (float& element : elements) element = factor * normal(random);
  };
  std::vector<float> query(kHeads * kLength * kHeadDim), key(query.size()), value(query.size()),
      out(query.size());
  fill(key, 1);
  fill(value, 1);

  poise::Stats all_steps;
  for (int step = 0; step < kSteps; ++step) {
    fill(query, 1);
    const float growth = std::exp2(static_cast<float>(step));
    for (std::size_t i = query.size() / 2; i < query.size(); ++i) query[i] *= growth;

    poise::Stats stats;
    stats.request.level = poise::StatsLevel::full;
    poise::Extras extras;
    extras.stats = &stats;
    const auto heads = [&](auto* data) {
      return poise::view(data, {1, kHeads, kLength, kHeadDim});
    };
    if (const auto error = poise::attention(heads(query.data()), heads(key.data()),
                                            heads(value.data()), heads(out.data()), {}, extras)) {
      std::cerr << error.message() << '\n';
      return 1;
    }
    std::printf("step %d: largest score of head 1 is %.1f\n", step, stats.heads[1].scores.max);
    if (step == 0) {
      all_steps = stats;
    } else if (const auto error = all_steps.merge(stats)) {
      std::cerr << error.message() << '\n';
      return 1;
    }
  }
  std::cout << poise::to_text(poise::judge(all_steps));
}
