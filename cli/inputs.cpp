// Tensors by file name, numbers by list or file.
//
// In: specifications as typed. Out: views on memory maps and on buffers kept by Inputs. A colon
// separates a file from the name of a tensor in it, unless a file of the whole name exists.
// Must not happen here: a rule on shapes, which are attention's to check.
#include "inputs.h"

#include "failure.h"
#include "io/elements.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace poise::cli {
namespace {

template <class Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number value{};
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The numbers of "1,2,3"; nullopt when any part is none.
template <class Number>
std::optional<std::vector<Number>> parse_list(std::string_view text) {
  std::vector<Number> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto number = parse_whole<Number>(text.substr(0, comma));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

struct Specification {
  std::string path, name;
};

Specification split(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || file_exists(text)) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// For options that take numbers or a file: refuses what is neither.
void check_is_file(const std::string& option, const std::string& text, const char* numbers) {
  if (!file_exists(split(text).path))
    throw Failure(option + ": '" + text + "' is neither " + numbers + " nor a file");
}

// A copy of the elements in row-major order as T.
template <class T>
std::vector<T> packed(const std::string& option, const ConstTensor& tensor) {
  std::vector<std::byte> bytes;
  throw_if(io::pack(tensor, option, &bytes));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class T>
ConstTensor contiguous_like(const ConstTensor& shape, const T* data) {
  ConstTensor tensor = shape;
  tensor.data = data;
  tensor.dtype = DTypeOf<T>::value;
  std::int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    tensor.strides[static_cast<std::size_t>(axis)] = step;
    step *= std::max<std::int64_t>(shape.extent(axis), 1);
  }
  return tensor;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) { return parse_whole<double>(text); }

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text);
}

const io::File& Inputs::open(const std::string& option, const std::string& path) {
  for (const io::File& file : files_)
    if (file.source() == path) return file;
  io::File file;
  if (const Error error = io::open(path, &file)) throw Failure(option + ": " + error.message());
  files_.push_back(std::move(file));
  return files_.back();
}

ConstTensor Inputs::tensor(const std::string& option, const std::string& specification) {
  const auto [path, name] = split(specification);
  const io::File& file = open(option, path);
  if (name.empty() && file.entries().size() != 1) {
    const std::string example = file.entries().empty() ? "NAME" : file.entries().front().name;
    throw Failure(option + ": " + path + " holds " + std::to_string(file.entries().size()) +
                  " tensors; name one of them, as in " + path + ":" + example);
  }
  ConstTensor tensor;
  const std::string& wanted = name.empty() ? file.entries().front().name : name;
  if (const Error error = file.tensor(wanted, &tensor))
    throw Failure(option + ": " + error.message());
  return tensor;
}

ConstTensor Inputs::attention_tensor(const std::string& option, const std::string& specification) {
  ConstTensor stored = widened(tensor(option, specification));
  if (stored.rank != 3) return stored;
  ConstTensor batched = stored;
  batched.rank = 4;
  batched.extents = {1, stored.extent(0), stored.extent(1), stored.extent(2)};
  batched.strides = {0, stored.stride(0), stored.stride(1), stored.stride(2)};
  return batched;
}

ConstTensor Inputs::widened(const ConstTensor& tensor) {
  if (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16) return tensor;
  std::vector<float> values;
  throw_if(io::widen(tensor, &values));
  singles_.push_back(std::move(values));
  return contiguous_like(tensor, singles_.back().data());
}

ConstTensor Inputs::floats(const std::string& option, const std::string& specification,
                           DType dtype) {
  std::vector<double> values;
  ConstTensor shape;
  if (auto list = parse_list<double>(specification)) {
    values = std::move(*list);
    shape = view(values.data(), {static_cast<std::int64_t>(values.size())});
  } else {
    check_is_file(option, specification, "a finite number, a list of them");
    shape = widened(tensor(option, specification));
    if (shape.dtype == DType::f32) {
      const std::vector<float> singles = packed<float>(option, shape);
      values.assign(singles.begin(), singles.end());
    } else if (shape.dtype == DType::f64) {
      values = packed<double>(option, shape);
    } else {
      throw Failure(option + ": " + specification + " holds " + name(shape.dtype) +
                    ", expected floating-point numbers");
    }
  }
  if (dtype == DType::f64) {
    doubles_.push_back(std::move(values));
    return contiguous_like(shape, doubles_.back().data());
  }
  singles_.emplace_back();
  for (const double value : values) singles_.back().push_back(static_cast<float>(value));
  return contiguous_like(shape, singles_.back().data());
}

ConstTensor Inputs::integers(const std::string& option, const std::string& specification) {
  if (auto list = parse_list<std::int64_t>(specification)) {
    integers_.push_back(std::move(*list));
    const auto& values = integers_.back();
    return view(values.data(), {static_cast<std::int64_t>(values.size())});
  }
  check_is_file(option, specification, "a whole number, a list of them");
  return tensor(option, specification);
}

std::vector<std::string> Inputs::paths() const {
  std::vector<std::string> paths;
  for (const io::File& file : files_) paths.push_back(file.source());
  return paths;
}

}  // namespace poise::cli
