// The JSON header of a safetensors file, event by event.
//
// In: the header's text. Out: metadata and tensor descriptions in the order of the text; ranges are
// not yet compared with the data. The text is parsed as a stream (nlohmann's SAX): duplicate keys
// are seen, nesting deeper than the format's own three levels is refused at once, and numbers must
// be written as non-negative integers.
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/contents.h"

namespace poise::io {

struct DescribedTensor {
  std::string name;
  StoredType type{};
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // from the start of the data
};

struct SafetensorsHeader {
  std::vector<DescribedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Errors: bad_file, the sentence starts with "[read] <source>: ".
Error parse_safetensors_header(std::string_view text, const std::string& source,
                               SafetensorsHeader* header);

// How the format spells a dtype of poise.
const char* safetensors_spelling(DType dtype);

}  // namespace poise::io
