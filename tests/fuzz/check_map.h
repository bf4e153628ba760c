// What must hold for every map that the reader accepts, whatever text it was given.
//
// In: the text. Out: whether it was accepted; an abort when a promise of src/io/clip_map.h is
// broken: rows of a head that leave their tensor, names or layers without bound.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/check_contents.h"
#include "io/clip_map.h"

namespace poise::test {

inline void check_rows(const io::Projection& projection, std::int64_t heads, std::int64_t count) {
  require(!projection.weight.empty());
  for (const std::int64_t head : {std::int64_t{0}, heads / 2, heads - 1}) {
    const std::int64_t begin = projection.row_of(head);
    require(0 <= begin && begin + count <= projection.rows);
  }
}

inline bool check_map(std::string_view text) {
  std::vector<io::MapLayer> layers;
  if (const Error error = io::read_clip_map(text, "fuzz", &layers)) {
    require(layers.empty() && error.message().starts_with("[read] fuzz: "));
    require(error.message().find('\n') == std::string::npos);
    return false;
  }
  require(!layers.empty() && layers.size() <= static_cast<std::size_t>(io::kMaxMapLayers));
  for (const io::MapLayer& layer : layers) {
    require(layer.q_heads % layer.kv_heads == 0);
    check_rows(layer.query, layer.q_heads, layer.head_dim());
    check_rows(layer.key, layer.kv_heads, layer.nope_dim);
  }
  return true;
}

}  // namespace poise::test
