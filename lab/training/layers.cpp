// The dense layers' forward and backward, for float and double.
//
// In and out: layers.h. Sums run in Eigen's own fixed order on one thread, so the same inputs give
// the same bits.
#include "lab/training/layers.h"

#include <cmath>

namespace poise::lab::training {
namespace {

template <class S>
Matrix<S> normal_matrix(Index rows, Index columns, double deviation, Random random) {
  Matrix<S> matrix(rows, columns);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) matrix(i, j) = static_cast<S>(deviation * random.normal());
  return matrix;
}

template <class S>
Parameter<S> parameter(Matrix<S> value) {
  Matrix<S> gradient = Matrix<S>::Zero(value.rows(), value.cols());
  return {std::move(value), std::move(gradient)};
}

}  // namespace

template <class S>
Linear<S>::Linear(Index in, Index out, Bias bias, Random random)
    : weight_(
          parameter(normal_matrix<S>(in, out, 1 / std::sqrt(static_cast<double>(in)), random))) {
  if (bias == Bias::present) bias_ = parameter<S>(Matrix<S>::Zero(1, out));
}

template <class S>
void Linear<S>::forward(const ConstRows<S>& x, Matrix<S>& y) const {
  y.resize(x.rows(), weight_.value.cols());
  y.noalias() = x * weight_.value;
  if (bias_.value.size() > 0) y.rowwise() += bias_.value.row(0);
}

template <class S>
void Linear<S>::backward(const ConstRows<S>& x, const ConstRows<S>& dy, Rows<S> dx) {
  weight_.gradient.noalias() = x.transpose() * dy;
  if (bias_.value.size() > 0) bias_.gradient = dy.colwise().sum();
  dx.noalias() += dy * weight_.value.transpose();
}

template <class S>
void Linear<S>::append_to(std::vector<Parameter<S>*>& parameters) {
  parameters.push_back(&weight_);
  if (bias_.value.size() > 0) parameters.push_back(&bias_);
}

template <class S>
Embedding<S>::Embedding(Index count, Index width, Random random)
    : table_(parameter(normal_matrix<S>(count, width, 1, random))) {}

template <class S>
void Embedding<S>::forward(const std::vector<int>& ids, Rows<S> x) const {
  for (Index i = 0; i < x.rows(); ++i)
    x.row(i) += table_.value.row(ids[static_cast<std::size_t>(i)]);
}

template <class S>
void Embedding<S>::backward(const std::vector<std::vector<int>>& ids,
                            const std::vector<ConstRows<S>>& dx) {
  table_.gradient.setZero();
  for (std::size_t part = 0; part < ids.size(); ++part)
    for (std::size_t i = 0; i < ids[part].size(); ++i)
      table_.gradient.row(ids[part][i]) += dx[part].row(static_cast<Index>(i));
}

template <class S>
void Embedding<S>::append_to(std::vector<Parameter<S>*>& parameters) {
  parameters.push_back(&table_);
}

template <class S>
Norm<S>::Norm(Kind kind, Index width)
    : kind_(kind), gain_(parameter<S>(Matrix<S>::Ones(1, width))) {
  if (kind == Kind::layer) bias_ = parameter<S>(Matrix<S>::Zero(1, width));
}

template <class S>
void Norm<S>::forward(const Matrix<S>& x, Matrix<S>& y) {
  const Index width = gain_.value.cols(), groups = x.size() / width;
  normal_ = Eigen::Map<const Matrix<S>>(x.data(), groups, width);
  if (kind_ == Kind::layer) normal_.colwise() -= normal_.rowwise().mean().eval();
  factor_ =
      (normal_.rowwise().squaredNorm().array() / static_cast<S>(width) + static_cast<S>(kEpsilon))
          .rsqrt();
  normal_.array().colwise() *= factor_.array().col(0);
  y.resize(x.rows(), x.cols());
  Eigen::Map<Matrix<S>> out(y.data(), groups, width);
  out = normal_.array().rowwise() * gain_.value.array().row(0);
  if (kind_ == Kind::layer) out.rowwise() += bias_.value.row(0);
}

template <class S>
void Norm<S>::backward(const Matrix<S>& dy, Matrix<S>& dx) {
  const Index width = normal_.cols(), groups = normal_.rows();
  const Eigen::Map<const Matrix<S>> given(dy.data(), groups, width);
  gain_.gradient = (given.array() * normal_.array()).colwise().sum();
  if (kind_ == Kind::layer) bias_.gradient = given.colwise().sum();
  Matrix<S> dnormal = given.array().rowwise() * gain_.value.array().row(0);
  const Matrix<S> along = (dnormal.array() * normal_.array()).rowwise().mean();
  if (kind_ == Kind::layer) dnormal.colwise() -= dnormal.rowwise().mean().eval();
  dnormal.array() -= normal_.array().colwise() * along.array().col(0);
  dx.resize(dy.rows(), dy.cols());
  Eigen::Map<Matrix<S>>(dx.data(), groups, width) =
      dnormal.array().colwise() * factor_.array().col(0);
}

template <class S>
void Norm<S>::append_to(std::vector<Parameter<S>*>& parameters) {
  parameters.push_back(&gain_);
  if (kind_ == Kind::layer) parameters.push_back(&bias_);
}

template <class S>
Score cross_entropy(const Matrix<S>& logits, const std::vector<int>& targets, Matrix<S>* dlogits) {
  const Index rows = logits.rows();
  Score score;
  if (dlogits != nullptr) dlogits->resize(rows, logits.cols());
  for (Index i = 0; i < rows; ++i) {
    const Index target = targets[static_cast<std::size_t>(i)];
    Index largest = 0;
    const S top = logits.row(i).maxCoeff(&largest);
    const auto shifted = logits.row(i).array() - top;
    const S sum = shifted.exp().sum();
    score.loss += static_cast<double>(std::log(sum) - shifted(target));
    score.accuracy += largest == target ? 1 : 0;
    if (dlogits == nullptr) continue;
    dlogits->row(i) = shifted.exp() / sum;
    (*dlogits)(i, target) -= 1;
    dlogits->row(i) /= static_cast<S>(rows);
  }
  score.loss /= static_cast<double>(rows);
  score.accuracy /= static_cast<double>(rows);
  return score;
}

template class Linear<float>;
template class Linear<double>;
template class Embedding<float>;
template class Embedding<double>;
template class Norm<float>;
template class Norm<double>;
template Score cross_entropy(const Matrix<float>&, const std::vector<int>&, Matrix<float>*);
template Score cross_entropy(const Matrix<double>&, const std::vector<int>&, Matrix<double>*);

}  // namespace poise::lab::training
