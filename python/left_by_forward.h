// What a forward call left for the gradients: out, and the state of each row's softmax.
//
// In: arrays as the forward call handed them out. Out: poise::Forward for each call of the library.
// What must not happen here: a choice between the state and lse; the library has the rule.
#pragma once

#include <poise/gradient.h>

#include "inputs.h"

namespace poise::python {

class LeftByForward {
 public:
  LeftByForward(const Inputs& in, nb::handle out, nb::handle row_max, nb::handle row_sum,
                nb::handle lse, const char* call) {
    if (out.is_none()) raise_type("[" + std::string(call) + "] out: None, expected an array");
    views_[0] = take_as(&arrays_[0], out, in, call, "out", true);
    views_[1] = take_as(&arrays_[1], row_max, in, call, "row_max", false);
    views_[2] = take_as(&arrays_[2], row_sum, in, call, "row_sum", false);
    views_[3] = take_as(&arrays_[3], lse, in, call, "lse", false);
  }

  void consider(Cut* cut) const {
    for (int i = 0; i < 4; ++i)
      if (arrays_[i].given()) cut->consider(views_[i]);
  }

  Forward part(const Cut& cut, std::int64_t index) const {
    Forward forward;
    ConstTensor* tensors[] = {&forward.out, &forward.row_max, &forward.row_sum, &forward.lse};
    for (int i = 0; i < 4; ++i)
      if (arrays_[i].given()) *tensors[i] = cut.part(views_[i], index);
    return forward;
  }

 private:
  Array arrays_[4];
  View views_[4];
};

}  // namespace poise::python
