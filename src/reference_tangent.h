// The definition of attention's derivatives along a direction, and of its second derivatives.
//
// In: the tensors and Options of attention(), already checked, and a direction in which query, key
// and value move. Out: how out and lse move, and the gradients of what reference_backward() gives.
// In plain code as there; softcap, masks, sinks, ALiBi and per-head scales included, and a masked
// pair contributes nothing. Bias, sinks, scales and slopes stand still.
#pragma once

#include <poise/tangent.h>

#include "reference.h"

namespace poise {

template <class T>
struct ReferenceTangent {
  std::vector<T> out;  // [B, Hq, Lq, Dv]
  std::vector<T> lse;  // [B, Hq, Lq], of the lse that includes the sink; 0 where no key moves it
};

// Forward mode: d/dt of out and lse at query + t direction.query and so on, t = 0. Rows that are
// NaN or see +inf have NaN tangents. Cost: about twice that of reference_attention(). Instantiated
// for float, double and long double. Throws std::bad_alloc.
template <class T>
ReferenceTangent<T> reference_jvp(const ConstTensor& query, const ConstTensor& key,
                                  const ConstTensor& value, const Options& options,
                                  const Direction& direction);

// Row-major, in the shape of the tensor each is the gradient of.
template <class T>
struct ReferenceSecondGradients {
  std::vector<T> query, key, value;
  std::vector<T> dout, dlse;  // the tangents of out and lse along the direction
};

// Reverse mode over reverse mode. dquery, dkey and dvalue of reference_backward() depend on query,
// key, value, dout and dlse; `cotangent` holds the gradients of a loss with respect to the three.
// Out: the gradients of that loss,
//   sum cotangent.query dquery + sum cotangent.key dkey + sum cotangent.value dvalue
//     = sum dout tangent.out + sum dlse tangent.lse   (tangents along the cotangent)
// with respect to the five; for query, key and value a Hessian-vector product. dlse absent = 0.
// Cost: about four times that of reference_attention(). Instantiated and throws likewise.
template <class T>
ReferenceSecondGradients<T> reference_double_backward(
    const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
    const Options& options, const ConstTensor& dout, const ConstTensor& dlse,
    const Direction& cotangent);

}  // namespace poise
