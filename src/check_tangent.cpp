// The rules of jvp() and double_backward(): directions, tangents, second gradients.
// See check.h and check_gradient.h.
#include "check_gradient.h"

#include "check_options.h"

namespace poise {
namespace {

// query, key, value and options by forward's rules, in a dtype that derivatives are defined in.
Error check_call(const char* call, const ConstTensor& query, const ConstTensor& key,
                 const ConstTensor& value, const Forward& forward, const Options& options,
                 Problem* p) {
  if (Error error = check_inputs(call, query, key, value, true, p)) return error;
  if (Error error = check_dtype({call, "query"}, query, {DType::f32, DType::f64})) return error;
  if (Error error = check_options(call, options, true, p)) return error;
  return check_state(call, forward, *p);
}

struct InputLike {
  const char* name;
  ConstTensor view;
  const char* other;
  const ConstTensor& input;
  const char* letters;
};

Error check_all_like(const char* call, std::initializer_list<InputLike> views) {
  for (const InputLike& like : views)
    if (Error error =
            check_like({call, like.name}, like.view, like.other, like.input, like.letters))
      return error;
  return {};
}

constexpr const char* kQueryLetters = "[B, Hq, Lq, D]";
constexpr const char* kKeyLetters = "[B, Hkv, Lk, D]";
constexpr const char* kValueLetters = "[B, Hkv, Lk, Dv]";

}  // namespace

Error check_jvp(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
                const Forward& forward, const Direction& direction, const Tangent& tangent,
                const Options& options, TangentProblem* checked) {
  constexpr const char* kCall = "jvp";
  Problem& p = checked->problem;
  if (Error error = check_call(kCall, query, key, value, forward, options, &p)) return error;
  if (Error error = check_all_like(
          kCall, {{"direction.query", direction.query, "query", p.query, kQueryLetters},
                  {"direction.key", direction.key, "key", p.key, kKeyLetters},
                  {"direction.value", direction.value, "value", p.value, kValueLetters}}))
    return error;
  if (Error error = check_values({kCall, "tangent.out"}, tangent.out, p)) return error;
  if (tangent.lse.given())
    if (Error error = check_row_numbers({kCall, "tangent.lse"}, tangent.lse, p)) return error;
  checked->forward = forward;
  checked->direction = direction;
  checked->tangent = tangent;
  AliasCheck aliases(kCall, false);
  read_inputs(p, &aliases);
  read_forward(forward, &aliases);
  aliases.reads("direction.query", direction.query);
  aliases.reads("direction.key", direction.key);
  aliases.reads("direction.value", direction.value);
  aliases.writes("tangent.out", tangent.out);
  aliases.writes("tangent.lse", tangent.lse);
  return aliases.verdict();
}

Error check_double_backward(const ConstTensor& query, const ConstTensor& key,
                            const ConstTensor& value, const Forward& forward,
                            const OutGradient& gradient, const Direction& cotangent,
                            const SecondGradients& gradients, const Options& options,
                            BackwardProblem* checked) {
  constexpr const char* kCall = "double_backward";
  Problem& p = checked->problem;
  if (Error error = check_call(kCall, query, key, value, forward, options, &p)) return error;
  if (Error error = check_gradient(kCall, gradient, p)) return error;
  if (Error error = check_all_like(
          kCall, {{"cotangent.query", cotangent.query, "query", p.query, kQueryLetters},
                  {"cotangent.key", cotangent.key, "key", p.key, kKeyLetters},
                  {"cotangent.value", cotangent.value, "value", p.value, kValueLetters},
                  {"gradients.query", gradients.query, "query", p.query, kQueryLetters},
                  {"gradients.key", gradients.key, "key", p.key, kKeyLetters},
                  {"gradients.value", gradients.value, "value", p.value, kValueLetters}}))
    return error;
  if (gradients.dout.given())
    if (Error error = check_values({kCall, "gradients.dout"}, gradients.dout, p)) return error;
  if (gradients.dlse.given())
    if (Error error = check_row_numbers({kCall, "gradients.dlse"}, gradients.dlse, p)) return error;
  checked->forward = forward;
  checked->gradient = gradient;
  checked->direction = cotangent;
  checked->gradients = {};
  checked->gradients.dq = gradients.query;
  checked->gradients.dk = gradients.key;
  checked->gradients.dv = gradients.value;
  checked->out_tangent = gradients.dout;
  checked->lse_tangent = gradients.dlse;
  AliasCheck aliases(kCall, false);
  read_inputs(p, &aliases);
  read_forward(forward, &aliases);
  read_gradient(gradient, &aliases);
  aliases.reads("cotangent.query", cotangent.query);
  aliases.reads("cotangent.key", cotangent.key);
  aliases.reads("cotangent.value", cotangent.value);
  aliases.writes("gradients.query", gradients.query);
  aliases.writes("gradients.key", gradients.key);
  aliases.writes("gradients.value", gradients.value);
  aliases.writes("gradients.dout", gradients.dout);
  aliases.writes("gradients.dlse", gradients.dlse);
  return aliases.verdict();
}

}  // namespace poise
