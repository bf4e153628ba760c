// Arguments of a Python call as the library's views: NumPy arrays and their buffers, torch tensors,
// JAX arrays and whatever else speaks DLPack, on the CPU, any strides, without a copy.
//
// In: a Python object and the name of its argument. Out: data, dtype, extents, strides, and which
// kind of array it was, so that results can come back in it. What must not happen here: a copy of
// elements, an import of a framework (one that is in use is in sys.modules), a tensor that records
// gradients taken without a word.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <poise/error.h>
#include <poise/tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace poise::python {

namespace nb = nanobind;

inline constexpr int kMaxAxes = 16;
using Axes = std::array<std::int64_t, kMaxAxes>;

// A view of any rank; the library's have at most kMaxRank axes.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  Axes extents{}, strides{};  // strides in elements

  std::int64_t extent(int axis) const { return extents[static_cast<std::size_t>(axis)]; }
  std::int64_t stride(int axis) const { return strides[static_cast<std::size_t>(axis)]; }
  void set_axis(int axis, std::int64_t extent, std::int64_t stride) {
    extents[static_cast<std::size_t>(axis)] = extent;
    strides[static_cast<std::size_t>(axis)] = stride;
  }
};

// What results come back as: NumPy arrays (also for arrays of no known library), torch tensors, or
// arrays of the namespace that __array_namespace__() names (JAX).
enum class Kind { numpy, torch, array_api };

class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  // Takes an argument; None leaves the array absent. Its memory is held until this dies.
  // Throws TypeError or ValueError: "[call] name: ...".
  void take(nb::handle object, const char* call, const char* name, bool written = false);

  bool given() const { return given_; }
  const View& view() const { return view_; }
  Kind kind() const { return kind_; }
  nb::handle object() const { return object_; }

 private:
  void take_buffer(nb::handle object, bool written);
  void take_tensor(nb::handle object);
  void take_dlpack(nb::handle object, bool written);
  void take_dltensor(const nb::dlpack::dltensor& tensor);
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_type(const std::string& what) const;

  View view_;
  Kind kind_ = Kind::numpy;
  bool given_ = false, holds_buffer_ = false;
  Py_buffer buffer_{};
  nb::object object_, owner_;
  nb::ndarray<nb::ro> exported_;
  const char* call_ = "";
  const char* name_ = "";
};

// The kind of an argument, by its type alone.
Kind kind_of(nb::handle object);

// True for what take() can take: neither a number nor a list.
bool is_array(nb::handle object);

// A loaded module's attribute, or a null object when the module is not loaded (or half loaded).
nb::object loaded_attribute(const char* module, const char* attribute);

// Raises what the library's refusal is in Python: TypeError for dtypes, MemoryError, else
// ValueError, with its sentence.
void raise_if(const Error& error);
[[noreturn]] void raise_value(const std::string& sentence);
[[noreturn]] void raise_type(const std::string& sentence);

// Extents as people write them: "[2, 8, 16]".
std::string shape_text(const View& view);

}  // namespace poise::python
