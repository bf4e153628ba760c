// Case files: JSON to tensors and options, expectations to a verdict.
//
// In: files in the schema of tests/cases/README.md. Out: Problem, GradientProblem, Judgement. A key
// of `expect` that nothing here compares is refused when the file is read.
#include "support/case_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::set<std::string> kGradients = {"dq",    "dk",    "dv",     "ds_dense",
                                          "dbias", "dsink", "dscale", "dslopes"};

// What else `expect` may hold, by class: outputs, rules for them, and words for people.
const std::map<std::string, std::set<std::string>> kExpectations = {
    {"value", {"out", "lse", "max_score", "tol", "tol_by_row", "tol_meaning", "one_of"}},
    {"isolation", {"rows", "row1"}},
    {"error", {"error", "no_write"}},
    {"empty", {"no_crash"}},
    {"sweep", {"out", "lse"}}};

[[noreturn]] void refuse(const std::string& sentence) { throw std::runtime_error(sentence); }

Extents shape_of(const Json& json) { return json.at("shape").get<Extents>(); }

TensorBuffer generated(const Json& json, DType dtype) {
  const Json& gen = json.at("gen");
  const std::string kind = gen.at("kind");
  const Extents shape = shape_of(json);
  if (kind == "lcg64") {
    Lcg64 lcg(gen.at("seed"), gen.at("amp"));
    TensorBuffer tensor(dtype, shape);
    tensor.fill([&] { return lcg.next(); });
    return tensor;
  }
  if (kind == "const") {
    TensorBuffer tensor(dtype, shape);
    const double value = case_number(gen.at("value"));
    tensor.fill([&] { return value; });
    return tensor;
  }
  if (kind == "strided") {
    const Json& storage_gen = gen.at("storage_gen");
    const auto strides = gen.at("strides").get<Extents>();
    if (gen.at("offset") != 0) refuse("a strided tensor with an offset other than 0");
    Lcg64 lcg(storage_gen.at("seed"), storage_gen.at("amp"));
    std::vector<double> storage(storage_gen.at("count").get<std::size_t>());
    for (double& value : storage) value = lcg.next();
    TensorBuffer tensor(dtype, shape, strides);
    for (std::int64_t n = 0; n < tensor.count(); ++n) {
      std::int64_t rest = n, offset = 0;
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        offset += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
      }
      tensor.set(n, storage.at(static_cast<std::size_t>(offset)));
    }
    return tensor;
  }
  if (kind == "row_ranges_additive") {
    const Json& visible = gen.at("visible");
    TensorBuffer tensor(dtype, shape);
    const std::int64_t columns = shape.back();
    for (std::int64_t n = 0; n < tensor.count(); ++n) {
      const Json& range = visible.at(static_cast<std::size_t>(n / columns));
      const std::int64_t column = n % columns;
      tensor.set(n, column >= range.at(0) && column < range.at(1) ? 0 : -kInfinity);
    }
    return tensor;
  }
  refuse("generator " + kind + " is not one of lcg64, const, strided, row_ranges_additive");
}

TensorBuffer vector_of(const Json& numbers, DType dtype) {
  TensorBuffer tensor(dtype, Extents{static_cast<std::int64_t>(numbers.size())});
  std::size_t n = 0;
  tensor.fill([&] { return case_number(numbers.at(n++)); });
  return tensor;
}

void read_option(Problem& p, const std::string& key, const Json& value) {
  Options& o = p.options;
  if (key == "scale" && value.is_array())
    p.scale_per_head = vector_of(value, p.number_dtype());
  else if (key == "scale")
    o.scale = case_number(value);
  else if (key == "softcap")
    o.softcap = case_number(value);
  else if (key == "causal" && value == "top_left")
    o.causal = Causal::top_left();
  else if (key == "causal" && value == "bottom_right")
    o.causal = Causal::bottom_right();
  else if (key == "window_left")
    o.window_left = value;
  else if (key == "window_right")
    o.window_right = value;
  else if (key == "offset")
    o.diagonal = value.get<std::int64_t>();
  else if (key == "kv_len")
    p.kv_lengths = vector_of(value, DType::i64);
  else if (key == "sinks")
    p.sinks = vector_of(value, p.number_dtype());
  else if (key == "alibi_slopes")
    p.alibi_slopes = vector_of(value, p.number_dtype());
  else if (key == "align" && value == "bottom_right")
    return;  // what window and ALiBi do anyway, unless causal is top_left: see case_problem()
  else
    refuse("option " + key + " = " + value.dump() + " is not in the schema");
}

void check_expectations(const CaseFile& file) {
  if (!file.json.contains("expect") || file.json.at("expect").is_string()) return;
  const auto known = kExpectations.find(file.cls);
  if (known == kExpectations.end()) refuse("class " + file.cls + " has no expectations by name");
  for (const auto& [key, value] : file.json.at("expect").items())
    if (known->second.count(key) == 0 && (file.cls != "value" || kGradients.count(key) == 0))
      refuse("expect." + key + " is not in the schema");
}

// |got - expected| over its tolerance; exact agreement is 0 and a non-finite mismatch infinity.
double error_ratio(double got, double expected, double atol, double rtol) {
  if (std::isnan(expected)) return std::isnan(got) ? 0 : kInfinity;
  if (got == expected) return 0;
  if (!std::isfinite(got) || !std::isfinite(expected)) return kInfinity;
  const double tolerance = atol + rtol * std::fabs(expected);
  return tolerance > 0 ? std::fabs(got - expected) / tolerance : kInfinity;
}

void take(Judgement& verdict, double ratio, const std::string& output, std::size_t index,
          double got, double expected) {
  if (ratio <= verdict.worst) return;
  verdict.worst = ratio;
  if (ratio <= 1) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s[%zu] is %.9g, expected %.9g", output.c_str(), index, got,
                expected);
  verdict.where = text;
}

// Output elements [begin, end) of one array against the expectation.
void compare(Judgement& verdict, const std::string& output, const Json& expected_json,
             const Json& tolerance, const std::vector<double>& got, std::size_t begin,
             std::size_t end) {
  const double atol = tolerance.at(0), rtol = tolerance.at(1);
  for (std::size_t n = begin; n < end; ++n) {
    const double expected = case_number(expected_json.at("data").at(n));
    take(verdict, error_ratio(got[n], expected, atol, rtol), output, n, got[n], expected);
  }
}

// "finite, inside the hull of V": every component between the smallest and largest of its column.
void compare_with_hull(Judgement& verdict, const std::vector<double>& out, std::size_t row,
                       const TensorBuffer& value) {
  const auto dim = static_cast<std::size_t>(value.extent(3));
  constexpr double kRounding = 1e-6;  // relative, a few f32 units in the last place
  for (std::size_t c = 0; c < dim; ++c) {
    double low = kInfinity, high = -kInfinity;
    for (std::int64_t j = 0; j < value.extent(2); ++j) {
      const double v = value.at(value.index({0, 0, j, static_cast<std::int64_t>(c)}));
      low = std::min(low, v);
      high = std::max(high, v);
    }
    const double got = out[row * dim + c], slack = kRounding * std::max(-low, high);
    const bool inside = got >= low - slack && got <= high + slack;
    take(verdict, inside ? 0 : kInfinity, "out (hull)", row * dim + c, got, low);
  }
}

// A case judged row by row: {"0": "finite, inside the hull of V; ...", "1": {out, lse}}.
void compare_by_row(Judgement& verdict, const CaseFile& file, const CaseResult& result) {
  const Json& expect = file.json.at("expect");
  const TensorBuffer value = case_tensor(file.json.at("v"), DType::f32);
  const auto dim = static_cast<std::size_t>(value.extent(3));
  for (const auto& [key, rule] : expect.at("tol_by_row").items()) {
    const std::size_t row = std::stoul(key);
    if (rule.is_string()) {
      if (rule != "finite, inside the hull of V; lse rtol 1e-6")
        refuse("unknown rule " + rule.dump());
      compare_with_hull(verdict, result.out, row, value);
      compare(verdict, "lse", expect.at("lse"), Json{0.0, 1e-6}, result.lse, row, row + 1);
    } else {
      compare(verdict, "out", expect.at("out"), rule.at("out"), result.out, row * dim,
              (row + 1) * dim);
      compare(verdict, "lse", expect.at("lse"), rule.at("lse"), result.lse, row, row + 1);
    }
  }
}

}  // namespace

double case_number(const Json& json) {
  if (json.is_number()) return json;
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  refuse("number " + json.dump() + " is not a number, nan, inf or -inf");
}

TensorBuffer case_tensor(const Json& json, DType dtype) {
  if (json.contains("gen")) return generated(json, dtype);
  TensorBuffer tensor(dtype, shape_of(json));
  if (json.contains("seed")) {
    Lcg64 lcg(json.at("seed"), 1);
    tensor.fill([&] { return lcg.next(); });
    return tensor;
  }
  const Json& data = json.at("data");
  if (static_cast<std::int64_t>(data.size()) != tensor.count())
    refuse("a tensor has " + std::to_string(data.size()) + " numbers for " +
           std::to_string(tensor.count()) + " elements");
  std::size_t n = 0;
  tensor.fill([&] { return case_number(data.at(n++)); });
  return tensor;
}

CaseFile read_case(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) refuse("cannot open " + path);
  CaseFile file;
  file.json = Json::parse(stream);
  file.id = file.json.at("id");
  file.title = file.json.at("title");
  file.cls = file.json.at("cls");
  file.dtype = file.json.value("dtype", "f32");
  check_expectations(file);
  if (expects_gradients(file) && !file.json.contains("do"))
    refuse("gradients are expected, but `do` is not given");
  return file;
}

Problem case_problem(const CaseFile& file) {
  const Json& json = file.json;
  Problem p;
  p.dtype = file.dtype == "bf16" ? DType::bf16 : file.dtype == "f16" ? DType::f16 : DType::f32;
  p.query = case_tensor(json.at("q"), p.dtype);
  p.key = case_tensor(json.at("k"), p.dtype);
  p.value = case_tensor(json.at("v"), p.dtype);
  p.shape = {p.query.extent(0), p.query.extent(1), p.key.extent(1),  p.query.extent(2),
             p.key.extent(2),   p.query.extent(3), p.value.extent(3)};
  if (json.contains("mask")) {
    const std::string dtype = json.at("mask").at("dtype");
    if (dtype == "bool")
      p.mask = case_tensor(json.at("mask"), DType::boolean);
    else if (dtype == "f32")
      p.bias = case_tensor(json.at("mask"), DType::f32);
    else
      refuse("mask dtype " + dtype + " is neither bool nor f32");
  }
  for (const auto& [key, value] : json.at("options").items()) read_option(p, key, value);
  if (json.at("options").contains("align") && p.options.causal.kind() == Causal::Kind::top_left &&
      p.shape.q_len != p.shape.kv_len)
    refuse("align bottom_right contradicts causal top_left: a call has one diagonal");
  return p;
}

std::optional<GradientProblem> case_gradient_problem(const CaseFile& file) {
  if (!file.json.contains("do")) return {};
  GradientProblem g;
  g.problem = case_problem(file);
  g.dout = case_tensor(file.json.at("do"), g.problem.dtype);
  if (file.json.contains("dlse"))
    g.dlse = case_tensor(file.json.at("dlse"), g.problem.number_dtype());
  return g;
}

CaseGradients case_gradients(const GradientProblem& g,
                             const ReferenceGradients<double>& gradients) {
  CaseGradients named = {{"dq", gradients.dquery},     {"dk", gradients.dkey},
                         {"dv", gradients.dvalue},     {"ds_dense", gradients.dlogits},
                         {"dbias", gradients.dbias},   {"dsink", gradients.dsinks},
                         {"dscale", gradients.dscale}, {"dslopes", gradients.dslopes}};
  // Element n of what a call has per head, or per batch and head, goes to n % count.
  auto sum_to = [&](const char* name, std::size_t count) {
    std::vector<double> sums(count, 0.0);
    for (std::size_t n = 0; n < named[name].size(); ++n) sums[n % count] += named[name][n];
    named[name] = sums;
  };
  const Problem& p = g.problem;
  if (!p.scale_per_head.given()) sum_to("dscale", 1);
  if (p.alibi_slopes.view().rank == 1)
    sum_to("dslopes", static_cast<std::size_t>(p.alibi_slopes.count()));
  return named;
}

CaseResult reference_case_result(const CaseFile& file) {
  const std::optional<GradientProblem> g = case_gradient_problem(file);
  if (!g) {
    ReferenceResult<double> r = reference_of<double>(case_problem(file));
    return {std::move(r.out), std::move(r.lse), std::move(r.max_score)};
  }
  ReferenceGradients<double> gradients = reference_gradients_of<double>(*g);
  CaseGradients named = case_gradients(*g, gradients);
  ReferenceResult<double>& r = gradients.forward;
  return {std::move(r.out), std::move(r.lse), std::move(r.max_score), std::move(named)};
}

Judgement judge_case(const CaseFile& file, const CaseResult& result) {
  Judgement verdict;
  const Json& expect = file.json.at("expect");
  if (expect.contains("tol_by_row")) {
    compare_by_row(verdict, file, result);
    return verdict;
  }
  std::map<std::string, const std::vector<double>*> outputs = {
      {"out", &result.out}, {"lse", &result.lse}, {"max_score", &result.max_score}};
  if (result.gradients)
    for (const auto& [name, values] : *result.gradients) outputs[name] = &values;
  for (const auto& [key, expected] : expect.items()) {
    const auto output = outputs.find(key);
    if (output == outputs.end()) {
      if (result.gradients && kGradients.count(key) > 0) refuse(key + " was not computed");
      continue;
    }
    const std::vector<double>& got = *output->second;
    if (expected.at("data").size() != got.size())
      refuse(key + " has " + std::to_string(got.size()) + " elements, expected " +
             std::to_string(expected.at("data").size()));
    compare(verdict, key, expected, expect.at("tol").at(key), got, 0, got.size());
  }
  return verdict;
}

bool expects_gradients(const CaseFile& file) {
  if (!file.json.contains("expect") || !file.json.at("expect").is_object()) return false;
  for (const auto& [key, value] : file.json.at("expect").items())
    if (kGradients.count(key) > 0) return true;
  return false;
}

}  // namespace poise::test
