// From the members of a map to rows: the geometry of each layout stands here once.
//
//   apart      query [Hq*D], key [Hkv*D]
//   blocks     one tensor of outputs [all q | all k | all v]
//   per_head   one tensor, per key head [its q heads | its k | its v]
//   latent     query per head [nope | rope], key per head [nope | value]
// A label may hold one range, L{0..5}: the layer is written out for every number of it, which also
// replaces {} in its tensor names.
#include "io/clip_map.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "io/json_file.h"
#include "io/message.h"

namespace poise::io {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxDim = 1 << 20;  // rows of one head

// Longer names are refused: a range would repeat them thousands of times.
constexpr std::size_t kMaxName = 1024;

constexpr std::string_view kNumber = "{}";

struct Range {
  std::string before, after;
  std::int64_t first = 0, last = 0;
};

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The range of "L{0..5}"; nullopt where braces hold anything else.
std::optional<Range> range_of(std::string_view label) {
  const std::size_t open = label.find('{'), close = label.find('}');
  if (close == std::string_view::npos || open > close) return std::nullopt;
  const std::string_view inside = label.substr(open + 1, close - open - 1);
  const std::size_t dots = inside.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto first = number_in(inside.substr(0, dots)), last = number_in(inside.substr(dots + 2));
  if (!first || !last || *last < *first || *last - *first >= kMaxMapLayers) return std::nullopt;
  return Range{std::string(label.substr(0, open)), std::string(label.substr(close + 1)), *first,
               *last};
}

std::string with_number(std::string name, const std::string& number) {
  for (std::size_t at = name.find(kNumber); at != std::string::npos;
       at = name.find(kNumber, at + number.size()))
    name.replace(at, kNumber.size(), number);
  return name;
}

// The tensor names of a layer.
std::vector<std::string*> names_of(MapLayer& layer) {
  return {&layer.query.weight,    &layer.query.bias,        &layer.key.weight,
          &layer.key.bias,        &layer.query_norm.weight, &layer.query_norm.bias,
          &layer.key_norm.weight, &layer.key_norm.bias};
}

class LayerReader {
 public:
  LayerReader(const Json& json, const std::string& where, std::string* fault)
      : fault_(fault), members_(json, where, fault) {}

  MapLayer read() {
    layer_.label = members_.text("label", true);
    layer_.q_heads = members_.whole("q_heads", 1, kMaxHeads);
    layer_.kv_heads = members_.whole("kv_heads", 1, kMaxHeads, layer_.q_heads);
    if (layer_.q_heads % layer_.kv_heads != 0)
      members_.refuse(members_.path("kv_heads") + " is " + std::to_string(layer_.kv_heads) +
                      ", which does not divide q_heads " + std::to_string(layer_.q_heads));
    if (members_.has("mla")) {
      read_latent();
    } else {
      layer_.nope_dim = members_.whole("head_dim", 1, kMaxDim);
      members_.has("qkv") ? read_fused() : read_apart();
    }
    layer_.query_norm = gain("query_norm");
    layer_.key_norm = gain("key_norm");
    if (layer_.latent && !(layer_.query_norm.weight + layer_.key_norm.weight).empty())
      members_.refuse(members_.path("mla") + " goes with no query_norm and no key_norm");
    members_.refuse_unknown();
    return std::move(layer_);
  }

 private:
  // Names and layout of the projection under `key`; its rows are the caller's.
  Projection projection(const std::string& key) {
    Projection result;
    const Json* json = members_.object(key);
    if (json == nullptr) return result;
    Members members(*json, members_.path(key), fault_);
    result.weight = members.text("weight", true);
    result.bias = members.text("bias", false);
    const std::string layout = members.text("layout", true);
    if (layout != "out_in" && layout != "in_out")
      members.refuse(members.path("layout") + " is " + in_quotes(layout) +
                     ", expected \"out_in\" or \"in_out\"");
    result.in_out = layout == "in_out";
    members.refuse_unknown();
    return result;
  }

  Gain gain(const std::string& key) {
    Gain result;
    if (!members_.has(key)) return result;
    const Json* json = members_.object(key);
    if (json == nullptr) return result;
    Members members(*json, members_.path(key), fault_);
    result.weight = members.text("weight", true);
    result.bias = members.text("bias", false);
    members.refuse_unknown();
    return result;
  }

  void read_apart() {
    const std::int64_t dim = layer_.head_dim();
    layer_.query = projection("query");
    place(&layer_.query, layer_.q_heads * dim, 0, layer_.q_heads, 0, dim);
    layer_.key = projection("key");
    place(&layer_.key, layer_.kv_heads * dim, 0, layer_.kv_heads, 0, dim);
  }

  void read_fused() {
    const std::int64_t dim = layer_.head_dim(), heads = layer_.q_heads, keys = layer_.kv_heads;
    const std::int64_t value_dim = members_.whole("value_dim", 0, kMaxDim, dim);
    const std::string fused = members_.text("fused", true);
    layer_.query = layer_.key = projection("qkv");
    const std::int64_t rows = heads * dim + keys * (dim + value_dim);
    if (fused == "blocks") {
      place(&layer_.query, rows, 0, heads, 0, dim);
      place(&layer_.key, rows, heads * dim, keys, 0, dim);
    } else if (fused == "per_head") {
      const std::int64_t group = heads / keys, block = rows / keys;
      place(&layer_.query, rows, 0, group, block, dim);
      place(&layer_.key, rows, group * dim, 1, block, dim);
    } else {
      members_.refuse(members_.path("fused") + " is " + in_quotes(fused) +
                      ", expected \"blocks\" or \"per_head\"");
    }
  }

  void read_latent() {
    layer_.latent = true;
    const Json* json = members_.object("mla");
    if (json == nullptr) return;
    Members members(*json, members_.path("mla"), fault_);
    layer_.nope_dim = members.whole("nope_dim", 1, kMaxDim);
    layer_.rope_dim = members.whole("rope_dim", 0, kMaxDim);
    const std::int64_t value_dim = members.whole("value_dim", 0, kMaxDim);
    members.refuse_unknown();
    const std::int64_t heads = layer_.q_heads, dim = layer_.head_dim();
    if (layer_.kv_heads != heads)
      members_.refuse(members_.path("kv_heads") +
                      " differs from q_heads: with mla every head has keys of its own");
    layer_.query = projection("query");
    place(&layer_.query, heads * dim, 0, heads, 0, dim);
    layer_.key = projection("key");
    const std::int64_t block = layer_.nope_dim + value_dim;
    place(&layer_.key, heads * block, 0, 1, block, layer_.nope_dim);
  }

  static void place(Projection* projection, std::int64_t rows, std::int64_t first,
                    std::int64_t block_heads, std::int64_t block_rows, std::int64_t head_rows) {
    projection->rows = rows;
    projection->first = first;
    projection->block_heads = block_heads;
    projection->block_rows = block_rows;
    projection->head_rows = head_rows;
  }

  std::string* fault_;
  Members members_;
  MapLayer layer_;
};

// Appends the layer, or one for every number of its label's range.
void write_out(const MapLayer& layer, const std::string& where, std::string* fault,
               std::vector<MapLayer>* layers) {
  const auto refuse_label = [&](const std::string& why) {
    if (fault->empty()) *fault = where + ".label is " + in_quotes(layer.label) + why;
  };
  const bool one = layer.label.find_first_of("{}") == std::string::npos;
  if (layer.label.size() > kMaxName) return refuse_label(", which is too long");
  MapLayer copy = layer;
  for (const std::string* name : names_of(copy)) {
    if (name->size() > kMaxName)
      return refuse_label(", and its tensor name " + in_quotes(*name) + " is too long");
    if (one && name->find(kNumber) != std::string::npos)
      return refuse_label(" without a range, but its tensor name " + in_quotes(*name) + " has {}");
  }
  if (one) return layers->push_back(std::move(copy));
  const std::optional<Range> range = range_of(layer.label);
  if (!range)
    return refuse_label(", expected at most one range, as in \"L{0..5}\", of at most " +
                        std::to_string(kMaxMapLayers) + " layers");
  for (std::int64_t i = range->first; i <= range->last; ++i) {
    if (static_cast<std::int64_t>(layers->size()) >= kMaxMapLayers)
      return refuse_label(", and with it the map has more than " + std::to_string(kMaxMapLayers) +
                          " layers");
    const std::string number = std::to_string(i);
    MapLayer& next = layers->emplace_back(layer);
    next.label = range->before + number + range->after;
    for (std::string* name : names_of(next)) *name = with_number(*name, number);
  }
}

}  // namespace

Error read_clip_map(std::string_view text, const std::string& source,
                    std::vector<MapLayer>* layers) {
  Json json;
  if (Error error = parse_json(text, source, kMaxDepth, &json)) return error;
  std::string fault;
  Members map(json, "", &fault);
  if (map.text("schema", true) != "poise.map") map.refuse("schema is not \"poise.map\"");
  map.whole("version", 1, 1);
  const Json* list = map.array("layers");
  map.refuse_unknown();
  std::vector<MapLayer> read;
  for (std::size_t i = 0; fault.empty() && i < list->size(); ++i) {
    const std::string where = "layers[" + std::to_string(i) + "]";
    const MapLayer layer = LayerReader((*list)[i], where, &fault).read();
    if (fault.empty()) write_out(layer, where, &fault, &read);
  }
  if (fault.empty() && read.empty()) fault = "layers is empty";
  std::set<std::string_view> labels;
  for (const MapLayer& layer : read)
    if (!labels.insert(layer.label).second && fault.empty())
      fault = "layer " + in_quotes(layer.label) + " is there twice";
  if (!fault.empty()) return refuse(source, fault);
  *layers = std::move(read);
  return {};
}

}  // namespace poise::io
