// NumPy's .npz files: a zip archive of .npy members, stored or deflated.
//
// Every member's checksum is verified. A deflated member is decoded only after its own npy header,
// read from its first bytes, confirms the size that the archive claims, and only if that size is
// within deflate's reach of the compressed bytes; so a small file cannot ask for much memory.
// Source: APPNOTE.TXT 6.3 (zip), RFC 1951 (deflate), numpy.savez.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <span>
#include <string>

#include "io/contents.h"

namespace poise::io {

// No deflate stream decodes to more than 1032 times its size (zlib's technical notes: 258 bytes
// from 2 bits); the memory a file can take is bounded by this times its size.
inline constexpr std::int64_t kMaxInflation = 1032;

// Parses a whole archive; an entry is called like its member, without ".npy". `bytes` must outlive
// *contents. Errors: bad_file, the sentence starts with "[read] <source>: ".
Error parse_npz(std::span<const std::byte> bytes, const std::string& source, Contents* contents);

}  // namespace poise::io
