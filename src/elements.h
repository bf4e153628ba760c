// Element types as the public views name them and as the kernels do.
// Not here: conversions of values (kernels/convert.inl, widen.h).
#pragma once

#include <poise/tensor.h>

#include "kernels/kernels.h"

namespace poise {

// The kernels' name of a dtype that tensors of numbers or masks may have.
inline Element element_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Element::f64;
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    case DType::boolean:
      return Element::boolean;
    case DType::f32:
    case DType::i32:
    case DType::i64:
      break;
  }
  return Element::f32;
}

}  // namespace poise
