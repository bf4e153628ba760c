// poise._core.backward: the gradients of one attention call.
//
// In: the arrays and Options of the forward call, what it left, the gradient of the loss. Out: an
// object with the gradients that were wanted, in the caller's kind. What must not happen here: the
// interpreter's lock held while the library computes.
#include <poise/gradient.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "inputs.h"
#include "left_by_forward.h"
#include "output.h"

namespace poise::python {
namespace {

struct Results {
  Any dq = nb::none(), dk = nb::none(), dv = nb::none(), dbias = nb::none(), dsinks = nb::none(),
      dscale = nb::none(), dslopes = nb::none(), stats = nb::none();
};

constexpr const char* kCall = "backward";

// True, False or a name of what is wanted.
bool wanted(nb::handle object) { return !object.is_none() && object.ptr() != Py_False; }

// The shape dbias goes by: the bias's own, or the one given in its place.
int dbias_shape(nb::handle object, const CallOptions& options, Axes* extents) {
  if (object.ptr() == Py_True) {
    if (!options.bias().given())
      raise_value("[backward] dbias: True without a bias; give the shape it is to be summed to");
    *extents = options.bias().view().extents;
    return options.bias().view().rank;
  }
  if (!PySequence_Check(object.ptr()) || PyUnicode_Check(object.ptr()))
    raise_type("[backward] dbias: expected True or a shape");
  const Py_ssize_t axes = PySequence_Size(object.ptr());
  if (axes < 0 || axes > kMaxRank) raise_value("[backward] dbias: expected at most 4 axes");
  for (Py_ssize_t a = 0; a < axes; ++a) {
    if (!nb::try_cast(nb::object(object[a]), (*extents)[static_cast<std::size_t>(a)]) ||
        (*extents)[static_cast<std::size_t>(a)] < 0)
      raise_type("[backward] dbias: a shape is made of integers from 0 on");
  }
  return static_cast<int>(axes);
}

Results backward_of(nb::handle query, nb::handle key, nb::handle value, nb::handle out,
                    nb::handle dout, const CallOptions& options, nb::handle row_max,
                    nb::handle row_sum, nb::handle lse, nb::handle dlse, bool dq, bool dk, bool dv,
                    nb::handle dbias, bool dsinks, nb::handle dscale, bool dslopes,
                    nb::handle stats_object, bool blhd) {
  Inputs in;
  in.take(query, key, value, kCall, false, true, blhd);
  LeftByForward left(in, out, row_max, row_sum, lse, kCall);
  Array dout_array, dlse_array;
  if (dout.is_none()) raise_type("[backward] dout: None, expected an array");
  const View dout_view = take_as(&dout_array, dout, in, kCall, "dout", true);
  const View dlse_view = take_as(&dlse_array, dlse, in, kCall, "dlse", false);

  Cut cut(in.lead, in.leads);
  cut.consider({&in.query, &in.key, &in.value, &dout_view});
  if (dlse_array.given()) cut.consider(dlse_view);
  left.consider(&cut);

  struct Wanted {
    Output output;
    View view;
    Tensor Gradients::*tensor;
    Any Results::*result;
  };
  Wanted main[3];
  const auto want = [&](int which, bool is_wanted, const Array& like, Tensor Gradients::*tensor,
                        Any Results::*result) {
    if (!is_wanted) return;
    Wanted& one = main[which];
    one.output.create(like, like.view().extents, like.view().rank, like.view().dtype, &like.view());
    one.view = in.lifted(one.output.view(), true, true);
    one.tensor = tensor;
    one.result = result;
    cut.consider(one.view);
  };
  want(0, dq, in.query_array, &Gradients::dq, &Results::dq);
  want(1, dk, in.key_array, &Gradients::dk, &Results::dk);
  want(2, dv, in.value_array, &Gradients::dv, &Results::dv);

  const ResolvedOptions resolved(options, in.numbers(), in.lead, in.leads, kCall, &cut);
  struct Summed {
    Output output;
    Tensor Gradients::*tensor;
    Any Results::*result;
  };
  Summed summed[4];
  const auto sum = [&](int which, const Axes& extents, int rank, DType dtype,
                       Tensor Gradients::*tensor, Any Results::*result) {
    summed[which].output.create(in.query_array, extents, rank, dtype);
    summed[which].tensor = tensor;
    summed[which].result = result;
  };
  if (wanted(dbias)) {
    Axes extents{};
    const int rank = dbias_shape(dbias, options, &extents);
    sum(0, extents, rank, in.numbers(), &Gradients::dbias, &Results::dbias);
  }
  if (dsinks) sum(1, {in.q_heads}, 1, in.numbers(), &Gradients::dsinks, &Results::dsinks);
  if (wanted(dscale)) {
    const bool per_head = options.scale_per_head().given() || dscale.ptr() != Py_True;
    sum(2, {per_head ? in.q_heads : 1}, 1, in.numbers(), &Gradients::dscale, &Results::dscale);
  }
  if (dslopes) {
    if (!options.slopes().given()) raise_value("[backward] dslopes: the call has no alibi_slopes");
    const View& slopes = options.slopes().view();
    sum(3, slopes.extents, slopes.rank, in.numbers(), &Gradients::dslopes, &Results::dslopes);
  }
  const std::int64_t calls = cut.calls();
  Stats* stats = nullptr;
  if (!stats_object.is_none() && !nb::try_cast(stats_object, stats))
    raise_type("[backward] stats: expected a poise.Stats");
  if (calls > 1) {
    for (const Summed& one : summed)
      if (one.output.given())
        raise_value(
            "[backward] query: no stride joins the leading axes of all tensors, and sums over "
            "the batch (dbias, dsinks, dscale, dslopes) are of one batch axis; reshape them");
    if (stats != nullptr)
      raise_value(
          "[backward] stats: no stride joins the leading axes of all tensors; reshape them");
  }

  Error error;
  {
    nb::gil_scoped_release release;
    for (std::int64_t index = 0; index < calls && !error; ++index) {
      Gradients gradients;
      for (const Wanted& one : main)
        if (one.output.given()) gradients.*one.tensor = cut.part(one.view, index);
      for (const Summed& one : summed)
        if (one.output.given()) gradients.*one.tensor = tensor_of(one.output.view());
      OutGradient gradient;
      gradient.dout = cut.part(dout_view, index);
      if (dlse_array.given()) gradient.dlse = cut.part(dlse_view, index);
      error =
          backward(cut.part(in.query, index), cut.part(in.key, index), cut.part(in.value, index),
                   left.part(cut, index), gradient, gradients, resolved.of(cut, index), stats);
    }
  }
  raise_if(error);
  Results results;
  for (Wanted& one : main)
    if (one.output.given()) results.*one.result = one.output.finish();
  for (Summed& one : summed)
    if (one.output.given()) results.*one.result = one.output.finish();
  if (stats != nullptr) results.stats = nb::borrow(stats_object);
  return results;
}

}  // namespace

void bind_gradient(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Results>(
      module, "Gradients",
      "Gradients of a loss; what was not asked for is None.\n\n"
      "dq, dk, dv: shapes and dtype of query, key and value. dbias: the bias's shape.\n"
      "dsinks: [Hq]. dscale: [1], or [Hq] of a scale per head. dslopes: the slopes'.\n"
      "All but dq, dk and dv are float32 (float64 for float64 inputs).")
      .def_ro("dq", &Results::dq)
      .def_ro("dk", &Results::dk)
      .def_ro("dv", &Results::dv)
      .def_ro("dbias", &Results::dbias)
      .def_ro("dsinks", &Results::dsinks)
      .def_ro("dscale", &Results::dscale)
      .def_ro("dslopes", &Results::dslopes)
      .def_ro("stats", &Results::stats);
  module.def("backward", &backward_of, "query"_a.none(), "key"_a.none(), "value"_a.none(),
             "out"_a.none(), "dout"_a.none(), "options"_a, "row_max"_a.none() = nb::none(),
             "row_sum"_a.none() = nb::none(), "lse"_a.none() = nb::none(),
             "dlse"_a.none() = nb::none(), "dq"_a = true, "dk"_a = true, "dv"_a = true,
             "dbias"_a.none() = nb::none(), "dsinks"_a = false, "dscale"_a.none() = nb::none(),
             "dslopes"_a = false, "stats"_a.none() = nb::none(), "blhd"_a = false,
             "The gradients of one attention call.");
}

}  // namespace poise::python
