// Rules about one view, or one view beside another: rank, dtype, layout, extents, memory shared.
// In: an Argument that says whom a refusal should name, and the view. Out: an Error, empty when the
// view is fine.
// What must not happen here: rules about what a particular call means (check.cpp,
// check_options.cpp, check_rows.cpp), allocation on the success path.
#pragma once

#include "overlap.h"

#include <poise/error.h>
#include <poise/tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace poise {

// Whom a refusal names: "[call] name: ...".
struct Argument {
  const char* call;
  const char* name;
};

// The refusal "[call] name: sentence", each {} of the sentence replaced by the next value.
Error refuse(ErrorCode code, Argument argument, std::string_view sentence,
             std::initializer_list<std::string> values);

// Values as sentences print them: 12, 0.125, nan, "[1, 2, 3]", "f32, f64".
std::string text(std::int64_t number);
std::string text(double number);
std::string text(const ConstTensor& view);  // its extents
std::string text(std::initializer_list<std::int64_t> extents);
std::string text(std::initializer_list<DType> dtypes);

// `letters` names the axes: "[B, Hq, Lq, D]".
Error check_rank(Argument argument, const ConstTensor& view, int rank, const char* letters);

Error check_dtype(Argument argument, const ConstTensor& view, std::initializer_list<DType> allowed);
Error check_dtype_like(Argument argument, const ConstTensor& view, const char* other, DType dtype);

// Extents, element count and byte offsets fit int64. Rank must be 0 ... kMaxRank.
Error check_sizes(Argument argument, const ConstTensor& view);

// check_sizes, and the elements exist: data not null, aligned to the element, addresses in range.
Error check_layout(Argument argument, const ConstTensor& view);

// The whole shape at once; one axis with its name.
Error check_extents(Argument argument, const ConstTensor& view,
                    std::initializer_list<std::int64_t> extents, const char* letters);
Error check_extent(Argument argument, const char* axis, std::int64_t extent, const char* other,
                   std::int64_t expected);

// Collects what a call reads and writes, then tells whether every output keeps to itself: no two
// of its elements share bytes, and no byte of it belongs to an input or another output.
class AliasCheck {
 public:
  // in_place: an output may be exactly one of the inputs, index by index.
  AliasCheck(const char* call, bool in_place) : call_(call), in_place_(in_place) {}

  // First everything read, then everything written. Views must outlive the check, have passed
  // check_layout, and may be absent (then ignored).
  template <class Data>
  void reads(const char* name, const BasicTensor<Data>& view) {
    add(name, view, false);
  }
  void writes(const char* name, const Tensor& view) { add(name, view, true); }

  Error verdict() const;

 private:
  // double_backward: query, key, value, the 8 tensors of Options, 5 that forward left or that come
  // in, 3 of the direction, 5 gradients. backward: 11, 5, 7.
  static constexpr std::size_t kMaxViews = 24;

  // A view of either kind by its parts.
  struct Footprint {
    const char* name;
    const void* data;
    const std::array<std::int64_t, kMaxRank>* extents;
    const std::array<std::int64_t, kMaxRank>* strides;
    std::uintptr_t begin, end;
    int rank;
    DType dtype;
    bool written;

    ConstTensor view() const { return {data, dtype, rank, *extents, *strides}; }
  };

  template <class Data>
  void add(const char* name, const BasicTensor<Data>& view, bool written);
  Error judge(const Footprint& output, const Footprint& other) const;

  const char* call_;
  bool in_place_;
  std::size_t count_ = 0;
  std::array<Footprint, kMaxViews> views_{};
};

}  // namespace poise
