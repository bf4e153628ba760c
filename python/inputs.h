// Query, key and value of a Python call, brought to one set of leading axes, heads, rows and
// elements.
//
// In: arrays of two and more axes in either layout. Out: views of leads + 3 axes in the order
// heads, rows, elements, and the shape of the result in the caller's own order. What must not
// happen here: rules on extents that the library has; only how leading axes and heads broadcast is
// decided here, for the library knows no broadcasting of them.
#pragma once

#include "array.h"
#include "cut.h"

namespace poise::python {

struct Inputs {
  Array query_array, key_array, value_array;
  View query, key, value;  // [lead..., H, L, D]
  int rank = 0;            // of query, key and value as given: the largest
  int leads = 1;
  Axes lead{};
  bool blhd = false;
  std::int64_t q_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;

  // `broadcasts`: leading axes broadcast as torch's do. `grouped`: query heads share key heads;
  // without it heads broadcast as well, and other numbers of heads are refused.
  void take(nb::handle query_object, nb::handle key_object, nb::handle value_object,
            const char* call, bool broadcasts, bool grouped, bool blhd_layout);

  // f64 for f64, else f32.
  DType numbers() const { return query.dtype == DType::f64 ? DType::f64 : DType::f32; }

  // The caller's extents of a result [lead..., Hq, Lq] and what follows; `tail` < 0 = nothing. In
  // layout blhd the heads come after the rows when `as_query`. Returns the rank.
  int result_shape(std::int64_t tail, bool as_query, Axes* extents) const;

  // Refuses a lifted view whose several leading extents are not the call's.
  void check_leading(const View& view, const char* call, const char* name) const;

  // A result in the caller's order as a view of leads + 3 axes (leads + 2 without a tail).
  View lifted(const View& result, bool has_tail, bool as_query) const;
};

// The two axes before the last exchanged, of views that have both.
View swapped(View view);

// Takes a further tensor of the call (out, dout, ...) as a view of leads + 3 axes.
View take_as(Array* array, nb::handle object, const Inputs& inputs, const char* call,
             const char* name, bool has_tail);

}  // namespace poise::python
