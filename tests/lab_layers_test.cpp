// The training model's layers against central differences, and Adam against its own recurrence.
// ctest-labels: unit
//
// In: random activations in float64. Out of scope: the library's own gradients, which have tests of
// their own; here it is seen that the layers around them hand everything on.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "lab/training/adam.h"
#include "lab/training/attention_layer.h"
#include "lab/training/layers.h"
#include "lab/training/model.h"
#include "lab/training/streams.h"

namespace poise::lab::training {
namespace {

Matrix<double> drawn(Index rows, Index columns, int place) {
  Random random(7, {static_cast<std::uint64_t>(place)});
  Matrix<double> matrix(rows, columns);
  for (Index i = 0; i < matrix.size(); ++i) matrix.data()[i] = random.normal();
  return matrix;
}

// Compares a gradient with central differences of `loss` in every element of `value` (or a spread
// of 40 of them). The step balances rounding against the third derivative.
void expect_gradient(Matrix<double>& value, const Matrix<double>& gradient,
                     const std::function<double()>& loss, const char* what) {
  ASSERT_EQ(value.rows(), gradient.rows()) << what;
  ASSERT_EQ(value.cols(), gradient.cols()) << what;
  constexpr double kStep = 1e-5;
  const Matrix<double> claimed = gradient;
  const double size = std::max(1e-3, claimed.cwiseAbs().maxCoeff());
  const Index stride = std::max<Index>(1, value.size() / 40);
  for (Index i = 0; i < value.size(); i += stride) {
    double& x = value.data()[i];
    const double before = x;
    x = before + kStep;
    const double up = loss();
    x = before - kStep;
    const double down = loss();
    x = before;
    EXPECT_NEAR(claimed.data()[i], (up - down) / (2 * kStep), 2e-8 * size + 1e-10)
        << what << ", element " << i;
  }
}

double inner(const Matrix<double>& a, const Matrix<double>& b) { return a.cwiseProduct(b).sum(); }

TEST(TrainingLayers, linear_hands_every_gradient_on) {
  Linear<double> linear(5, 4, Linear<double>::Bias::present, stream(1, Purpose::head_weight));
  std::vector<Parameter<double>*> parameters;
  linear.append_to(parameters);
  ASSERT_EQ(parameters.size(), 2u);
  Matrix<double> x = drawn(7, 5, 1), y;
  const Matrix<double> dy = drawn(7, 4, 2);
  const auto loss = [&] {
    linear.forward(x, y);
    return inner(y, dy);
  };
  // The input's gradient joins what is there.
  Matrix<double> dx = Matrix<double>::Ones(7, 5);
  linear.backward(x, dy, dx);
  expect_gradient(x, dx - Matrix<double>::Ones(7, 5), loss, "x");
  for (Parameter<double>* parameter : parameters)
    expect_gradient(parameter->value, parameter->gradient, loss, "parameter");
}

TEST(TrainingLayers, embedding_adds_up_tokens_that_come_twice) {
  Embedding<double> embedding(6, 3, stream(1, Purpose::key_embedding));
  std::vector<Parameter<double>*> parameters;
  embedding.append_to(parameters);
  const std::vector<int> first{2, 5, 2}, second{0, 2};
  const Matrix<double> d_first = drawn(3, 3, 1), d_second = drawn(2, 3, 2);
  const auto loss = [&] {
    Matrix<double> x = Matrix<double>::Zero(3, 3), z = Matrix<double>::Zero(2, 3);
    embedding.forward(first, x);
    embedding.forward(second, z);
    return inner(x, d_first) + inner(z, d_second);
  };
  embedding.backward({first, second}, {d_first, d_second});
  expect_gradient(parameters[0]->value, parameters[0]->gradient, loss, "table");
}

TEST(TrainingLayers, norms_hand_every_gradient_on_also_in_place) {
  for (const auto kind : {Norm<double>::Kind::layer, Norm<double>::Kind::rms}) {
    Norm<double> norm(kind, 4);
    std::vector<Parameter<double>*> parameters;
    norm.append_to(parameters);
    ASSERT_EQ(parameters.size(), kind == Norm<double>::Kind::layer ? 2u : 1u);
    for (Parameter<double>* parameter : parameters)
      parameter->value += 0.3 * drawn(1, 4, 3);  // a gain of 1 would hide a missing factor
    Matrix<double> x = drawn(5, 8, 1);           // two groups to a row
    const Matrix<double> dy = drawn(5, 8, 2);
    const auto loss = [&] {
      Matrix<double> y = x;
      norm.forward(y, y);
      return inner(y, dy);
    };
    loss();
    Matrix<double> dx = dy;
    norm.backward(dx, dx);
    expect_gradient(x, dx, loss, "x");
    for (Parameter<double>* parameter : parameters)
      expect_gradient(parameter->value, parameter->gradient, loss, "parameter");
  }
}

TEST(TrainingLayers, cross_entropy_is_minus_the_log_of_the_targets_weight) {
  Matrix<double> logits = drawn(6, 4, 1);
  const std::vector<int> targets{0, 3, 1, 1, 2, 0};
  double expected = 0, right = 0;
  for (Index i = 0; i < 6; ++i) {
    const Eigen::ArrayXd e = logits.row(i).array().exp();
    const int target = targets[static_cast<std::size_t>(i)];
    expected -= std::log(e(target) / e.sum()) / 6;
    right += e(target) >= e.maxCoeff() ? 1.0 / 6 : 0;
  }
  Matrix<double> gradient;
  const Score score = cross_entropy(logits, targets, &gradient);
  EXPECT_NEAR(score.loss, expected, 1e-12);
  EXPECT_NEAR(score.accuracy, right, 1e-12);
  const auto loss = [&] { return cross_entropy<double>(logits, targets, nullptr).loss; };
  expect_gradient(logits, gradient, loss, "logits");
}

class TrainingRules : public testing::TestWithParam<ScaleRule> {};

TEST_P(TrainingRules, attention_layer_hands_every_gradient_on) {
  const AttentionShape shape{6, 2, 5, 3};
  const TokenCounts counts{2, 3, 4};
  AttentionLayer<double> layer(shape, GetParam(), 3);
  std::vector<Parameter<double>*> parameters;
  layer.append_to(parameters);
  // Away from where a gain of 1 or a logarithm of 0 could hide a missing factor.
  for (std::size_t i = 4; i < parameters.size(); ++i)
    parameters[i]->value += 0.3 * drawn(1, parameters[i]->value.cols(), 9);
  Matrix<double> asking = drawn(6, 6, 1), asked = drawn(8, 6, 2), y;
  const Matrix<double> dy = drawn(6, 6, 3);
  const auto loss = [&] {
    layer.forward(asking, asked, counts, y, nullptr);
    return inner(y, dy);
  };
  loss();
  Matrix<double> d_asking = Matrix<double>::Zero(6, 6), d_asked = Matrix<double>::Zero(8, 6);
  layer.backward(asking, asked, counts, dy, d_asking, d_asked, nullptr);
  expect_gradient(asking, d_asking, loss, "rows that ask");
  expect_gradient(asked, d_asked, loss, "rows that are asked");
  for (Parameter<double>* parameter : parameters)
    expect_gradient(parameter->value, parameter->gradient, loss, "parameter");
}

TEST_P(TrainingRules, model_hands_the_loss_back_to_every_parameter) {
  BatchShape tokens;
  tokens.sequences = 2;
  tokens.pairs = 5;
  tokens.queries = 3;
  tokens.keys = 8;
  tokens.values = 4;
  Model<double> model({6, 2, 5, 3}, tokens, GetParam(), 4);
  Random random = stream(4, Purpose::training_data);
  const Batch batch = draw_batch(Task::recall, tokens, random);
  model.forward(batch);
  model.backward(batch);
  const auto loss = [&] { return model.forward(batch).loss; };
  const std::size_t extra = GetParam() == ScaleRule::learned   ? 1
                            : GetParam() == ScaleRule::qk_norm ? 2
                                                               : 0;
  const std::vector<Parameter<double>*> parameters = model.parameters();
  ASSERT_EQ(parameters.size(), 12 + extra);
  for (Parameter<double>* parameter : parameters)
    expect_gradient(parameter->value, parameter->gradient, loss, "parameter");
}

INSTANTIATE_TEST_SUITE_P(Every, TrainingRules, testing::ValuesIn(kScaleRules),
                         [](const auto& tested) { return std::to_string(tested.index); });

TEST(TrainingAdam, follows_the_recurrence_of_its_paper) {
  Parameter<double> parameter{Matrix<double>::Constant(1, 1, 0.5), Matrix<double>::Zero(1, 1)};
  const AdamSettings settings{0.1, 0.9, 0.99, 1e-8};
  Adam<double> adam({&parameter}, settings);
  double m = 0, v = 0, x = 0.5;
  const double gradients[] = {2, -1, 0.5};
  for (int t = 1; t <= 3; ++t) {
    const double g = gradients[t - 1];
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    x -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
    parameter.gradient(0, 0) = g;
    adam.step();
    EXPECT_NEAR(parameter.value(0, 0), x, 1e-13) << "step " << t;
  }
}

}  // namespace
}  // namespace poise::lab::training
