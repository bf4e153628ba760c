// Reading sentences of refusal out of C++ source and finding them in messages.
//
// In: source files, messages. Out: GoogleTest failures that name the sentence nobody produced.
#include "support/sentences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace poise::test {
namespace {

// Whether `message` is "[call] argument: " and the sentence with something in place of each {}.
bool says(const std::string& message, const std::string& sentence) {
  std::size_t at = message.find("] ");
  at = message.find(": ", at) + 2;
  for (std::size_t begin = 0;;) {
    const std::size_t gap = std::min(sentence.find("{}", begin), sentence.size());
    const std::string piece = sentence.substr(begin, gap - begin);
    const bool last = gap == sentence.size();
    const std::size_t found = last && begin > 0 && message.size() >= piece.size()
                                  ? message.size() - piece.size()
                                  : message.find(piece, at);
    if (found == std::string::npos || found < at ||
        message.compare(found, piece.size(), piece) != 0)
      return false;
    if (begin == 0 && found != at) return false;
    at = found + piece.size();
    if (last) return at == message.size();
    begin = gap + 2;
  }
}

// The sentences of all calls refuse(ErrorCode::x, argument, "sentence", ...) in C++ source; an
// empty one where the third argument is not one string literal.
std::vector<std::string> sentences_of(const std::string& code) {
  const std::string start = "refuse(ErrorCode::";
  std::vector<std::string> sentences;
  for (std::size_t at = code.find(start); at != std::string::npos; at = code.find(start, at)) {
    int depth = 0, commas = 0;
    for (at += start.size(); commas < 2; ++at) {
      if (code[at] == '(' || code[at] == '{') ++depth;
      if (code[at] == ')' || code[at] == '}') --depth;
      if (code[at] == ',' && depth == 0) ++commas;
    }
    at = code.find_first_not_of(" \n", at);
    std::string sentence;
    if (code[at] == '"')
      for (++at; code[at] != '"'; ++at) sentence += code[at];
    const bool one_literal = code[code.find_first_not_of(" \n", at + 1)] == ',';
    sentences.push_back(one_literal ? sentence : "");
  }
  return sentences;
}

}  // namespace

void expect_every_sentence(const std::string& file, const std::vector<std::string>& messages) {
  std::ifstream source(POISE_SOURCE_DIR "/src/" + file);
  std::stringstream code;
  code << source.rdbuf();
  const std::vector<std::string> sentences = sentences_of(code.str());
  EXPECT_GE(sentences.size(), 2U) << file;
  for (const std::string& sentence : sentences) {
    EXPECT_NE(sentence, "") << file << " has a refusal this test cannot read";
    const bool covered = std::any_of(messages.begin(), messages.end(),
                                     [&](const std::string& m) { return says(m, sentence); });
    EXPECT_TRUE(covered) << file << ": no case for \"" << sentence << '"';
  }
}

}  // namespace poise::test
