// merge() and finish(): partial results over disjoint keys joined after the fact.
//
// States join by the kernels' own merge, bit for bit; (out, lse) pairs by the same formula on
// normalised rows, in double, within rounding. What must not happen here: a rule about the input
// (check.cpp).
#include <poise/attention.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "check.h"
#include "elements.h"
#include "float_control.h"
#include "isa/dispatch.h"

namespace poise {
namespace {

template <class Data>
auto* row_of(const BasicTensor<Data>& t, std::int64_t b, std::int64_t head) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const char, char>;
  return static_cast<Data*>(static_cast<Byte*>(t.data) +
                            (b * t.stride(0) + head * t.stride(1)) * size_bytes(t.dtype));
}

Column column(const Tensor& t, std::int64_t b, std::int64_t head) {
  if (!t.given() || t.data == nullptr) return {};
  return {row_of(t, b, head), t.stride(2), 0};
}

Plane plane(const Tensor& t, std::int64_t b, std::int64_t head) {
  if (t.data == nullptr) return {};
  return {row_of(t, b, head), t.stride(2), t.stride(3), 0};
}

const KernelSet* kernel_set(DType dtype, Error* error) {
  const Kernels* kernels = active_kernels(error);
  if (kernels == nullptr) return nullptr;
  return dtype == DType::f64 ? &kernels->f64 : &kernels->f32;
}

template <class Data>
double read(const BasicTensor<Data>& t, std::int64_t b, std::int64_t head, std::int64_t offset) {
  const void* row = row_of(t, b, head);
  return t.dtype == DType::f64 ? static_cast<const double*>(row)[offset]
                               : static_cast<double>(static_cast<const float*>(row)[offset]);
}

void write(const Tensor& t, std::int64_t b, std::int64_t head, std::int64_t offset, double x) {
  void* row = row_of(t, b, head);
  if (t.dtype == DType::f64)
    static_cast<double*>(row)[offset] = x;
  else
    static_cast<float*>(row)[offset] = static_cast<float>(x);
}

// Shares of a and b in the joined row, and its lse. An empty side has share 0, so that whatever its
// out holds does not matter.
struct Shares {
  double a, b, lse;
};
Shares shares(double lse_a, double lse_b) {
  const double none = -std::numeric_limits<double>::infinity();
  if (lse_a == none && lse_b == none) return {0, 0, none};
  if (lse_a == none) return {0, 1, lse_b};
  if (lse_b == none) return {1, 0, lse_a};
  const double m = lse_a > lse_b ? lse_a : lse_b;
  const double ea = std::exp(lse_a - m), eb = std::exp(lse_b - m);
  return {ea / (ea + eb), eb / (ea + eb), m + std::log(ea + eb)};
}

}  // namespace

Error merge(const ConstTensor& out_a, const ConstTensor& lse_a, const ConstTensor& out_b,
            const ConstTensor& lse_b, const Tensor& out, const Tensor& lse) {
  const FloatControl control;
  RowsProblem p;
  if (Error error = check_merge(out_a, lse_a, out_b, lse_b, out, lse, &p)) return error;
  if (p.heads * p.q_len == 0) return {};  // whatever batch a view claims
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        const Shares s =
            shares(read(lse_a, b, h, i * lse_a.stride(2)), read(lse_b, b, h, i * lse_b.stride(2)));
        for (std::int64_t c = 0; c < p.value_dim; ++c) {
          const double x = read(out_a, b, h, i * out_a.stride(2) + c * out_a.stride(3));
          const double y = read(out_b, b, h, i * out_b.stride(2) + c * out_b.stride(3));
          const double joined = (s.a == 0 ? 0 : s.a * x) + (s.b == 0 ? 0 : s.b * y);
          write(out, b, h, i * out.stride(2) + c * out.stride(3), joined);
        }
        write(lse, b, h, i * lse.stride(2), s.lse);
      }
  return {};
}

Error merge(const State& whole, const State& part) {
  const FloatControl control;
  RowsProblem p;
  if (Error error = check_merge(whole, part, &p)) return error;
  Error error;
  const KernelSet* kernels = kernel_set(p.dtype, &error);
  if (kernels == nullptr) return error;
  if (p.heads * p.q_len == 0) return {};
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      kernels->merge({.whole_max = column(whole.row_max, b, h),
                      .whole_sum = column(whole.row_sum, b, h),
                      .part_max = column(part.row_max, b, h),
                      .part_sum = column(part.row_sum, b, h),
                      .whole = plane(whole.accumulator, b, h),
                      .part = plane(part.accumulator, b, h),
                      .rows = p.q_len,
                      .value_dim = p.value_dim});
  return {};
}

Error finish(const State& state, const Tensor& out, const Tensor& lse) {
  const FloatControl control;
  RowsProblem p;
  if (Error error = check_finish(state, out, lse, &p)) return error;
  Error error;
  const KernelSet* kernels = kernel_set(p.dtype, &error);
  if (kernels == nullptr) return error;
  if (p.heads * p.q_len == 0) return {};
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      kernels->finish({.row_max = column(state.row_max, b, h),
                       .row_sum = column(state.row_sum, b, h),
                       .lse = column(lse, b, h),
                       .accumulator = plane(state.accumulator, b, h),
                       .out = plane(out, b, h),
                       .out_element = element_of(out.dtype),
                       .rows = p.q_len,
                       .value_dim = p.value_dim});
  return {};
}

}  // namespace poise
