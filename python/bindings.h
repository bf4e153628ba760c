// The parts of the module poise._core, each in a file of its own.
//
// In: the module. Out: its classes and functions; the public names of the package are written in
// Python on top of them (python/poise). What must not happen here: arithmetic on tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <poise/stats.h>

#include "call_options.h"

namespace poise::python {

struct AnyType {};

}  // namespace poise::python

template <>
struct nanobind::detail::type_caster<poise::python::AnyType> {
  static constexpr auto Name = const_name("typing.Any");
};

namespace poise::python {

// An object whose type follows the caller's arrays, so that type checkers must let it pass.
using Any = nb::typed<nb::object, AnyType>;

void bind_machine(nb::module_& module);     // threads, instruction sets, explain
void bind_options(nb::module_& module);     // Options
void bind_statistics(nb::module_& module);  // StatsRequest, Stats
void bind_health(nb::module_& module);      // judge, Health, Report
void bind_forward(nb::module_& module);     // AuxRequest, Aux, forward
void bind_gradient(nb::module_& module);    // Gradients, backward
void bind_tangent(nb::module_& module);     // jvp, double_backward

// What a caller says of the statistics he wants: False or None, True, a level's name, a request, or
// Stats whose request is taken again. Off when he wants none.
StatsRequest stats_request(nb::handle object, const char* call);

}  // namespace poise::python
