// The streaming copy: what lies between scaled tensors goes out as it is mapped, a scaled tensor
// through one buffer.
//
// Elements are taken in the order of the file. Along it the index of the scaled axis stays the same
// for as many elements as the axes behind it hold, so factors are looked up run by run.
#include "io/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "io/atomic_file.h"
#include "kernels/half.h"

namespace poise::io {
namespace {

constexpr std::size_t kBufferElements = std::size_t{1} << 16;

// The float of |x| rounded to odd: rounding it further, to a format of at most 22 significant bits,
// gives what rounding x itself gives (Boldo and Melquiond 2008).
float to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto wide = static_cast<double>(nearest);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (wide == x || !std::isfinite(nearest) || (bits & 1u) != 0) return nearest;
  // Both neighbours of an inexact x lie one step of the bits apart; the even one was nearer.
  bits += std::fabs(wide) < std::fabs(x) ? 1u : ~0u;
  return std::bit_cast<float>(bits);
}

template <class Stored, class Scale>
void scale_each(std::byte* at, std::size_t count, Scale scale) {
  for (std::size_t i = 0; i < count; ++i, at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, at, sizeof value);
    value = scale(value);
    std::memcpy(at, &value, sizeof value);
  }
}

void scale_elements(DType dtype, double factor, std::byte* at, std::size_t count) {
  const auto times = [factor](float x) { return static_cast<double>(x) * factor; };
  switch (dtype) {
    case DType::f64:
      return scale_each<double>(at, count, [factor](double x) { return x * factor; });
    case DType::f32:
      return scale_each<float>(at, count, [&](float x) { return static_cast<float>(times(x)); });
    case DType::f16:
      return scale_each<std::uint16_t>(
          at, count, [&](std::uint16_t x) { return narrow_f16(to_odd(times(widen_f16(x)))); });
    case DType::bf16:
      return scale_each<std::uint16_t>(
          at, count, [&](std::uint16_t x) { return narrow_bf16(to_odd(times(widen_bf16(x)))); });
    case DType::boolean:
    case DType::i32:
    case DType::i64:
      break;
  }
}

Error write_tensor(std::span<const std::byte> data, const AxisScaling& scaling, AtomicFile* file) {
  const DType dtype = *scaling.tensor->dtype;
  const auto size = static_cast<std::size_t>(size_bytes(dtype));
  const std::vector<std::int64_t>& shape = scaling.tensor->entry.shape;
  std::size_t inner = 1;
  for (std::size_t axis = scaling.axis + 1; axis < shape.size(); ++axis)
    inner *= static_cast<std::size_t>(shape[axis]);
  const std::size_t count = data.size() / size, extent = scaling.factors.size();
  std::vector<std::byte> buffer(std::min(count, kBufferElements) * size);
  for (std::size_t begin = 0; begin < count; begin += kBufferElements) {
    const std::size_t end = std::min(count, begin + kBufferElements);
    std::memcpy(buffer.data(), data.data() + begin * size, (end - begin) * size);
    for (std::size_t i = begin; i < end;) {
      const std::size_t run = std::min(inner - i % inner, end - i);
      const double factor = scaling.factors[i / inner % extent];
      if (factor != 1) scale_elements(dtype, factor, buffer.data() + (i - begin) * size, run);
      i += run;
    }
    if (Error error = file->write(std::span(buffer).first((end - begin) * size))) return error;
  }
  return {};
}

}  // namespace

Error Checkpoint::open(const std::string& path, Checkpoint* checkpoint) {
  Checkpoint opened;
  opened.source_ = path;
  if (Error error = MappedFile::open(path, &opened.map_)) return error;
  std::map<std::string, std::string> metadata;
  if (Error error = list_safetensors(opened.map_.bytes(), path, &opened.tensors_, &metadata))
    return error;
  for (std::size_t i = 0; i < opened.tensors_.size(); ++i)
    opened.by_name_[opened.tensors_[i].entry.name] = i;
  *checkpoint = std::move(opened);
  return {};
}

const ListedTensor* Checkpoint::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Error Checkpoint::write_scaled(const std::string& path, std::vector<AxisScaling> scalings) const {
  std::sort(scalings.begin(), scalings.end(), [](const AxisScaling& a, const AxisScaling& b) {
    return a.tensor->entry.begin < b.tensor->entry.begin;
  });
  const std::span<const std::byte> bytes = map_.bytes();
  AtomicFile file;
  if (Error error = file.create(path)) return error;
  std::size_t at = 0;
  for (const AxisScaling& scaling : scalings) {
    const auto begin = static_cast<std::size_t>(scaling.tensor->entry.begin);
    const auto end = static_cast<std::size_t>(scaling.tensor->entry.end);
    if (Error error = file.write(bytes.subspan(at, begin - at))) return error;
    if (Error error = write_tensor(bytes.subspan(begin, end - begin), scaling, &file)) return error;
    at = end;
  }
  if (Error error = file.write(bytes.subspan(at))) return error;
  return file.commit();
}

}  // namespace poise::io
