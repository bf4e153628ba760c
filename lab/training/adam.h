// Adam (Kingma & Ba 2015, 1412.6980), with its bias correction and no weight decay.
//
// In: parameters with their gradients, always the same ones in the same order. Out: the parameters,
// moved. Must not happen here: a gradient.
#pragma once

#include <vector>

#include "lab/training/matrix.h"
#include "lab/training/settings.h"

namespace poise::lab::training {

template <class S>
class Adam {
 public:
  Adam(std::vector<Parameter<S>*> parameters, const AdamSettings& settings);
  void step();

 private:
  struct Moments {
    Matrix<S> first, second;
  };
  std::vector<Parameter<S>*> parameters_;
  std::vector<Moments> moments_;
  AdamSettings settings_;
  int steps_ = 0;
};

}  // namespace poise::lab::training
