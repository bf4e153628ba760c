// Whether every sentence of refusal in a file of rules has been produced by a test.
//
// In: the name of a source file, the messages that tests expect. Out: GoogleTest failures.
#pragma once

#include <string>
#include <vector>

namespace poise::test {

// `file`: under src. A refusal whose sentence is not one string literal fails, too.
void expect_every_sentence(const std::string& file, const std::vector<std::string>& messages);

}  // namespace poise::test
