// One step of Adam.
//
// In and out: adam.h.
#include "lab/training/adam.h"

#include <cmath>
#include <utility>

namespace poise::lab::training {

template <class S>
Adam<S>::Adam(std::vector<Parameter<S>*> parameters, const AdamSettings& settings)
    : parameters_(std::move(parameters)), settings_(settings) {
  for (const Parameter<S>* parameter : parameters_) {
    const Matrix<S> zero = Matrix<S>::Zero(parameter->value.rows(), parameter->value.cols());
    moments_.push_back({zero, zero});
  }
}

template <class S>
void Adam<S>::step() {
  ++steps_;
  const auto beta1 = static_cast<S>(settings_.beta1), beta2 = static_cast<S>(settings_.beta2);
  const double unbias1 = 1 - std::pow(settings_.beta1, steps_);
  const double unbias2 = 1 - std::pow(settings_.beta2, steps_);
  const auto rate = static_cast<S>(settings_.learning_rate / unbias1);
  const auto root = static_cast<S>(1 / std::sqrt(unbias2));
  const auto epsilon = static_cast<S>(settings_.epsilon);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto gradient = parameters_[i]->gradient.array();
    auto first = moments_[i].first.array(), second = moments_[i].second.array();
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient.square();
    parameters_[i]->value.array() -= rate * first / (second.sqrt() * root + epsilon);
  }
}

template class Adam<float>;
template class Adam<double>;

}  // namespace poise::lab::training
