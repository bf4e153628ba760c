// Zeros and -inf for rows that do not exist, element by element, by the caller's strides.
// The contract is in absent_rows.h.
#include "absent_rows.h"

#include <limits>

namespace poise {
namespace {

// Queries [begin, end) of the task's head number `head`.
template <class T>
void put_rows(const Column& column, std::int64_t head, std::int64_t begin, std::int64_t end, T x) {
  if (column.data == nullptr) return;
  T* data = static_cast<T*>(column.data) + head * column.head_stride;
  for (std::int64_t i = begin; i < end; ++i) data[i * column.stride] = x;
}

template <class T>
void put_rows(const Plane& plane, std::int64_t head, std::int64_t begin, std::int64_t end,
              std::int64_t columns, T x) {
  if (plane.data == nullptr) return;
  T* data = static_cast<T*>(plane.data) + head * plane.head_stride;
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      data[i * plane.row_stride + j * plane.col_stride] = x;
}

template <class T>
void put_numbers(const ForwardTask& task, std::int64_t head, std::int64_t begin, std::int64_t end) {
  const T none = -std::numeric_limits<T>::infinity();
  put_rows(task.accumulator, head, begin, end, task.value_dim, T(0));
  put_rows(task.lse, head, begin, end, none);
  put_rows(task.lse_without_sink, head, begin, end, none);
  put_rows(task.max_score, head, begin, end, none);
  put_rows(task.row_max, head, begin, end, none);
  put_rows(task.row_sum, head, begin, end, T(0));
}

template <class T>
void put_matrices(const MaterialiseTask& task, std::int64_t begin, std::int64_t end) {
  put_rows(task.scores, 0, begin, end, task.kv_total, T(0));
  put_rows(task.capped, 0, begin, end, task.kv_total, T(0));
  put_rows(task.logits, 0, begin, end, task.kv_total, -std::numeric_limits<T>::infinity());
  put_rows(task.weights, 0, begin, end, task.kv_total, T(0));
}

}  // namespace

// 0 is all bits zero in every format.
void write_zero_rows(const Plane& plane, std::int64_t head, std::int64_t begin, std::int64_t end,
                     std::int64_t columns, DType dtype) {
  if (size_bytes(dtype) == 2)
    put_rows(plane, head, begin, end, columns, std::uint16_t{0});
  else if (dtype == DType::f64)
    put_rows(plane, head, begin, end, columns, 0.0);
  else
    put_rows(plane, head, begin, end, columns, 0.0F);
}

void write_absent_rows(const ForwardTask& task, std::int64_t begin, std::int64_t end, DType dtype,
                       DType numbers) {
  for (std::int64_t head = 0; head < task.heads; ++head) {
    write_zero_rows(task.out, head, begin, end, task.value_dim, dtype);
    if (numbers == DType::f64)
      put_numbers<double>(task, head, begin, end);
    else
      put_numbers<float>(task, head, begin, end);
  }
}

void write_absent_rows(const MaterialiseTask& task, std::int64_t begin, std::int64_t end,
                       DType numbers) {
  if (numbers == DType::f64)
    put_matrices<double>(task, begin, end);
  else
    put_matrices<float>(task, begin, end);
}

}  // namespace poise
