// Runs a piece of a test once per instruction set this machine has, or per set and dtype.
//
// Throws when a switch did not take, so that a test can never pass on the wrong kernels.
#pragma once

#include <gtest/gtest.h>
#include <poise/cpu.h>
#include <poise/tensor.h>

#include <stdexcept>
#include <string>

namespace poise::test {

// Forces an instruction set and returns to the default at the end of the scope.
class IsaScope {
 public:
  explicit IsaScope(const std::string& isa) {
    if (const Error error = set_isa(isa)) throw std::runtime_error(error.message());
    if (active_isa() != isa)
      throw std::runtime_error("asked for " + isa + ", active is " + active_isa());
  }
  ~IsaScope() { static_cast<void>(set_isa("")); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;
};

// body(dtype) for every input dtype on each instruction set; failures name both.
template <class Body>
void for_each_isa_and_dtype(const Body& body) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      SCOPED_TRACE(isa + " " + name(dtype));
      body(dtype);
    }
  }
}

}  // namespace poise::test
