// Watching a training run: every step's statistics go to a run log, one line a layer, and the log
// is read back to say who blows up, since when, and when it will be too late.
//
// In: the path of the log (run.jsonl by default); queries whose last head grows from step to step,
// as a diverging head does. Out: lines at the end of the log, and the verdict over time.
#include <poise/poise.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

int main(int count, char** words) {
  constexpr std::int64_t kHeads = 4, kLength = 128, kHeadDim = 64;
  const std::string path = count > 1 ? words[1] : "run.jsonl";
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> query(kHeads * kLength * kHeadDim), key(query.size()), value(query.size()),
      out(query.size());
  for (auto* tensor : {&query, &key, &value})
    for (float& element : *tensor) element = normal(random);
  const auto heads = [&](auto& data) {
    return poise::view(data.data(), {1, kHeads, kLength, kHeadDim});
  };

  std::ofstream log(path, std::ios::binary | std::ios::app);
  // A run that was killed may have left half a line: end it, so that it spoils no other.
  log << '\n';
  for (std::int64_t step = 0; step <= 1200; step += 100) {
    poise::Stats stats;
    stats.request.level = poise::StatsLevel::core;  // or every = 16, to measure one row in 16
    poise::Extras extras;
    extras.stats = &stats;
    if (const auto error =
            poise::attention(heads(query), heads(key), heads(value), heads(out), {}, extras)) {
      std::cerr << error.message() << '\n';
      return 1;
    }
    // One write a line: then several processes may append to one file.
    log << poise::log_line(step, "L0", stats) << std::flush;
    for (auto i = query.size() * (kHeads - 1) / kHeads; i < query.size(); ++i) query[i] *= 1.25f;
  }
  log.close();

  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  poise::RunLog run;
  poise::ReportInput input;
  input.title = path;
  if (const auto error = run.add(text, path)) {
    std::cerr << error.message() << '\n';
    return 1;
  }
  if (const auto error = poise::read_run(run, input)) {
    std::cerr << error.message() << '\n';
    return 1;
  }
  std::cout << poise::to_text(poise::build_report(input));
}
