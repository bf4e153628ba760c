// The sentences of poise_io: one form for every refusal, and names from files made safe to print.
//
// In: a source (the path, or the label of a memory buffer), a sentence. Out: poise::Error with code
// bad_file and the text "[read] q.npy: ...". A name out of a hostile file must not reach a terminal
// as it is (escape sequences, newlines, megabytes): a name goes through in_quotes(), a sentence
// through on_one_line().
#pragma once

#include <poise/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace poise::io {

// "[read] <source>: <sentence>", code bad_file.
Error refuse(const std::string& source, const std::string& sentence);

// The name in double quotes; control characters, quotes, backslashes and non-ASCII bytes that are
// not UTF-8 as \xNN; cut after 80 bytes with "...".
std::string in_quotes(std::string_view name);

// The text as a terminal may see it: control characters (C0, DEL, C1, line ends too) and bytes that
// are not UTF-8 as \xNN, the rest unchanged.
std::string on_one_line(std::string_view text);

// "[2, 8, 56, 32]".
std::string shape_text(const std::vector<std::int64_t>& shape);

// Whether the bytes are well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

// What a tensor may be called in a file: UTF-8 without NUL. Returns the sentence that says why not,
// empty when the name is fine.
std::string name_fault(std::string_view name);

}  // namespace poise::io
