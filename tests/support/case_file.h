// Reads one file of tests/cases (schema: tests/cases/README.md) and judges results against it.
//
// In: a path. Out: the problem it describes, with the gradients that a backward pass starts from,
// and the expected outputs and gradients with their tolerances. Throws std::runtime_error with one
// sentence for what the schema does not know: a case is never half understood.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/gradient_problem.h"

namespace poise::test {

using Json = nlohmann::json;

struct CaseFile {
  std::string id, title, cls, dtype;
  Json json;
};
CaseFile read_case(const std::string& path);

// The problem of a case that holds q, k, v ("value" and "isolation" cases).
Problem case_problem(const CaseFile& file);
// The same with its dout and dlse; nothing when the case has no `do`, so no backward pass.
std::optional<GradientProblem> case_gradient_problem(const CaseFile& file);

// A tensor {shape, data} or {shape, gen}; the third form, {shape, seed}, is lcg64 of amplitude 1.
TensorBuffer case_tensor(const Json& json, DType dtype);
// A number, or one of the strings "nan", "inf", "-inf".
double case_number(const Json& json);

// Gradients by the names of `expect`, row-major: dq, dk, dv, ds_dense, dbias, dsink, dscale,
// dslopes. The last two in the shape of the option: dscale is one number where the scale is one.
using CaseGradients = std::map<std::string, std::vector<double>>;
CaseGradients case_gradients(const GradientProblem& g, const ReferenceGradients<double>& gradients);

// What a run or the definition says about a value case: row-major arrays. Without gradients, no
// expectation of one is looked at.
struct CaseResult {
  std::vector<double> out, lse, max_score;
  std::optional<CaseGradients> gradients{};
};
CaseResult reference_case_result(const CaseFile& file);
bool expects_gradients(const CaseFile& file);

// The verdict on a result.
struct Judgement {
  double worst = 0;   // the largest error over its tolerance; > 1 fails
  std::string where;  // the output and index of it, when it fails
};
Judgement judge_case(const CaseFile& file, const CaseResult& result);

}  // namespace poise::test
