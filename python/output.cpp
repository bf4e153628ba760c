// How each framework is asked for memory: numpy.empty, torch.empty_strided, and for array libraries
// that take DLPack only (JAX) memory of our own that their from_dlpack takes over once it is
// written: JAX may copy it then, and would copy garbage before.
#include "output.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace poise::python {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line; what JAX needs to take memory over

// NumPy's functions and dtypes, looked up once and kept.
struct Numpy {
  PyObject* empty;
  PyObject* dtypes[4];
};
const Numpy& numpy() {
  static const Numpy found = [] {
    nb::module_ module = nb::module_::import_("numpy");
    Numpy result{};
    result.empty = nb::object(module.attr("empty")).release().ptr();
    const char* names[] = {"float32", "float64", "float16", "uint16"};
    for (int i = 0; i < 4; ++i)
      result.dtypes[i] = nb::object(module.attr("dtype")(names[i])).release().ptr();
    return result;
  }();
  return found;
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::f16:
      return "float16";
    default:
      return "bfloat16";
  }
}

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const Code code = dtype == DType::bf16 ? Code::Bfloat : Code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_bytes(dtype)), 1};
}

}  // namespace

nb::tuple shape_tuple(const Axes& extents, int rank) {
  nb::object tuple = nb::steal(PyTuple_New(rank));
  if (!tuple.is_valid()) throw nb::python_error();
  for (int a = 0; a < rank; ++a)
    PyTuple_SET_ITEM(tuple.ptr(), a, PyLong_FromLongLong(extents[static_cast<std::size_t>(a)]));
  return nb::borrow<nb::tuple>(tuple);
}

void Output::create(const Array& like, const Axes& extents, int rank, DType dtype,
                    const View* order) {
  given_ = true;
  kind_ = like.kind();
  like_ = nb::borrow(like.object());
  view_.rank = rank;
  view_.dtype = dtype;
  view_.extents = extents;
  for (int a = 0; a < rank; ++a) order_[static_cast<std::size_t>(a)] = a;
  if (order != nullptr && order->rank == rank && kind_ != Kind::array_api) {
    const auto moves = [&](std::int64_t axis) { return order->extent(static_cast<int>(axis)) > 1; };
    const auto stride = [&](std::int64_t axis) {
      const std::int64_t s = order->stride(static_cast<int>(axis));
      return s < 0 ? -s : s;
    };
    // Insertion, so that axes without an order of their own stay where they are.
    for (int a = 1; a < rank; ++a) {
      for (int b = a; b > 0; --b) {
        auto& left = order_[static_cast<std::size_t>(b - 1)];
        auto& right = order_[static_cast<std::size_t>(b)];
        if (!moves(left) || !moves(right) || stride(right) == 0 || stride(left) >= stride(right))
          break;
        std::swap(left, right);
      }
    }
  }
  std::int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order_[static_cast<std::size_t>(i)]);
    row_major_ = row_major_ && axis == i;
    view_.strides[static_cast<std::size_t>(axis)] = step;
    const std::int64_t extent = view_.extent(axis);
    if (__builtin_mul_overflow(step, extent > 0 ? extent : 1, &step))
      raise_value("a result of shape " + shape_text(view_) + " is beyond this machine");
  }
  switch (kind_) {
    case Kind::numpy:
      create_numpy(like);
      break;
    case Kind::torch:
      create_torch();
      break;
    case Kind::array_api:
      create_shared();
      break;
  }
}

void Output::create_numpy(const Array& like) {
  Axes in_memory{};
  for (int i = 0; i < view_.rank; ++i)
    in_memory[static_cast<std::size_t>(i)] =
        view_.extent(static_cast<int>(order_[static_cast<std::size_t>(i)]));
  const int which = view_.dtype == DType::f32   ? 0
                    : view_.dtype == DType::f64 ? 1
                    : view_.dtype == DType::f16 ? 2
                                                : 3;
  nb::tuple shape = shape_tuple(in_memory, view_.rank);
  PyObject* arguments[] = {shape.ptr(), numpy().dtypes[which]};
  object_ = nb::steal(PyObject_Vectorcall(numpy().empty, arguments, 2, nullptr));
  if (!object_.is_valid()) throw nb::python_error();
  Py_buffer buffer;
  if (PyObject_GetBuffer(object_.ptr(), &buffer, PyBUF_STRIDES | PyBUF_WRITABLE) != 0)
    throw nb::python_error();
  view_.data = buffer.buf;
  PyBuffer_Release(&buffer);
  if (view_.dtype == DType::bf16) {
    // NumPy knows the type by name once ml_dtypes is loaded, which made the query, if it is
    // NumPy's.
    nb::object like_numpy = nb::str("bfloat16");
    if (nb::hasattr(like.object(), "__array_interface__")) like_numpy = like.object().attr("dtype");
    object_ = object_.attr("view")(like_numpy);
  }
  if (!row_major_) {
    Axes place{};
    for (int i = 0; i < view_.rank; ++i)
      place[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])] = i;
    object_ = object_.attr("transpose")(shape_tuple(place, view_.rank));
  }
}

void Output::create_torch() {
  nb::module_ torch = nb::module_::import_("torch");
  object_ = torch.attr("empty_strided")(
      shape_tuple(view_.extents, view_.rank), shape_tuple(view_.strides, view_.rank),
      nb::arg("dtype") = torch.attr(torch_name(view_.dtype)), nb::arg("device") = "cpu");
  view_.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object_.attr("data_ptr")()));
}

void Output::create_shared() {
  std::int64_t elements = 1;
  std::array<std::size_t, kMaxAxes> shape{};
  for (int a = 0; a < view_.rank; ++a) {
    elements *= view_.extent(a);
    shape[static_cast<std::size_t>(a)] = static_cast<std::size_t>(view_.extent(a));
  }
  const auto bytes = static_cast<std::size_t>(elements * size_bytes(view_.dtype));
  view_.data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (view_.data == nullptr) throw std::bad_alloc();
  nb::capsule owner(view_.data, [](void* memory) noexcept { std::free(memory); });
  object_ = nb::cast(nb::ndarray<nb::array_api>(view_.data, static_cast<std::size_t>(view_.rank),
                                                shape.data(), owner, view_.strides.data(),
                                                dlpack_dtype(view_.dtype)));
}

void Output::use(nb::handle object, const char* call, const char* name) {
  callers_ = std::make_unique<Array>();
  callers_->take(object, call, name, true);
  given_ = true;
  view_ = callers_->view();
  object_ = nb::borrow(object);
}

nb::object Output::finish() {
  if (!given_) return nb::none();
  // A graph that saved the tensor is to notice that it has changed.
  if (callers_ && callers_->kind() == Kind::torch)
    nb::module_::import_("torch").attr("autograd").attr("graph").attr("increment_version")(object_);
  if (kind_ == Kind::array_api && !callers_)
    return like_.attr("__array_namespace__")().attr("from_dlpack")(object_);
  return object_;
}

}  // namespace poise::python
