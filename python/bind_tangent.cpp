// poise._core.jvp and double_backward: derivatives along a direction, and second derivatives.
//
// In: the arrays and Options of the forward call, what it left, a direction. Out: arrays in the
// caller's kind. What must not happen here: the interpreter's lock held while the library computes.
#include <poise/tangent.h>

#include "bindings.h"
#include "inputs.h"
#include "left_by_forward.h"
#include "output.h"

namespace poise::python {
namespace {

// The tensors that move, each of the shape of what it moves.
struct Moving {
  Moving(const Inputs& in, nb::handle query, nb::handle key, nb::handle value, const char* call,
         const char* const names[3]) {
    const nb::handle objects[] = {query, key, value};
    for (int i = 0; i < 3; ++i)
      views[i] = take_as(&arrays[i], objects[i], in, call, names[i], true);
  }
  void consider(Cut* cut) const {
    for (int i = 0; i < 3; ++i)
      if (arrays[i].given()) cut->consider(views[i]);
  }
  Direction part(const Cut& cut, std::int64_t index) const {
    Direction direction;
    ConstTensor* tensors[] = {&direction.query, &direction.key, &direction.value};
    for (int i = 0; i < 3; ++i)
      if (arrays[i].given()) *tensors[i] = cut.part(views[i], index);
    return direction;
  }
  Array arrays[3];
  View views[3];
};

nb::typed<nb::tuple, Any, Any> jvp_of(nb::handle query, nb::handle key, nb::handle value,
                                      nb::handle out, const CallOptions& options,
                                      nb::handle query_tangent, nb::handle key_tangent,
                                      nb::handle value_tangent, nb::handle row_max,
                                      nb::handle row_sum, nb::handle lse, bool blhd) {
  constexpr const char* kCall = "jvp";
  constexpr const char* kNames[] = {"query_tangent", "key_tangent", "value_tangent"};
  Inputs in;
  in.take(query, key, value, kCall, false, true, blhd);
  const LeftByForward left(in, out, row_max, row_sum, lse, kCall);
  const Moving moving(in, query_tangent, key_tangent, value_tangent, kCall, kNames);
  Axes shape{};
  Output out_tangent, lse_tangent;
  const int rank = in.result_shape(in.value_dim, true, &shape);
  out_tangent.create(in.query_array, shape, rank, in.query.dtype, &in.query_array.view());
  const int rows = in.result_shape(-1, false, &shape);
  lse_tangent.create(in.query_array, shape, rows, in.numbers());
  const View out_view = in.lifted(out_tangent.view(), true, true);
  const View lse_view = in.lifted(lse_tangent.view(), false, false);

  Cut cut(in.lead, in.leads);
  cut.consider({&in.query, &in.key, &in.value, &out_view, &lse_view});
  left.consider(&cut);
  moving.consider(&cut);
  const ResolvedOptions resolved(options, in.numbers(), in.lead, in.leads, kCall, &cut);
  Error error;
  {
    nb::gil_scoped_release release;
    for (std::int64_t index = 0; index < cut.calls() && !error; ++index) {
      const Tangent tangent{cut.part(out_view, index), cut.part(lse_view, index)};
      error = jvp(cut.part(in.query, index), cut.part(in.key, index), cut.part(in.value, index),
                  left.part(cut, index), moving.part(cut, index), tangent, resolved.of(cut, index));
    }
  }
  raise_if(error);
  return nb::make_tuple(out_tangent.finish(), lse_tangent.finish());
}

nb::typed<nb::tuple, Any, Any, Any, Any, Any> double_backward_of(
    nb::handle query, nb::handle key, nb::handle value, nb::handle out, nb::handle dout,
    const CallOptions& options, nb::handle ddq, nb::handle ddk, nb::handle ddv, nb::handle row_max,
    nb::handle row_sum, nb::handle lse, nb::handle dlse, bool blhd) {
  constexpr const char* kCall = "double_backward";
  constexpr const char* kNames[] = {"ddq", "ddk", "ddv"};
  Inputs in;
  in.take(query, key, value, kCall, false, true, blhd);
  const LeftByForward left(in, out, row_max, row_sum, lse, kCall);
  const Moving moving(in, ddq, ddk, ddv, kCall, kNames);
  Array dout_array, dlse_array;
  if (dout.is_none()) raise_type("[double_backward] dout: None, expected an array");
  const View dout_view = take_as(&dout_array, dout, in, kCall, "dout", true);
  const View dlse_view = take_as(&dlse_array, dlse, in, kCall, "dlse", false);

  Cut cut(in.lead, in.leads);
  cut.consider({&in.query, &in.key, &in.value, &dout_view});
  if (dlse_array.given()) cut.consider(dlse_view);
  left.consider(&cut);
  moving.consider(&cut);
  const Array* like[] = {&in.query_array, &in.key_array, &in.value_array, &dout_array, &dlse_array};
  Output outputs[5];
  View views[5];
  for (int i = 0; i < 5; ++i) {
    if (!like[i]->given()) continue;
    const View& shape = like[i]->view();
    outputs[i].create(in.query_array, shape.extents, shape.rank, shape.dtype, &shape);
    views[i] = in.lifted(outputs[i].view(), i < 4, i < 4);
    cut.consider(views[i]);
  }
  const ResolvedOptions resolved(options, in.numbers(), in.lead, in.leads, kCall, &cut);
  Error error;
  {
    nb::gil_scoped_release release;
    for (std::int64_t index = 0; index < cut.calls() && !error; ++index) {
      OutGradient gradient;
      gradient.dout = cut.part(dout_view, index);
      if (dlse_array.given()) gradient.dlse = cut.part(dlse_view, index);
      SecondGradients second;
      Tensor* tensors[] = {&second.query, &second.key, &second.value, &second.dout, &second.dlse};
      for (int i = 0; i < 5; ++i)
        if (outputs[i].given()) *tensors[i] = cut.part(views[i], index);
      error = double_backward(cut.part(in.query, index), cut.part(in.key, index),
                              cut.part(in.value, index), left.part(cut, index), gradient,
                              moving.part(cut, index), second, resolved.of(cut, index));
    }
  }
  raise_if(error);
  return nb::make_tuple(outputs[0].finish(), outputs[1].finish(), outputs[2].finish(),
                        outputs[3].finish(), outputs[4].finish());
}

}  // namespace

void bind_tangent(nb::module_& module) {
  using namespace nb::literals;
  module.def("jvp", &jvp_of, "query"_a.none(), "key"_a.none(), "value"_a.none(), "out"_a.none(),
             "options"_a, "query_tangent"_a.none() = nb::none(),
             "key_tangent"_a.none() = nb::none(), "value_tangent"_a.none() = nb::none(),
             "row_max"_a.none() = nb::none(), "row_sum"_a.none() = nb::none(),
             "lse"_a.none() = nb::none(), "blhd"_a = false,
             "The tangents of out and lse along the tangents of query, key and value.");
  module.def("double_backward", &double_backward_of, "query"_a.none(), "key"_a.none(),
             "value"_a.none(), "out"_a.none(), "dout"_a.none(), "options"_a,
             "ddq"_a.none() = nb::none(), "ddk"_a.none() = nb::none(), "ddv"_a.none() = nb::none(),
             "row_max"_a.none() = nb::none(), "row_sum"_a.none() = nb::none(),
             "lse"_a.none() = nb::none(), "dlse"_a.none() = nb::none(), "blhd"_a = false,
             "Gradients with respect to query, key, value, dout and dlse of a loss made of dq, dk\n"
             "and dv, whose gradients with respect to those are ddq, ddk and ddv.");
}

}  // namespace poise::python
