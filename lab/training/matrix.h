// The matrices of the training model: Eigen, row-major, one row per token or per row of weights.
//
// In and out: nothing but names. Only the files of this folder see Eigen. Must not happen here: a
// computation. Eigen runs on the calling thread: a run is serial, and runs go side by side.
#pragma once

#define EIGEN_MPL2_ONLY
#include <Eigen/Core>

namespace poise::lab::training {

using Index = Eigen::Index;

// S is float in the experiment and double where gradients meet finite differences.
template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Some rows of a matrix, read or written in place.
template <class S>
using ConstRows = Eigen::Ref<const Matrix<S>>;
template <class S>
using Rows = Eigen::Ref<Matrix<S>>;

// What is learned, and the gradient of the loss with respect to it.
template <class S>
struct Parameter {
  Matrix<S> value, gradient;
};

}  // namespace poise::lab::training
