// MAP.json: where a checkpoint keeps the query and key projections of each layer, head by head.
//
// In: the text of a map (schema poise.map, docs/clip.md). Out: layers by label, each with tensor
// names and the rows of every head. Rows are indices along the axis of a projection's outputs. What
// must not happen here: looking at a checkpoint, or at factors.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace poise::io {

inline constexpr std::int64_t kMaxMapLayers = 4096;  // after ranges in labels are written out

// The part of a weight (and bias) that makes one of q and k. Head h has its rows from
// first + (h / block_heads) * block_rows + (h % block_heads) * head_rows.
struct Projection {
  std::string weight, bias;  // tensor names; bias may be empty
  bool in_out = false;       // stored [in, out], outputs along the second axis; else [out, in]
  std::int64_t rows = 0;     // outputs of the whole tensor
  std::int64_t first = 0, block_heads = 1, block_rows = 0, head_rows = 0;

  std::int64_t row_of(std::int64_t head) const {
    return first + head / block_heads * block_rows + head % block_heads * head_rows;
  }
};

// Normalisation of q or k after its projection (QK-norm). Empty names where there is none.
struct Gain {
  std::string weight, bias;
};

struct MapLayer {
  std::string label;  // as the report spells it: "L0"
  std::int64_t q_heads = 0, kv_heads = 0;
  // Rows of a head: without position first (all of them, but for latent attention), then those of q
  // that are rotated against a key that all heads share.
  std::int64_t nope_dim = 0, rope_dim = 0;
  bool latent = false;  // multi-head latent attention (MLA)
  Projection query, key;
  Gain query_norm, key_norm;

  std::int64_t head_dim() const { return nope_dim + rope_dim; }
};

// Reads a map and writes ranges in labels out. Errors: bad_file, "[read] <source>: ...": no JSON,
// a key missing, unknown or twice, an unknown layout, a number out of range, a layer given twice.
// *layers changes on success only.
Error read_clip_map(std::string_view text, const std::string& source,
                    std::vector<MapLayer>* layers);

}  // namespace poise::io
