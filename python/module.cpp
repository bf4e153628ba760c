// The extension module poise._core: what the package poise is made on.
//
// In: the interpreter. Out: the module. What must not happen here: an import other than NumPy's,
// which waits for the first array.
#include <nanobind/nanobind.h>

#include "bindings.h"

NB_MODULE(_core, module) {
  using namespace poise::python;
  module.doc() = "poise in C++; the package poise is the public name for what is in here.";
  module.attr("version") = POISE_VERSION;
  // A program that ends in the middle of a watch leaves objects alive, and its user cannot help it.
  nb::set_leak_warnings(false);
  module.def("set_leak_warnings", &nb::set_leak_warnings, nb::arg("value"),
             "Whether objects that are alive at the end are told of on stderr: for tests.");
  bind_machine(module);
  bind_options(module);
  bind_statistics(module);
  bind_health(module);
  bind_forward(module);
  bind_gradient(module);
  bind_tangent(module);
}
