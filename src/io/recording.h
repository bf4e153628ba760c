// A recording: query, key and value of the attention layers of a model, for `poise report`.
//
// In: a safetensors File with tensors <label>.query, <label>.key, <label>.value (short: .q .k .v)
// and, optional, <label>.mask (bool) and <label>.bias (float). Metadata, all optional: model,
// licence, text, source, tokens (a JSON list of strings), scale and causal for every layer,
// <label>.scale and <label>.causal for one, poise.recording = "1" (any other version is refused).
// Out: views on the File, which must outlive the Recording. Shapes among q, k and v are attention's
// to check.
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/open.h"

namespace poise::io {

struct Layer {
  std::string label;            // "layer.0"
  ConstTensor query;            // [B, Hq, Lq, D]; a stored [Hq, Lq, D] has B = 1
  ConstTensor key;              // [B, Hkv, Lk, D]
  ConstTensor value;            // [B, Hkv, Lk, Dv]
  std::optional<double> scale;  // finite; absent = 1/sqrt(D)
  std::string causal = "none";  // none, top_left, bottom_right, or an int64 offset in decimal
  ConstTensor mask;             // boolean, broadcasts to [B, Hq, Lq, Lk]; not given() when absent
  ConstTensor bias;             // f16, bf16, f32 or f64, likewise
};

struct Recording {
  std::map<std::string, std::string> metadata;
  std::vector<std::string> tokens;  // empty when not recorded
  std::vector<Layer> layers;        // by label, digits compared as numbers: layer.2 before layer.10
};

// Reads the layers of an open file. Errors: bad_file, one sentence that starts "[read] <source>: ":
// not safetensors, a tensor that is no part of a layer, a part missing or given twice, a rank or
// dtype a part cannot have, a scale that is no finite number, an unknown causal, tokens that are no
// list of strings. *recording changes on success only.
Error read_recording(const File& file, Recording* recording);

}  // namespace poise::io
