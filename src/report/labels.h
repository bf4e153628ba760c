// Names of layers as the faces print them: modules of large models have names that fill a line.
// In: valid UTF-8. Out: at most so many characters, different wherever the names differ. Not here:
// what JSON and logs carry, which is the whole name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace poise::report {

// The names as they are when all fit into max_characters. Otherwise what all begin with, and where
// that is not enough what all end with, becomes an ellipsis, cut at a separator (. / : _ - or a
// space); "model.decoder.layers.0.attn" becomes "…layers.0.attn". The part of a name that is still
// too long loses its beginning.
std::vector<std::string> short_labels(const std::vector<std::string>& names,
                                      std::size_t max_characters);

}  // namespace poise::report
