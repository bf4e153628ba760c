// The materialised baseline: per head one sgemm, a scalar softmax and a second sgemm on OpenBLAS.
//
// In: requests on standard input (protocol.py). Out: answers on standard output. The scores of one
// head are the only buffer, made when the problem is loaded. Masked keys are left out of the
// softmax and get weight 0; the products cover the whole matrix, as materialising does. Must not
// happen here: OpenBLAS on an old core type where the CPU has AVX-512; versions() says which one it
// took and the driver compares.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>

#include "bench/peers/worker.h"

namespace {

class Blas : public peers::Contestant {
 public:
  std::map<std::string, std::string> versions() const override {
    return {{"openblas", openblas_get_config()}, {"openblas core", openblas_get_corename()}};
  }

  std::string load(const peers::Problem& problem, std::string* ran) override {
    if (problem.query.dtype != poise::DType::f32) return "sgemm is float32";
    if (problem.work != "forward") return "runs forward only";
    problem_ = &problem;
    out_ = problem.result("out");
    openblas_set_num_threads(problem.threads);
    scores_ =
        peers::aligned(problem.q_len * problem.kv_len * static_cast<std::int64_t>(sizeof(float)));
    *ran = "sgemm, scalar softmax, sgemm";
    return {};
  }

  poise::Error call() override {
    const peers::Problem& p = *problem_;
    const std::int64_t group = p.q_heads / p.kv_heads;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.q_heads; ++h) head(b, h, h / group);
    return {};
  }

 private:
  static const float* at(const poise::ConstTensor& tensor, std::int64_t b, std::int64_t h) {
    return static_cast<const float*>(tensor.data) + b * tensor.stride(0) + h * tensor.stride(1);
  }

  void head(std::int64_t b, std::int64_t h, std::int64_t kv_head) {
    const peers::Problem& p = *problem_;
    const auto size = [](std::int64_t n) { return static_cast<blasint>(n); };
    float* scores = reinterpret_cast<float*>(scores_.get());
    const float scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(p.q_len), size(p.kv_len),
                size(p.head_dim), scale, at(p.query, b, h), size(p.query.stride(2)),
                at(p.key, b, kv_head), size(p.key.stride(2)), 0, scores, size(p.kv_len));
    const std::int64_t length =
        p.lengths.given() ? static_cast<const std::int32_t*>(p.lengths.data)[b] : p.kv_len;
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      std::int64_t begin = 0, end = length;
      if (p.causal) {
        end = std::min(length, i + 1 + p.kv_len - p.q_len);
        if (p.window > 0) begin = std::max<std::int64_t>(0, end - p.window);
      }
      softmax(scores + i * p.kv_len, begin, end, p.kv_len);
    }
    float* out = static_cast<float*>(out_.data) + b * out_.stride(0) + h * out_.stride(1);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size(p.q_len), size(p.head_dim),
                size(p.kv_len), 1, scores, size(p.kv_len), at(p.value, b, kv_head),
                size(p.value.stride(2)), 0, out, size(out_.stride(2)));
  }

  // Weights of the keys [begin, end) of a row of n; the others get 0.
  static void softmax(float* row, std::int64_t begin, std::int64_t end, std::int64_t n) {
    const float largest = *std::max_element(row + begin, row + end);
    float sum = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      row[j] = std::exp(row[j] - largest);
      sum += row[j];
    }
    for (std::int64_t j = begin; j < end; ++j) row[j] /= sum;
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + n, 0.0f);
  }

  const peers::Problem* problem_ = nullptr;
  poise::Tensor out_;
  peers::Memory scores_;
};

}  // namespace

int main() {
  Blas contestant;
  peers::serve(contestant, std::cin, std::cout);
  return 0;
}
