// From tensor names and metadata to layers.
//
// A name is split at its last dot: label and part. Labels sort with runs of digits compared by
// value, so that layer.2 comes before layer.10. Metadata of a layer (<label>.scale) beats that of
// the whole file (scale).
#include "io/recording.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "io/message.h"

namespace poise::io {
namespace {

struct Part {
  std::string_view name, short_name;
  ConstTensor Layer::*tensor;
};
constexpr std::array kParts = {
    Part{"query", "q", &Layer::query},  Part{"key", "k", &Layer::key},
    Part{"value", "v", &Layer::value},  Part{"mask", "mask", &Layer::mask},
    Part{"bias", "bias", &Layer::bias},
};
constexpr std::size_t kRequiredParts = 3;  // query, key, value

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the leading run of digits off `text`, without its leading zeros.
std::string_view take_digits(std::string_view* text) {
  const auto end = std::find_if_not(text->begin(), text->end(), is_digit);
  std::string_view digits = text->substr(0, static_cast<std::size_t>(end - text->begin()));
  text->remove_prefix(digits.size());
  while (digits.starts_with('0')) digits.remove_prefix(1);
  return digits;
}

// Orders labels with numbers by value; labels that differ in leading zeros only, by their text.
bool label_before(const std::string& label_a, const std::string& label_b) {
  std::string_view a = label_a, b = label_b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_digits(&a), y = take_digits(&b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return label_a < label_b;
}

using Layers = std::map<std::string, Layer, bool (*)(const std::string&, const std::string&)>;

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

// Query, key and value as [B, H, L, D]: a batch of 1 goes in front of rank 3.
std::optional<ConstTensor> with_batch(const ConstTensor& t) {
  if (t.rank == 4) return t;
  if (t.rank != 3) return std::nullopt;
  return ConstTensor{t.data,
                     t.dtype,
                     4,
                     {1, t.extent(0), t.extent(1), t.extent(2)},
                     {0, t.stride(0), t.stride(1), t.stride(2)}};
}

// Puts the tensor into its place in the layer.
Error add_part(const File& file, const Entry& entry, const Part& part, Layer* layer) {
  const std::string who = "tensor " + in_quotes(entry.name);
  ConstTensor tensor;
  if (Error error = file.tensor(entry, &tensor)) return error;
  ConstTensor& place = layer->*part.tensor;
  if (place.given())
    return refuse(file.source(), "layer " + in_quotes(layer->label) + " has its " +
                                     std::string(part.name) + " twice");
  const bool wants_float = part.tensor != &Layer::mask;
  if (wants_float ? !is_float(tensor.dtype) : tensor.dtype != DType::boolean)
    return refuse(file.source(), who + " has dtype " + entry.dtype + ", expected " +
                                     (wants_float ? "F16, BF16, F32 or F64" : "BOOL"));
  if (part.tensor != &Layer::mask && part.tensor != &Layer::bias) {
    const std::optional<ConstTensor> batched = with_batch(tensor);
    if (!batched)
      return refuse(file.source(), who + " has shape " + shape_text(entry.shape) +
                                       ", expected [B, H, L, D] or [H, L, D]");
    tensor = *batched;
  }
  place = tensor;
  return {};
}

const std::string* find_metadata(const File& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? nullptr : &it->second;
}

template <class Number>
std::optional<Number> parse_whole(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end) return std::nullopt;
  return number;
}

// Scale and causal of one layer: its own metadata, else the file's.
Error read_options(const File& file, Layer* layer) {
  for (const std::string& prefix : {std::string(), layer->label + "."}) {
    if (const std::string* text = find_metadata(file, prefix + "scale")) {
      layer->scale = parse_whole<double>(*text);
      if (!layer->scale || !std::isfinite(*layer->scale))
        return refuse(file.source(), "metadata " + in_quotes(prefix + "scale") + " is " +
                                         in_quotes(*text) + ", expected a finite number");
    }
    if (const std::string* text = find_metadata(file, prefix + "causal")) {
      if (*text != "none" && *text != "top_left" && *text != "bottom_right" &&
          !parse_whole<std::int64_t>(*text))
        return refuse(file.source(), "metadata " + in_quotes(prefix + "causal") + " is " +
                                         in_quotes(*text) +
                                         ", expected none, top_left, bottom_right or an integer");
      layer->causal = *text;
    }
  }
  return {};
}

Error read_tokens(const File& file, std::vector<std::string>* tokens) {
  const std::string* text = find_metadata(file, "tokens");
  if (text == nullptr) return {};
  // What lies deeper than an element of the list is dropped while parsing, so that a text of nested
  // brackets costs neither stack nor memory; its outermost bracket stays, and is no string.
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    return depth <= 1;
  };
  const nlohmann::json list = nlohmann::json::parse(*text, shallow, /*allow_exceptions=*/false);
  const auto is_string = [](const nlohmann::json& token) { return token.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_string))
    return refuse(file.source(), "metadata \"tokens\" is no JSON list of strings");
  for (const nlohmann::json& token : list) tokens->push_back(token.get<std::string>());
  return {};
}

// Sorts every tensor of the file into its layer.
Error collect_layers(const File& file, Layers* layers) {
  for (const Entry& entry : file.entries()) {
    const std::size_t dot = entry.name.rfind('.');
    const std::string label = dot == std::string::npos ? "" : entry.name.substr(0, dot);
    const std::string_view suffix = std::string_view(entry.name).substr(dot + 1);
    const auto part = std::find_if(kParts.begin(), kParts.end(), [&](const Part& p) {
      return suffix == p.name || suffix == p.short_name;
    });
    if (label.empty() || part == kParts.end())
      return refuse(file.source(),
                    "tensor " + in_quotes(entry.name) +
                        " is not called <layer>.query, .key, .value, .mask or .bias");
    Layer& layer = (*layers)[label];
    layer.label = label;
    if (Error error = add_part(file, entry, *part, &layer)) return error;
  }
  return {};
}

}  // namespace

Error read_recording(const File& file, Recording* recording) {
  if (file.format() != Format::safetensors)
    return refuse(file.source(), std::string("is an ") + name(file.format()) +
                                     " file, a recording is a safetensors file");
  const std::string* version = find_metadata(file, "poise.recording");
  if (version != nullptr && *version != "1")
    return refuse(file.source(), "is a recording of version " + in_quotes(*version) +
                                     ", this build reads version \"1\"");
  Recording read;
  read.metadata = file.metadata();
  if (Error error = read_tokens(file, &read.tokens)) return error;
  Layers layers(label_before);
  if (Error error = collect_layers(file, &layers)) return error;
  if (layers.empty()) return refuse(file.source(), "has no layers");
  for (auto& [label, layer] : layers) {
    for (std::size_t i = 0; i < kRequiredParts; ++i)
      if (!(layer.*kParts[i].tensor).given())
        return refuse(file.source(),
                      "layer " + in_quotes(label) + " has no " + std::string(kParts[i].name));
    if (Error error = read_options(file, &layer)) return error;
    read.layers.push_back(std::move(layer));
  }
  *recording = std::move(read);
  return {};
}

}  // namespace poise::io
