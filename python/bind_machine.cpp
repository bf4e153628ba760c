// Threads, instruction sets and the explanation of a call.
//
// In: numbers and names. Out: what the library says of this machine and of a call's plan. What must
// not happen here: a thread started, a tensor read.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <poise/attention.h>
#include <poise/cpu.h>

#include <string>
#include <vector>

#include "bindings.h"

namespace poise::python {
namespace {

std::string explain_shape(const std::vector<std::int64_t>& shape, const std::string& dtype_name,
                          const CallOptions& options) {
  if (shape.size() != 6 && shape.size() != 7)
    raise_value("[explain] shape: " + std::to_string(shape.size()) +
                " numbers, expected (B, Hq, Hkv, Lq, Lk, D) or (B, Hq, Hkv, Lq, Lk, D, Dv)");
  DType dtype;
  if (dtype_name == "float32")
    dtype = DType::f32;
  else if (dtype_name == "float64")
    dtype = DType::f64;
  else if (dtype_name == "float16")
    dtype = DType::f16;
  else if (dtype_name == "bfloat16")
    dtype = DType::bf16;
  else
    raise_type("[explain] dtype: '" + dtype_name +
               "', expected float32, float64, float16 or bfloat16");
  const auto absent = [dtype](std::int64_t b, std::int64_t h, std::int64_t l, std::int64_t d) {
    return detail::contiguous_view<ConstTensor>(static_cast<const void*>(nullptr), dtype,
                                                {b, h, l, d});
  };
  const std::int64_t value_dim = shape.size() == 7 ? shape[6] : shape[5];
  const Axes lead{shape[0]};
  Cut cut(lead, 1);
  const ResolvedOptions resolved(options, dtype == DType::f64 ? DType::f64 : DType::f32, lead, 1,
                                 "explain", &cut);
  std::string text;
  raise_if(explain(absent(shape[0], shape[1], shape[3], shape[5]),
                   absent(shape[0], shape[2], shape[4], shape[5]),
                   absent(shape[0], shape[2], shape[4], value_dim), resolved.of(cut, 0), &text));
  return text;
}

}  // namespace

void bind_machine(nb::module_& module) {
  using namespace nb::literals;
  module.def("set_num_threads", &set_num_threads, "threads"_a,
             "Threads of calls that name none, in this process, 1 ... 4096. No bit of a result\n"
             "depends on it. ValueError outside the range.");
  module.def(
      "get_num_threads", &num_threads,
      "Threads of calls that name none: what set_num_threads() said, else POISE_THREADS, else\n"
      "torch's number when torch is loaded, else what affinity and the control group allow.");
  module.def("active_isa", &active_isa,
             "The instruction set in use: 'avx512', 'avx2', 'neon' or 'scalar'.");
  module.def("available_isas", &available_isas, "Those this machine can run, best first.");
  module.def(
      "set_isa", [](const std::string& isa) { raise_if(set_isa(isa)); }, "isa"_a,
      "Forces an instruction set for this process; '' returns to the best. Not while another "
      "thread\n"
      "is inside poise. ValueError when the name is unknown or the CPU lacks it.");
  module.def("explain", &explain_shape, "shape"_a, "dtype"_a, "options"_a,
             "What a call of this shape would do, in words.");
}

}  // namespace poise::python
