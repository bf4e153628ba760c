// Reads one file of tests/cases (schema: tests/cases/README.md) and judges results against it.
//
// In: a path. Out: the problem it describes, in f32 (values are representable in the case's own
// dtype), and the expected outputs with their tolerances. Throws std::runtime_error with one
// sentence for what the schema does not know: a case is never half understood.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "support/problem.h"

namespace poise::test {

using Json = nlohmann::json;

struct CaseFile {
  std::string id, title, cls, dtype;
  Json json;
};
CaseFile read_case(const std::string& path);

// The problem of a case that holds q, k, v ("value" and "isolation" cases).
Problem case_problem(const CaseFile& file);

// A tensor {shape, data} or {shape, gen}; the third form, {shape, seed}, is lcg64 of amplitude 1.
TensorBuffer case_tensor(const Json& json, DType dtype);
// A number, or one of the strings "nan", "inf", "-inf".
double case_number(const Json& json);

// What a run or the definition says about a value case: row-major arrays.
struct CaseResult {
  std::vector<double> out, lse, max_score;
};

// The verdict on a result.
struct Judgement {
  double worst = 0;   // the largest error over its tolerance; > 1 fails
  std::string where;  // the output and index of it, when it fails
};
Judgement judge_case(const CaseFile& file, const CaseResult& result);

}  // namespace poise::test
