// The options of attention as the command line spells them.
//
// In: what was typed. Out: poise::Options whose tensors live in an Inputs. Only what cannot be read
// is refused here; values are checked by the library, in one place for every caller.
// Must not happen here: computing.
#include "options.h"

#include "failure.h"

#include <charconv>
#include <cstdio>
#include <iterator>
#include <optional>

namespace poise::cli {

Causal parse_causal(const std::string& option, const std::string& text) {
  if (text == "none") return Causal::none();
  if (text == "top_left") return Causal::top_left();
  if (text == "bottom_right") return Causal::bottom_right();
  if (const auto offset = parse_integer(text)) return Causal::offset(*offset);
  throw usage_failure(option + ": '" + text +
                      "' is none of top_left, bottom_right, none and a whole number");
}

std::string causal_text(const Causal& causal) {
  switch (causal.kind()) {
    case Causal::Kind::none:
      return "none";
    case Causal::Kind::top_left:
      return "top_left";
    case Causal::Kind::bottom_right:
      return "bottom_right";
    case Causal::Kind::offset:
      return std::to_string(causal.diagonal());
  }
  return "none";
}

Shape parse_shape(const std::string& option, const std::string& text) {
  Shape shape;
  std::int64_t* const extents[] = {&shape.batch, &shape.q_heads, &shape.kv_heads,
                                   &shape.q_len, &shape.kv_len,  &shape.head_dim};
  std::string_view rest = text;
  for (std::size_t i = 0; i < std::size(extents); ++i) {
    const std::size_t comma = rest.find(',');
    const auto extent = parse_integer(rest.substr(0, comma));
    const bool last = i + 1 == std::size(extents);
    if (!extent || *extent < 0 || (comma == std::string_view::npos) != last)
      throw usage_failure(
          option + ": '" + text +
          "' is not six whole numbers B,Hq,Hkv,Lq,Lk,D, as in 1,32,8,4096,4096,128");
    *extents[i] = *extent;
    if (!last) rest.remove_prefix(comma + 1);
  }
  return shape;
}

void CausalOption::add_to(CLI::App& app) {
  causal_ =
      app.add_option("--causal", causal_text_,
                     "key j is visible to query i when j <= i + diagonal: top_left (0), "
                     "bottom_right (keys - queries) or a number; alone only when there are as "
                     "many keys as queries")
          ->expected(0, 1)
          ->type_name("ALIGN");
}

void ScoreOptions::add_to(CLI::App& app) {
  CausalOption::add_to(app);
  app.add_option(
         "--scale", scale_text_,
         "factor on q.k, instead of 1/sqrt(D): a number, or one per head (a list or a file)")
      ->type_name("S");
}

Causal CausalOption::causal(std::int64_t q_len, std::int64_t kv_len) const {
  if (!causal_given()) return Causal::none();
  if (!causal_text_.empty()) return parse_causal("--causal", causal_text_);
  if (q_len != kv_len)
    throw usage_failure("--causal: with " + std::to_string(q_len) + " queries and " +
                        std::to_string(kv_len) +
                        " keys say which alignment: top_left, bottom_right or a number");
  return Causal::top_left();
}

void ScoreOptions::set_scale(Inputs& inputs, DType dtype, Options* options) const {
  if (!scale_given()) return;
  options->scale.reset();
  options->scale_per_head = {};
  if (const auto number = parse_number(scale_text_)) {
    options->scale = *number;
  } else {
    options->scale_per_head = inputs.floats("--scale", scale_text_, dtype);
  }
}

CLI::Validator whole_number(std::int64_t low, std::uint64_t high) {
  const std::string range = "from " + std::to_string(low) + " to " + std::to_string(high);
  return {[=](std::string& text) -> std::string {
            const char* end = text.data() + text.size();
            std::int64_t value = 0;
            std::uint64_t size = 0;  // of a number that is not negative
            const auto read = std::from_chars(text.data(), end, value);
            const auto read_size = std::from_chars(text.data(), end, size);
            const bool negative = read.ec == std::errc() && read.ptr == end && value < 0;
            const bool positive = read_size.ec == std::errc() && read_size.ptr == end;
            const bool octal = text.size() > 1 && text[0] == '0';  // to CLI11, which reads it then
            const bool fits = negative ? value >= low
                                       : positive && size <= high &&
                                             (low <= 0 || size >= static_cast<std::uint64_t>(low));
            return fits && !octal ? "" : "'" + text + "' is not a whole number " + range;
          },
          "INT " + range};
}

CLI::Validator real_number(double low, double high) {
  const auto spelled = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  const std::string range = "from " + spelled(low) + " to " + spelled(high);
  return {[=](std::string& text) -> std::string {
            const std::optional<double> value = parse_number(text);
            return value && *value >= low && *value <= high
                       ? ""
                       : "'" + text + "' is not a number " + range;
          },
          "FLOAT " + range};
}

void add_threads(CLI::App& app, int* threads) {
  // The bound is that of POISE_THREADS.
  app.add_option("--threads", *threads, "threads to use, instead of all this process may have")
      ->check(whole_number(1, 4096))
      ->type_name("N");
}

void AttentionOptions::add_to(CLI::App& app) {
  scores_.add_to(app);
  app.add_option("--softcap", softcap_, "c tanh(score / c) after scaling; 0 = off")->type_name("C");
  app.add_option("--mask", mask_, "bool tensor, true = may attend; broadcasts to [B, Hq, Lq, Lk]")
      ->type_name("F");
  app.add_option("--bias", bias_, "float tensor added to the scores, -inf = masked; broadcasts too")
      ->type_name("F");
  app.add_option("--window", window_, "keep keys from L before to R after the diagonal; -1 = open")
      ->type_name("L,R");
  app.add_option("--diagonal", diagonal_,
                 "where the diagonal lies for causal, window and ALiBi: a number, or one per batch")
      ->type_name("N");
  app.add_option("--kv-lengths", kv_lengths_, "keys of each batch: a list or a file")
      ->type_name("N,..|F");
  app.add_option("--q-lengths", q_lengths_, "queries of each batch: a list or a file")
      ->type_name("N,..|F");
  app.add_option("--alibi", alibi_, "slope of each head: a list or a file [Hq] or [B, Hq]")
      ->type_name("S,..|F");
  app.add_option("--sinks", sinks_, "extra logit of each head in the denominator: a list or a file")
      ->type_name("S,..|F");
  add_threads(app, &threads_);
}

Options AttentionOptions::resolve(Inputs& inputs, DType dtype, std::int64_t q_len,
                                  std::int64_t kv_len) const {
  Options options;
  options.causal = scores_.causal(q_len, kv_len);
  scores_.set_scale(inputs, dtype, &options);
  options.softcap = softcap_;
  options.threads = threads_;
  if (!mask_.empty()) options.mask = inputs.tensor("--mask", mask_);
  if (!bias_.empty()) options.bias = inputs.tensor("--bias", bias_);
  if (!window_.empty()) {
    const std::size_t comma = window_.find(',');
    const auto left = parse_integer(std::string_view(window_).substr(0, comma));
    const auto right = comma == std::string::npos
                           ? std::nullopt
                           : parse_integer(std::string_view(window_).substr(comma + 1));
    if (!left || !right)
      throw usage_failure("--window: '" + window_ + "' is not of the form L,R, as in 128,0");
    options.window_left = *left;
    options.window_right = *right;
  }
  if (!diagonal_.empty()) {
    if (const auto number = parse_integer(diagonal_)) {
      options.diagonal = *number;
    } else {
      options.diagonals = inputs.integers("--diagonal", diagonal_);
    }
  }
  if (!kv_lengths_.empty()) options.kv_lengths = inputs.integers("--kv-lengths", kv_lengths_);
  if (!q_lengths_.empty()) options.q_lengths = inputs.integers("--q-lengths", q_lengths_);
  if (!alibi_.empty()) options.alibi_slopes = inputs.floats("--alibi", alibi_, dtype);
  if (!sinks_.empty()) options.sinks = inputs.floats("--sinks", sinks_, dtype);
  return options;
}

}  // namespace poise::cli
