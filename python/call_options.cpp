// From keyword arguments to poise::Options: what kind of value each may be, and lists turned into
// arrays. What must not happen here: see call_options.h.
#include "call_options.h"

#include <poise/cpu.h>

#include <cstdlib>
#include <cstring>

namespace poise::python {
namespace {

constexpr const char* kCall = "options";
constexpr int kMostThreads = 4096;  // as POISE_THREADS

int chosen_threads = 0;  // 0 = not chosen

double number(nb::handle object, const char* name) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    raise_type("[options] " + std::string(name) + ": expected a number, got " +
               nb::type_name(object.type()).c_str());
  }
  return value;
}

std::int64_t integer(nb::handle object, const char* name) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  const std::int64_t value = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
  if (PyErr_Occurred()) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (too_large) raise_value("[options] " + std::string(name) + ": beyond 64 bits");
    raise_type("[options] " + std::string(name) + ": expected an integer, got " +
               nb::type_name(object.type()).c_str());
  }
  return value;
}

// 64 bits without a sign.
std::uint64_t word(nb::handle object, const char* name) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  const std::uint64_t value = index.is_valid() ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
  if (PyErr_Occurred()) {
    const bool outside = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (outside) raise_value("[options] " + std::string(name) + ": expected 0 ... 2**64 - 1");
    raise_type("[options] " + std::string(name) + ": expected an integer, got " +
               nb::type_name(object.type()).c_str());
  }
  return value;
}

Causal causal_of(nb::handle object) {
  if (object.is_none() || object.ptr() == Py_False) return Causal::none();
  if (object.ptr() == Py_True)
    raise_value(
        "[options] causal: True names no alignment; 'top_left', 'bottom_right' or an offset");
  if (!PyUnicode_Check(object.ptr())) return Causal::offset(integer(object, "causal"));
  const char* text = PyUnicode_AsUTF8(object.ptr());
  if (text == nullptr) throw nb::python_error();
  if (std::strcmp(text, "none") == 0) return Causal::none();
  if (std::strcmp(text, "top_left") == 0) return Causal::top_left();
  if (std::strcmp(text, "bottom_right") == 0) return Causal::bottom_right();
  raise_value("[options] causal: '" + std::string(text) +
              "', expected 'top_left', 'bottom_right', an offset or None");
}

// Numbers per head or batch: an array, or a list of numbers.
void take_numbers(Array* array, nb::handle object, const char* name, const char* dtype) {
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    const bool whole = std::strcmp(dtype, "int64") == 0;
    nb::object converted;
    bool fits = false;
    try {
      converted = nb::module_::import_("numpy").attr("asarray")(object);
      // Of other kinds NumPy would cut what is behind the point, and take True for 1.
      fits = !whole || nb::cast<std::int64_t>(converted.attr("size")) == 0 ||
             std::strcmp(nb::str(converted.attr("dtype").attr("kind")).c_str(), "i") == 0;
      if (fits) converted = converted.attr("astype")(dtype);
    } catch (nb::python_error&) {
      fits = false;
    }
    if (!fits)
      raise_type("[options] " + std::string(name) + ": expected an array or a list of " +
                 (whole ? "integers" : "numbers"));
    array->take(converted, kCall, name);
  } else {
    array->take(object, kCall, name);
  }
}

bool has_axes(nb::handle object) {
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) return false;
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) return true;
  return is_array(object) && nb::hasattr(object, "ndim") &&
         nb::cast<std::int64_t>(nb::int_(object.attr("ndim"))) > 0;
}

double element_value(const View& view, const char* at) {
  switch (view.dtype) {
    case DType::f32: {
      float value;
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(value);
    }
    case DType::f64: {
      double value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case DType::f16:
      return PyFloat_Unpack2(at, PY_LITTLE_ENDIAN);
    default: {  // bf16 is the upper half of an f32
      std::uint16_t half;
      std::memcpy(&half, at, sizeof half);
      const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return static_cast<double>(value);
    }
  }
}

}  // namespace

CallOptions::CallOptions(const OptionArguments& arguments) {
  plain_.causal = causal_of(arguments.causal);
  if (!arguments.scale.is_none()) {
    if (has_axes(arguments.scale))
      take_numbers(&scale_per_head_, arguments.scale, "scale", "float64");
    else
      plain_.scale = number(arguments.scale, "scale");
  }
  if (!arguments.softcap.is_none()) plain_.softcap = number(arguments.softcap, "softcap");
  mask_.take(arguments.mask, kCall, "mask");
  bias_.take(arguments.bias, kCall, "bias");
  attn_mask_.take(arguments.attn_mask, kCall, "attn_mask");
  if (attn_mask_.given()) {
    mask_adds_ = attn_mask_.view().dtype != DType::boolean;
    if (mask_adds_ && bias_.given())
      raise_value(
          "[options] attn_mask: floats add to the scores, and so does bias; give one of them");
    if (!mask_adds_ && mask_.given()) raise_value("[options] attn_mask: mask is given too");
  }
  if (!arguments.window.is_none()) {
    nb::handle window = arguments.window;
    if (!PySequence_Check(window.ptr()) || PyUnicode_Check(window.ptr()) ||
        PySequence_Size(window.ptr()) != 2) {
      PyErr_Clear();
      raise_type("[options] window: expected a pair (left, right), -1 for an open side");
    }
    plain_.window_left = integer(nb::object(window[0]), "window");
    plain_.window_right = integer(nb::object(window[1]), "window");
  }
  if (!arguments.diagonal.is_none()) {
    if (has_axes(arguments.diagonal))
      take_numbers(&diagonals_, arguments.diagonal, "diagonal", "int64");
    else
      plain_.diagonal = integer(arguments.diagonal, "diagonal");
  }
  take_numbers(&kv_lengths_, arguments.kv_lengths, "kv_lengths", "int64");
  take_numbers(&q_lengths_, arguments.q_lengths, "q_lengths", "int64");
  take_numbers(&alibi_slopes_, arguments.alibi_slopes, "alibi_slopes", "float64");
  take_numbers(&sinks_, arguments.sinks, "sinks", "float64");
  plain_.dropout.probability = number(arguments.dropout_p, "dropout_p");
  plain_.dropout.seed = word(arguments.dropout_seed, "dropout_seed");
  plain_.dropout.offset = word(arguments.dropout_offset, "dropout_offset");
  if (!arguments.threads.is_none()) {
    const std::int64_t threads = integer(arguments.threads, "threads");
    if (threads < 1 || threads > kMostThreads)
      raise_value("[options] threads: " + std::to_string(threads) + ", expected 1 ... 4096");
    threads_ = static_cast<int>(threads);
  }
}

ConstTensor ResolvedOptions::convert(const Array& array, DType numbers,
                                     std::vector<double>* memory) {
  ConstTensor tensor = tensor_of(array.view());
  if (tensor.rank == 0) {
    tensor.rank = 1;  // a single number, for calls with one head
    tensor.extents[0] = 1;
  }
  const bool is_float = tensor.dtype == DType::f32 || tensor.dtype == DType::f64 ||
                        tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  // Anything the library would refuse goes there as it is.
  if (tensor.dtype == numbers || !is_float || tensor.rank > 2) return tensor;
  const std::int64_t rows = tensor.rank == 2 ? tensor.extents[0] : 1;
  const std::int64_t columns = tensor.extents[static_cast<std::size_t>(tensor.rank - 1)];
  memory->resize(static_cast<std::size_t>(rows * columns));
  const auto* from = static_cast<const char*>(tensor.data);
  const std::int64_t row_step = tensor.rank == 2 ? tensor.strides[0] : 0;
  const std::int64_t step = tensor.strides[static_cast<std::size_t>(tensor.rank - 1)];
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value =
          element_value(array.view(), from + (r * row_step + c * step) * size_bytes(tensor.dtype));
      const auto to = static_cast<std::size_t>(r * columns + c);
      if (numbers == DType::f64)
        (*memory)[to] = value;
      else
        reinterpret_cast<float*>(memory->data())[to] = static_cast<float>(value);
    }
  }
  tensor.data = memory->data();
  tensor.dtype = numbers;
  tensor.strides[static_cast<std::size_t>(tensor.rank - 1)] = 1;
  if (tensor.rank == 2) tensor.strides[0] = columns;
  return tensor;
}

ResolvedOptions::ResolvedOptions(const CallOptions& options, DType numbers, const Axes& lead,
                                 int leads, const char* call, Cut* cut)
    : options_(options.plain_), several_(leads > 1) {
  options_.threads = options.threads_ > 0 ? options.threads_ : num_threads();
  const auto place = [&](const Array& array, const char* name, View* view, bool* has) {
    if (!array.given()) return;
    *has = true;
    *view = array.view();
    const auto misfit = [&](const std::string& why) {
      raise_value("[" + std::string(call) + "] " + name + ": shape " + shape_text(array.view()) +
                  " " + why);
    };
    // Axes of extent 1 before the batch axis say nothing.
    while (view->rank > leads + 3) {
      if (view->extent(0) != 1) misfit("has more axes than the call");
      for (int a = 1; a < view->rank; ++a) view->set_axis(a - 1, view->extent(a), view->stride(a));
      --view->rank;
    }
    if (!several_) return;  // the library broadcasts up to four axes itself
    *view = lift(*view, leads + 3);
    for (int a = 0; a < leads; ++a) {
      const std::int64_t extent = lead[static_cast<std::size_t>(a)];
      if (view->extent(a) == extent) continue;
      if (view->extent(a) != 1)
        misfit("does not broadcast to the leading extents, " + std::to_string(extent) +
               " on axis " + std::to_string(a));
      view->set_axis(a, extent, 0);
    }
    cut->consider(*view);
  };
  place(options.mask_, "mask", &mask_, &has_mask_);
  place(options.bias_, "bias", &bias_, &has_bias_);
  if (options.mask_adds_)
    place(options.attn_mask_, "attn_mask", &bias_, &has_bias_);
  else
    place(options.attn_mask_, "attn_mask", &mask_, &has_mask_);
  const auto per_head = [&](const Array& array, ConstTensor* to, std::vector<double>* memory) {
    if (array.given()) *to = convert(array, numbers, memory);
  };
  per_head(options.scale_per_head_, &options_.scale_per_head, &scales_);
  per_head(options.alibi_slopes_, &options_.alibi_slopes, &slopes_);
  per_head(options.sinks_, &options_.sinks, &sinks_);
  const auto per_batch = [](const Array& array, ConstTensor* to) {
    if (array.given()) *to = tensor_of(array.view());
  };
  per_batch(options.kv_lengths_, &options_.kv_lengths);
  per_batch(options.q_lengths_, &options_.q_lengths);
  per_batch(options.diagonals_, &options_.diagonals);
}

Options ResolvedOptions::of(const Cut& cut, std::int64_t index) const {
  Options options = options_;
  if (has_mask_) options.mask = several_ ? cut.part(mask_, index) : tensor_of(mask_);
  if (has_bias_) options.bias = several_ ? cut.part(bias_, index) : tensor_of(bias_);
  if (cut.calls() == 1) return options;
  options.kv_lengths = cut.slice(options.kv_lengths, index);
  options.q_lengths = cut.slice(options.q_lengths, index);
  options.diagonals = cut.slice(options.diagonals, index);
  if (options.alibi_slopes.rank == 2) options.alibi_slopes = cut.slice(options.alibi_slopes, index);
  options.dropout.batch_offset += index * cut.batch();
  return options;
}

int num_threads() {
  if (chosen_threads > 0) return chosen_threads;
  static const bool in_environment = std::getenv("POISE_THREADS") != nullptr;
  if (!in_environment) {
    nb::object ask = loaded_attribute("torch", "get_num_threads");
    if (ask.is_valid()) {
      const int threads = nb::cast<int>(ask());
      if (threads >= 1) return threads < kMostThreads ? threads : kMostThreads;
    }
  }
  return default_threads();
}

void set_num_threads(int threads) {
  if (threads < 1 || threads > kMostThreads)
    raise_value("[set_num_threads] threads: " + std::to_string(threads) + ", expected 1 ... 4096");
  chosen_threads = threads;
}

}  // namespace poise::python
