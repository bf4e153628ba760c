// How each kind of array is opened: the buffer protocol for NumPy, the exchange table of DLPack for
// torch, DLPack capsules (through nanobind) for the rest.
// NumPy: a buffer costs a fifth of a capsule, and read-only arrays need no protocol version.
// ml_dtypes: NumPy exports no buffer of bfloat16, so its bits are viewed as uint16, which is no
// copy. torch: __dlpack__ is Python code that takes microseconds; the table is C.
#include "array.h"

#include <cstring>

namespace poise::python {
namespace {

// DLPack 1.2, struct DLPackExchangeAPI: https://github.com/dmlc/dlpack/blob/main/include/dlpack/
// dlpack.h. Only the members in front of the one used here matter; none of them is called.
struct ExchangeTable {
  std::uint32_t major, minor;
  ExchangeTable* previous;
  void* allocate;
  void* managed_from_object;
  void* object_from_managed;
  int (*tensor_from_object)(void* object, nb::dlpack::dltensor* out);
};

// Types and tables found once; never released, like the modules they come from.
struct Known {
  PyTypeObject* ndarray = nullptr;
  PyTypeObject* tensor = nullptr;
  const ExchangeTable* table = nullptr;
  PyObject* grad_enabled = nullptr;
};
Known known;

PyTypeObject* ndarray_type() {
  if (known.ndarray == nullptr)
    known.ndarray = reinterpret_cast<PyTypeObject*>(
        nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
  return known.ndarray;
}

PyTypeObject* tensor_type() {
  if (known.tensor != nullptr) return known.tensor;
  nb::object tensor = loaded_attribute("torch", "Tensor");
  nb::object grad_enabled = loaded_attribute("torch", "is_grad_enabled");
  if (!tensor.is_valid() || !grad_enabled.is_valid()) return nullptr;
  if (nb::hasattr(tensor, "__dlpack_c_exchange_api__")) {
    nb::object capsule = tensor.attr("__dlpack_c_exchange_api__");
    auto* table = static_cast<const ExchangeTable*>(
        PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (table == nullptr) PyErr_Clear();
    while (table != nullptr && table->major != 1) table = table->previous;
    if (table != nullptr && table->tensor_from_object != nullptr) known.table = table;
  }
  known.grad_enabled = grad_enabled.release().ptr();
  known.tensor = reinterpret_cast<PyTypeObject*>(tensor.release().ptr());
  return known.tensor;
}

bool is_a(nb::handle object, PyTypeObject* type) {
  return type != nullptr && PyType_IsSubtype(Py_TYPE(object.ptr()), type) != 0;
}

bool dtype_of_format(const char* format, Py_ssize_t bytes, DType* dtype) {
  if (format == nullptr) return false;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  switch (*format) {
    case 'e':
      *dtype = DType::f16;
      return true;
    case 'f':
      *dtype = DType::f32;
      return true;
    case 'd':
      *dtype = DType::f64;
      return true;
    case '?':
      *dtype = DType::boolean;
      return true;
    case 'i':
    case 'l':
    case 'q':
      *dtype = bytes == 4 ? DType::i32 : DType::i64;
      return bytes == 4 || bytes == 8;
    default:
      return false;
  }
}

bool dtype_of_dlpack(const nb::dlpack::dtype& type, DType* dtype) {
  if (type.lanes != 1) return false;
  const auto is = [&type](nb::dlpack::dtype_code code, int bits) {
    return type.code == static_cast<std::uint8_t>(code) && type.bits == bits;
  };
  using Code = nb::dlpack::dtype_code;
  if (is(Code::Float, 16)) return *dtype = DType::f16, true;
  if (is(Code::Float, 32)) return *dtype = DType::f32, true;
  if (is(Code::Float, 64)) return *dtype = DType::f64, true;
  if (is(Code::Bfloat, 16)) return *dtype = DType::bf16, true;
  if (is(Code::Bool, 8)) return *dtype = DType::boolean, true;
  if (is(Code::Int, 32)) return *dtype = DType::i32, true;
  if (is(Code::Int, 64)) return *dtype = DType::i64, true;
  return false;
}

// The memory of these is the host's: the CPU's own, or pinned by CUDA or ROCm.
bool on_host(int device_type) { return device_type == 1 || device_type == 3 || device_type == 11; }

std::string device_text(int device_type, int index) {
  const char* name = nullptr;
  switch (device_type) {
    case 2:
    case 13:
      name = "cuda";
      break;
    case 4:
      name = "opencl";
      break;
    case 7:
      name = "vulkan";
      break;
    case 8:
      name = "metal";
      break;
    case 10:
      name = "rocm";
      break;
    case 14:
      name = "oneapi";
      break;
    default:
      break;
  }
  const std::string device = name ? name : "of DLPack type " + std::to_string(device_type);
  return "device " + device + (name ? ":" + std::to_string(index) : "") +
         "; poise computes on the CPU, bring the array there first";
}

constexpr const char* kDtypes =
    "poise takes float16, bfloat16, float32, float64, bool, int32, int64";

// The first line of the Python error that is set, which it clears; torch's go on with a stack
// trace.
std::string pending_error() {
  if (!PyErr_Occurred()) return "no reason given";
  nb::python_error error;
  const std::string text = nb::str(error.value()).c_str();
  return text.substr(0, text.find('\n'));
}

// What the object calls its dtype.
std::string dtype_text(nb::handle object, const char* otherwise) {
  if (!nb::hasattr(object, "dtype")) return otherwise;
  nb::object dtype = object.attr("dtype");
  return nb::str(nb::handle(dtype)).c_str();
}

}  // namespace

nb::object loaded_attribute(const char* module, const char* attribute) {
  PyObject* loaded = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  if (loaded == nullptr) return {};
  PyObject* found = PyObject_GetAttrString(loaded, attribute);
  if (found == nullptr) PyErr_Clear();
  return nb::steal(found);
}

void raise_value(const std::string& sentence) { throw nb::value_error(sentence.c_str()); }
void raise_type(const std::string& sentence) { throw nb::type_error(sentence.c_str()); }

void raise_if(const Error& error) {
  if (!error) return;
  if (error.code() == ErrorCode::bad_dtype) raise_type(error.message());
  if (error.code() == ErrorCode::out_of_memory) {
    PyErr_SetString(PyExc_MemoryError, error.message().c_str());
    throw nb::python_error();
  }
  raise_value(error.message());
}

std::string shape_text(const View& view) {
  std::string text = "[";
  for (int a = 0; a < view.rank; ++a) text += (a == 0 ? "" : ", ") + std::to_string(view.extent(a));
  return text + "]";
}

Kind kind_of(nb::handle object) {
  if (Py_TYPE(object.ptr()) == ndarray_type()) return Kind::numpy;
  if (is_a(object, tensor_type())) return Kind::torch;
  if (is_a(object, ndarray_type())) return Kind::numpy;
  return nb::hasattr(object, "__array_namespace__") ? Kind::array_api : Kind::numpy;
}

bool is_array(nb::handle object) {
  return is_a(object, ndarray_type()) || nb::hasattr(object, "__dlpack__") ||
         PyObject_CheckBuffer(object.ptr()) != 0;
}

Array::~Array() {
  if (holds_buffer_) PyBuffer_Release(&buffer_);
}

void Array::refuse(const std::string& what) const {
  raise_value("[" + std::string(call_) + "] " + name_ + ": " + what);
}
void Array::refuse_type(const std::string& what) const {
  raise_type("[" + std::string(call_) + "] " + name_ + ": " + what);
}

void Array::take(nb::handle object, const char* call, const char* name, bool written) {
  if (object.is_none()) return;
  call_ = call;
  name_ = name;
  object_ = nb::borrow(object);
  kind_ = kind_of(object);
  if (kind_ == Kind::torch) {
    take_tensor(object);
  } else if (kind_ == Kind::numpy && PyObject_CheckBuffer(object.ptr())) {
    take_buffer(object, written);
  } else if (nb::hasattr(object, "__dlpack__")) {
    take_dlpack(object, written);
  } else {
    refuse_type("expected a NumPy array or an object with __dlpack__ (torch, JAX), got " +
                std::string(nb::type_name(object.type()).c_str()));
  }
  given_ = true;
}

void Array::take_buffer(nb::handle object, bool written) {
  if (is_a(object, ndarray_type()) &&
      std::strstr(Py_TYPE(object.ptr())->tp_name, "MaskedArray") != nullptr)
    refuse_type("a numpy.ma array would lose its mask; pass .data, and the mask as attn_mask");
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
  bool is_bf16 = false;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    if (PyErr_ExceptionMatches(PyExc_BufferError) ||
        (written && is_a(object, ndarray_type()) &&
         (PyErr_Clear(), !nb::cast<bool>(object.attr("flags").attr("writeable"))))) {
      PyErr_Clear();
      refuse(written ? "the array is read-only" : "its buffer cannot be opened");
    }
    PyErr_Clear();
    const std::string dtype = dtype_text(object, "unknown");
    if (dtype != "bfloat16") refuse_type("dtype " + dtype + "; " + kDtypes);
    owner_ = object.attr("view")("uint16");
    is_bf16 = true;
    if (PyObject_GetBuffer(owner_.ptr(), &buffer_, flags) != 0) throw nb::python_error();
  }
  holds_buffer_ = true;
  view_.dtype = DType::bf16;
  if (!is_bf16 && !dtype_of_format(buffer_.format, buffer_.itemsize, &view_.dtype)) {
    refuse_type("dtype " + dtype_text(object, buffer_.format ? buffer_.format : "B") + "; " +
                kDtypes);
  }
  if (buffer_.ndim > kMaxAxes)
    refuse(std::to_string(buffer_.ndim) + " axes, at most " + std::to_string(kMaxAxes));
  view_.data = buffer_.buf;
  view_.rank = buffer_.ndim;
  for (int a = 0; a < buffer_.ndim; ++a) {
    if (buffer_.strides[a] % buffer_.itemsize != 0)
      refuse("a stride of " + std::to_string(buffer_.strides[a]) +
             " bytes is no multiple of the element's " + std::to_string(buffer_.itemsize));
    view_.set_axis(a, buffer_.shape[a], buffer_.strides[a] / buffer_.itemsize);
  }
}

void Array::take_tensor(nb::handle object) {
  nb::object records = nb::steal(PyObject_GetAttrString(object.ptr(), "requires_grad"));
  if (records.is_valid() && records.ptr() == Py_True) {
    nb::object enabled = nb::steal(PyObject_CallNoArgs(known.grad_enabled));
    if (!enabled.is_valid()) throw nb::python_error();
    if (enabled.ptr() == Py_True)
      refuse_type(
          "the tensor requires grad, and this function records no gradient: use poise.torch, which "
          "does, or torch.no_grad(), or .detach()");
  }
  if (!records.is_valid()) PyErr_Clear();
  // A view such as x.conj().imag whose elements are to be negated when read.
  nb::object negated = nb::steal(PyObject_CallMethod(object.ptr(), "is_neg", nullptr));
  if (!negated.is_valid()) PyErr_Clear();
  if (negated.is_valid() && negated.ptr() == Py_True)
    refuse("the tensor has its negative bit set; resolve_neg() writes it out");
  if (known.table == nullptr) return take_dlpack(object, false);
  nb::dlpack::dltensor tensor{};
  if (known.table->tensor_from_object(object.ptr(), &tensor) != 0)
    refuse_type("not a plain tensor on the CPU (" + pending_error() + ")");
  take_dltensor(tensor);
}

void Array::take_dlpack(nb::handle object, bool written) {
  // Asked first: a library may copy to the host, or fail, when asked for the data of a device.
  if (nb::hasattr(object, "__dlpack_device__")) {
    nb::object device = nb::steal(PyObject_CallMethod(object.ptr(), "__dlpack_device__", nullptr));
    if (!device.is_valid()) refuse_type("not an array on the CPU (" + pending_error() + ")");
    const int type = nb::cast<int>(nb::int_(device[0])), index = nb::cast<int>(nb::int_(device[1]));
    if (!on_host(type)) refuse(device_text(type, index));
  }
  nb::ndarray<nb::ro> array;
  if (written) {
    const std::string maker = nb::str(object.type().attr("__module__")).c_str();
    if (maker.rfind("jax", 0) == 0 || maker.rfind("tensorflow", 0) == 0)
      refuse("arrays of " + maker.substr(0, maker.find('.')) +
             " are immutable; leave it out, or give one of NumPy");
    nb::ndarray<> writable;
    if (!nb::try_cast(object, writable)) refuse("it cannot be written through DLPack");
    array = nb::ndarray<nb::ro>(writable);
  } else if (!nb::try_cast(object, array)) {
    // nanobind keeps the reason to itself.
    if (!PyErr_Occurred())
      static_cast<void>(nb::steal(PyObject_CallMethod(object.ptr(), "__dlpack__", nullptr)));
    refuse_type("its __dlpack__ gives no array (" + pending_error() + ")");
  }
  nb::dlpack::dltensor tensor{};
  if (array.ndim() > static_cast<std::size_t>(kMaxAxes))
    refuse(std::to_string(array.ndim()) + " axes, at most " + std::to_string(kMaxAxes));
  Axes extents{}, strides{};
  for (std::size_t a = 0; a < array.ndim(); ++a) {
    extents[a] = static_cast<std::int64_t>(array.shape(a));
    strides[a] = array.stride(a);
  }
  tensor.data = const_cast<void*>(static_cast<const void*>(array.data()));
  tensor.device = {array.device_type(), array.device_id()};
  tensor.dtype = array.dtype();
  tensor.ndim = static_cast<std::int32_t>(array.ndim());
  tensor.shape = extents.data();
  tensor.strides = strides.data();
  take_dltensor(tensor);
  exported_ = std::move(array);  // keeps the producer's memory
}

void Array::take_dltensor(const nb::dlpack::dltensor& tensor) {
  if (!on_host(tensor.device.device_type))
    refuse(device_text(tensor.device.device_type, tensor.device.device_id));
  if (!dtype_of_dlpack(tensor.dtype, &view_.dtype)) {
    refuse_type("dtype " + dtype_text(object_, "unknown") + "; " + kDtypes);
  }
  if (tensor.ndim > kMaxAxes)
    refuse(std::to_string(tensor.ndim) + " axes, at most " + std::to_string(kMaxAxes));
  view_.data =
      tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  view_.rank = tensor.ndim;
  std::int64_t compact = 1;
  for (int a = tensor.ndim - 1; a >= 0; --a) {
    view_.set_axis(a, tensor.shape[a], tensor.strides ? tensor.strides[a] : compact);
    compact *= tensor.shape[a];
  }
}

}  // namespace poise::python
