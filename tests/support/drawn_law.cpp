// Laws put to RapidCheck, with the outcome given to GoogleTest.
//
// In: a law and its limits. Out: test failures. RapidCheck's own GoogleTest extension has no way to
// fix a seed per test, hence its internal entry point.
#include "support/drawn_law.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace poise::test {
namespace {

// RC_PARAMS is RapidCheck's own way to ask for a seed or for the steps of one failure.
bool asked_by_environment() { return std::getenv("RC_PARAMS") != nullptr; }

}  // namespace

void check_draws(std::string (*broken)(const Draw&), DType dtype, const DrawLimits& limits,
                 int cases, std::uint64_t seed, const std::string& label) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (!asked_by_environment()) {
    params.maxSuccess = cases;
    if (seed != 0) params.seed = seed + static_cast<std::uint64_t>(dtype);
  }
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const rc::detail::TestMetadata metadata{
      std::string(test->name()) + '/' + label + (label.empty() ? "" : "/") + name(dtype),
      test->name()};
  const auto result = rc::detail::checkTestable(
      [&] {
        const Draw draw = *draws(dtype, limits);
        const std::string found = broken(draw);
        if (!found.empty()) RC_FAIL(found);
      },
      metadata, params);
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  if (result.is<rc::detail::SuccessResult>()) {
    if (seed == 0)
      std::cout << metadata.id << ", seed " << params.seed << ": " << message.str() << "\n";
    return;
  }
  ADD_FAILURE() << metadata.id << ", seed " << params.seed << "\n" << message.str();
}

}  // namespace poise::test
