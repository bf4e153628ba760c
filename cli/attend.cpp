// poise attend: attention on tensors from files.
//
// In: query, key and value from .npy, .npz or .safetensors files, options, what to write. Out: .npy
// files for out and lse, a JSON file of statistics; all of them or none. f16 and bf16 inputs are
// widened to f32 and the output is f32.
// Must not happen here: a rule on shapes or values, which are the library's.
#include <poise/attention.h>
#include <poise/report.h>

#include <map>
#include <memory>
#include <string>

#include "failure.h"
#include "inputs.h"
#include "options.h"
#include "output.h"
#include "output_tensor.h"
#include "verbs.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::string query, key, value, out, lse, stats, level = "core";
  int every = 1;
  AttentionOptions options;
};

const std::map<std::string, StatsLevel> kLevels{
    {"max", StatsLevel::max}, {"core", StatsLevel::core}, {"full", StatsLevel::full}};

void check_rank(const std::string& option, const ConstTensor& tensor) {
  if (tensor.rank != 4)
    throw Failure(option + ": rank " + std::to_string(tensor.rank) +
                  ", expected [B, H, L, D] or [H, L, D]");
}

int attend(const Arguments& arguments) {
  Inputs inputs;
  const ConstTensor query = inputs.attention_tensor("Q", arguments.query);
  const ConstTensor key = inputs.attention_tensor("K", arguments.key);
  const ConstTensor value = inputs.attention_tensor("V", arguments.value);
  // The extents are needed before attention() can check them, to make room for its output.
  check_rank("Q", query);
  check_rank("K", key);
  check_rank("V", value);
  const Options options =
      arguments.options.resolve(inputs, query.dtype, query.extent(2), key.extent(2));

  OutputFiles files;
  for (const std::string& path : inputs.paths()) files.protect(path);
  const bool wants_lse = !arguments.lse.empty(), wants_stats = !arguments.stats.empty();
  files.check("--out", arguments.out);
  if (wants_lse) files.check("--lse", arguments.lse);
  if (wants_stats) files.check("--stats", arguments.stats);

  const DType dtype = query.dtype == DType::f64 ? DType::f64 : DType::f32;
  const OutputTensor out(dtype,
                         {query.extent(0), query.extent(1), query.extent(2), value.extent(3)});
  const OutputTensor lse(dtype,
                         {query.extent(0), query.extent(1), wants_lse ? query.extent(2) : 0});
  Stats stats;
  stats.request.level = kLevels.at(arguments.level);
  stats.request.every = arguments.every;
  Extras extras;
  if (wants_stats) extras.stats = &stats;
  if (wants_lse) extras.lse = &lse.tensor();
  throw_if(attention(query, key, value, out.tensor(), options, extras));

  files.add_npy("--out", arguments.out, out.tensor());
  if (wants_lse) files.add_npy("--lse", arguments.lse, lse.tensor());
  if (wants_stats) files.add_text("--stats", arguments.stats, to_json(stats) + '\n');
  files.commit();
  return kExitDone;
}

}  // namespace

Run add_attend(CLI::App& app) {
  auto* verb = app.add_subcommand("attend", "Compute attention on tensors from files");
  auto arguments = std::make_shared<Arguments>();
  const std::string spelling = "F.npy, F.npz:NAME or F.safetensors:NAME; [B, H, L, D] or [H, L, D]";
  verb->add_option("Q", arguments->query, "query: " + spelling)->required();
  verb->add_option("K", arguments->key, "key: likewise")->required();
  verb->add_option("V", arguments->value, "value: likewise")->required();
  verb->add_option("--out", arguments->out, "where out goes, .npy")->required()->type_name("F");
  verb->add_option("--lse", arguments->lse, "where the log-sum-exp [B, Hq, Lq] goes, .npy")
      ->type_name("F");
  verb->add_option("--stats", arguments->stats, "where the statistics go, JSON")->type_name("F");
  verb->add_option("--level", arguments->level, "how much --stats measures: max, core or full")
      ->check(CLI::IsMember({"max", "core", "full"}))
      ->type_name("L");
  // The bound is that of StatsRequest::every.
  verb->add_option("--every", arguments->every, "measure every N-th lane vector of rows")
      ->check(whole_number(1, 1 << 20))
      ->type_name("N");
  arguments->options.add_to(*verb);
  verb->footer(
      "Examples:\n"
      "  poise attend q.npy k.npy v.npy --causal top_left --out o.npy --stats s.json\n"
      "  poise attend m.safetensors:q m.safetensors:k m.safetensors:v --scale 0.125 --out o.npy\n"
      "  poise attend q.npy k.npy v.npy --kv-lengths 80,125 --window 64,0 --causal bottom_right "
      "--out o.npy --lse lse.npy");
  return [arguments](const Session&) { return attend(*arguments); };
}

}  // namespace poise::cli
