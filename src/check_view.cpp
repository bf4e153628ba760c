// Rules about views, and the sentences of their refusals. In: one argument with its name. Out: an
// Error, or nothing. Not here: rules that relate several arguments (check.cpp), overlap
// (overlap.cpp).
#include "check_view.h"

#include <cstdio>
#include <utility>

namespace poise {
namespace {

template <class Items, class Print>
std::string join(const Items& items, Print print) {
  std::string joined;
  for (const auto& item : items) {
    if (!joined.empty()) joined += ", ";
    joined += print(item);
  }
  return joined;
}

std::string axes_text(const std::array<std::int64_t, kMaxRank>& values, int rank) {
  std::string joined = "[";
  for (int axis = 0; axis < rank; ++axis) {
    if (axis > 0) joined += ", ";
    joined += std::to_string(values[static_cast<std::size_t>(axis)]);
  }
  return joined + "]";
}

// Sets the number of elements. An extent of 0 counts as 1 on the way, so that no product of some of
// the extents overflows either.
Error count_elements(Argument argument, const ConstTensor& view, std::int64_t* count) {
  bool empty = false;
  *count = 1;
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t extent = view.extent(axis);
    if (extent < 0)
      return refuse(ErrorCode::bad_layout, argument, "extent {} of axis {} is negative",
                    {text(extent), text(std::int64_t{axis})});
    empty = empty || extent == 0;
    if (extent > 1 && __builtin_mul_overflow(*count, extent, count))
      return refuse(ErrorCode::bad_layout, argument,
                    "extents {} are more elements than int64 counts", {text(view)});
  }
  if (empty) *count = 0;
  return {};
}

// Whether two views name the same elements index by index.
bool same_elements(const ConstTensor& a, const ConstTensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis)
    if (a.extent(axis) != b.extent(axis) ||
        (a.extent(axis) > 1 && a.stride(axis) != b.stride(axis)))
      return false;
  return true;
}

Error refuse_offsets(Argument argument, const ConstTensor& view) {
  return refuse(ErrorCode::bad_layout, argument,
                "strides {} with extents {} pass the range of 64-bit byte offsets",
                {axes_text(view.strides, view.rank), text(view)});
}

}  // namespace

Error refuse(ErrorCode code, Argument argument, std::string_view sentence,
             std::initializer_list<std::string> values) {
  std::string message = std::string("[") + argument.call + "] " + argument.name + ": ";
  const std::string* value = values.begin();
  for (std::size_t at = 0; at < sentence.size(); ++at) {
    if (sentence.substr(at, 2) == "{}" && value != values.end()) {
      message += *value++;
      ++at;
    } else {
      message += sentence[at];
    }
  }
  return Error(code, std::move(message));
}

std::string text(std::int64_t number) { return std::to_string(number); }

std::string text(double number) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%g", number);
  return buffer.data();
}

std::string text(const ConstTensor& view) { return axes_text(view.extents, view.rank); }

std::string text(std::initializer_list<std::int64_t> extents) {
  return "[" + join(extents, [](std::int64_t extent) { return std::to_string(extent); }) + "]";
}

std::string text(std::initializer_list<DType> dtypes) {
  return join(dtypes, [](DType dtype) { return std::string(name(dtype)); });
}

Error check_rank(Argument argument, const ConstTensor& view, int rank, const char* letters) {
  if (view.rank == rank) return {};
  return refuse(ErrorCode::bad_shape, argument, "rank {}, expected {} for {}",
                {text(std::int64_t{view.rank}), text(std::int64_t{rank}), letters});
}

Error check_dtype(Argument argument, const ConstTensor& view,
                  std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed)
    if (view.dtype == dtype) return {};
  return refuse(ErrorCode::bad_dtype, argument, "dtype {} is not one of {}",
                {name(view.dtype), text(allowed)});
}

Error check_dtype_like(Argument argument, const ConstTensor& view, const char* other, DType dtype) {
  if (view.dtype == dtype) return {};
  return refuse(ErrorCode::bad_dtype, argument, "dtype {} differs from {} dtype {}",
                {name(view.dtype), other, name(dtype)});
}

Error check_sizes(Argument argument, const ConstTensor& view) {
  std::int64_t count = 0, low = 0, high = 0;
  if (Error error = count_elements(argument, view, &count)) return error;
  return byte_offsets(view, &low, &high) ? Error() : refuse_offsets(argument, view);
}

Error check_layout(Argument argument, const ConstTensor& view) {
  std::int64_t count = 0;
  if (Error error = count_elements(argument, view, &count)) return error;
  if (count == 0) return {};
  if (view.data == nullptr)
    return refuse(ErrorCode::bad_layout, argument, "null data for {} elements", {text(count)});
  const std::int64_t size = size_bytes(view.dtype);
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size) != 0)
    return refuse(ErrorCode::bad_layout, argument,
                  "data is not aligned to its elements of {} bytes", {text(size)});
  ByteRange range;
  return byte_range(view, &range) ? Error() : refuse_offsets(argument, view);
}

Error check_extents(Argument argument, const ConstTensor& view,
                    std::initializer_list<std::int64_t> extents, const char* letters) {
  if (Error error = check_rank(argument, view, static_cast<int>(extents.size()), letters))
    return error;
  int axis = 0;
  for (const std::int64_t extent : extents)
    if (view.extent(axis++) != extent)
      return refuse(ErrorCode::bad_shape, argument, "extents {} differ from {} = {}",
                    {text(view), letters, text(extents)});
  return {};
}

Error check_extent(Argument argument, const char* axis, std::int64_t extent, const char* other,
                   std::int64_t expected) {
  if (extent == expected) return {};
  return refuse(ErrorCode::bad_shape, argument, "{} {} differs from {} {} {}",
                {axis, text(extent), other, axis, text(expected)});
}

template <class Data>
void AliasCheck::add(const char* name, const BasicTensor<Data>& view, bool written) {
  ByteRange range;
  if (!view.given() || !byte_range(view, &range) || range.begin == range.end) return;
  views_[count_++] = {name,      view.data, &view.extents, &view.strides, range.begin,
                      range.end, view.rank, view.dtype,    written};
}
template void AliasCheck::add(const char*, const Tensor&, bool);
template void AliasCheck::add(const char*, const ConstTensor&, bool);

Error AliasCheck::judge(const Footprint& output, const Footprint& other) const {
  if (!intersects({output.begin, output.end}, {other.begin, other.end})) return {};
  if (in_place_ && !other.written && same_elements(output.view(), other.view())) return {};
  if (!may_overlap(output.view(), other.view())) return {};
  return refuse(ErrorCode::bad_alias, {call_, output.name}, "overlaps {}", {other.name});
}

Error AliasCheck::verdict() const {
  for (std::size_t i = 0; i < count_; ++i) {
    const Footprint& output = views_[i];
    if (!output.written) continue;
    if (may_overlap_itself(output.view()))
      return refuse(ErrorCode::bad_alias, {call_, output.name},
                    "strides {} with extents {} overlap its own elements",
                    {axes_text(*output.strides, output.rank), text(output.view())});
    for (std::size_t j = 0; j < i; ++j)
      if (Error error = judge(output, views_[j])) return error;
  }
  return {};
}

}  // namespace poise
