// poise explain: what attention would do with a call of this shape, and why.
//
// In: a shape and the options of attention. Out: the library's own plan in words: kernel,
// instruction set, tiles, splits, tasks, threads, workspace, flops. No tensor data exists or is
// read, except the small tensors that options name.
// Must not happen here: computing attention.
#include <poise/attention.h>

#include <limits>
#include <memory>
#include <string>

#include "failure.h"
#include "inputs.h"
#include "options.h"
#include "output.h"
#include "verbs.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::string shape, dtype = "f32";
  std::int64_t value_dim = -1;
  AttentionOptions options;
};

int explain_shape(const Arguments& arguments) {
  const auto [batch, q_heads, kv_heads, q_len, kv_len, head_dim] =
      parse_shape("--shape", arguments.shape);
  const std::int64_t value_dim = arguments.value_dim < 0 ? head_dim : arguments.value_dim;
  const DType dtype = arguments.dtype == "f64" ? DType::f64 : DType::f32;
  const auto absent = [dtype](std::initializer_list<std::int64_t> extents) {
    return detail::contiguous_view<ConstTensor>(static_cast<const void*>(nullptr), dtype, extents);
  };
  Inputs inputs;
  const Options options = arguments.options.resolve(inputs, dtype, q_len, kv_len);
  std::string text;
  throw_if(explain(absent({batch, q_heads, q_len, head_dim}),
                   absent({batch, kv_heads, kv_len, head_dim}),
                   absent({batch, kv_heads, kv_len, value_dim}), options, &text));
  if (text.empty() || text.back() != '\n') text += '\n';
  print(text);
  return kExitDone;
}

}  // namespace

Run add_explain(CLI::App& app) {
  auto* verb = app.add_subcommand("explain", "Say what attention would do with a call, and why");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("--shape", arguments->shape, "batch, heads, lengths and head_dim of the call")
      ->type_name("B,Hq,Hkv,Lq,Lk,D")
      ->required();
  verb->add_option("--dv", arguments->value_dim, "head_dim of value, when it differs from D")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
  verb->add_option("--dtype", arguments->dtype, "f32 or f64")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->type_name("T");
  arguments->options.add_to(*verb);
  verb->footer(
      "Examples:\n"
      "  poise explain --shape 1,32,8,4096,4096,128 --causal bottom_right\n"
      "  poise explain --shape 8,16,16,1,2048,64 --window 512,0 --diagonal 2047");
  return [arguments](const Session&) { return explain_shape(*arguments); };
}

}  // namespace poise::cli
