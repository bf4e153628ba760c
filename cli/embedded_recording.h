// The recording that is linked into the command: data/rxnmapper.safetensors, byte for byte.
//
// In: nothing. Out: the bytes, alive as long as the program. Defined by cmake/embed_file.cmake.
#pragma once

#include <cstddef>
#include <span>

std::span<const std::byte> embedded_recording();
