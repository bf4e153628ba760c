// What the sources of the rules can say: every sentence of refusal, read from C++ text.
//
// In: source text, messages. Out: sentences with {} where something is put in, and whether a
// message is one of them. Nothing here knows which rules there are.
#pragma once

#include <string>
#include <vector>

namespace poise::test {

// Whether `message` is "[call] argument: " and the sentence with something in place of each {}.
bool says(const std::string& message, const std::string& sentence);

// The sentences of all calls refuse(ErrorCode::x, argument, "sentence", ...) in C++ source; an
// empty one where the third argument is not one string literal.
std::vector<std::string> sentences_of(const std::string& code);

}  // namespace poise::test
