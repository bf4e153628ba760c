// Results as arrays of the caller's kind: NumPy in, NumPy out; torch in, torch out; JAX in, JAX
// out.
//
// In: the kind, the argument whose kind and dtype it is, extents, dtype, and whose order of axes in
// memory it follows. Out: memory for the library to write and, afterwards, the Python object. What
// must not happen here: a copy of elements (but for what a framework's own from_dlpack makes).
#pragma once

#include <memory>

#include "array.h"

namespace poise::python {

class Output {
 public:
  // A new array of `like`'s kind. The order of axes in memory is that of `order` where it has the
  // same rank (extents of 1 do not count), else row-major.
  void create(const Array& like, const Axes& extents, int rank, DType dtype,
              const View* order = nullptr);

  // The caller's own array.
  void use(nb::handle object, const char* call, const char* name);

  bool given() const { return given_; }
  const View& view() const { return view_; }

  // The Python object, once the library has written; None when there is none.
  nb::object finish();

 private:
  void create_numpy(const Array& like);
  void create_torch();
  void create_shared();

  View view_;
  Axes order_{};  // axes from the outermost in memory to the innermost
  bool given_ = false, row_major_ = true;
  Kind kind_ = Kind::numpy;
  nb::object object_, like_;
  std::unique_ptr<Array> callers_;
};

// A tuple of extents.
nb::tuple shape_tuple(const Axes& extents, int rank);

}  // namespace poise::python
