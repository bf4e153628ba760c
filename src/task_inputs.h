// Views and options of a checked call as the kernels take them: planes, columns, plain numbers.
//
// In: a Problem, a batch, neighbouring heads of one key head. Out: the inputs of a ForwardTask, and
// pointers to single heads of any view. What must not happen here: a look at tensor elements.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "check.h"
#include "dropout.h"
#include "elements.h"
#include "kernels/kernels.h"

namespace poise {

// The plane of one head of a [B, H, rows, columns] view, and of those after it.
template <class PlaneType, class View>
PlaneType plane_of(const View& view, std::int64_t b, std::int64_t head) {
  PlaneType plane{};
  if (!view.given() || view.data == nullptr) return plane;
  using Byte = std::conditional_t<std::is_same_v<View, ConstTensor>, const char, char>;
  plane.data = static_cast<Byte*>(view.data) +
               (b * view.stride(0) + head * view.stride(1)) * size_bytes(view.dtype);
  plane.head_stride = view.stride(1);
  plane.row_stride = view.stride(2);
  plane.col_stride = view.stride(3);
  return plane;
}

inline Plane plane_of(const Tensor* view, std::int64_t b, std::int64_t head) {
  return view == nullptr ? Plane{} : plane_of<Plane>(*view, b, head);
}

// The rows of one head of a [B, H, rows] view.
inline Column column_of(const Tensor* view, std::int64_t b, std::int64_t head) {
  if (view == nullptr || view->data == nullptr) return {};
  return {static_cast<char*>(view->data) +
              (b * view->stride(0) + head * view->stride(1)) * size_bytes(view->dtype),
          view->stride(2), view->stride(1)};
}

inline ConstColumn column_of(const ConstTensor& view, std::int64_t b, std::int64_t head) {
  if (!view.given() || view.data == nullptr) return {};
  return {static_cast<const char*>(view.data) +
              (b * view.stride(0) + head * view.stride(1)) * size_bytes(view.dtype),
          view.stride(2), view.stride(1)};
}

// Everything that rows and keys are computed from; no rows are chosen, nothing is asked for.
inline ForwardTask task_inputs(const Problem& p, std::int64_t b, std::int64_t first_head,
                               std::int64_t heads) {
  ForwardTask task{};
  task.heads = heads;
  for (std::int64_t h = 0; h < heads; ++h) {
    task.numbers[h] = {p.scale(first_head + h), p.slope(b, first_head + h), p.sink(first_head + h)};
    task.has_sink =
        task.has_sink || task.numbers[h].sink > -std::numeric_limits<double>::infinity();
  }
  task.query = plane_of<ConstPlane>(p.query, b, first_head);
  task.key = plane_of<ConstPlane>(p.key, b, first_head / p.group);
  task.value = plane_of<ConstPlane>(p.value, b, first_head / p.group);
  task.element = element_of(p.dtype);
  task.kv_len = p.kv_length(b);
  task.head_dim = p.head_dim;
  task.value_dim = p.value_dim;
  task.softcap = p.softcap;
  task.lower = p.lower(b);
  task.upper = p.upper(b);
  task.has_alibi = p.has_alibi;
  task.diagonal = static_cast<double>(p.diagonal(b));
  task.bias = plane_of<ConstPlane>(p.bias, b, first_head);
  task.bias_element = element_of(p.bias.dtype);
  task.mask = plane_of<ConstPlane>(p.mask, b, first_head);
  task.dropout = dropout_rule(p.options.dropout, b, first_head);
  return task;
}

}  // namespace poise
