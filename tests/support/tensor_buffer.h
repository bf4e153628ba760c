// Tensors that own their memory, in any dtype and any strides, with traps around the elements.
//
// Every byte starts as 0xff: a NaN in each float dtype, so reading past the elements or leaving an
// output unwritten shows; gaps_untouched() tells whether anything wrote between or beside the
// elements. With a guard placement memory without access rights touches the first or last byte.
#pragma once

#include <poise/tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace poise::test {

enum class Placement { heap, before_guard, after_guard };

// Orders of memory for a rank-4 tensor; other ranks treat blhd and transposed as contiguous.
enum class Layout {
  contiguous,
  blhd,        // [B, L, H, D] memory seen as [B, H, L, D]
  padded,      // rows an odd number of elements apart
  gapped,      // inner stride 2
  transposed,  // the last two axes exchanged in memory: inner stride = rows
  reversed,    // every stride negative
};
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::blhd,       Layout::padded,
                                      Layout::gapped,     Layout::transposed, Layout::reversed};
const char* name(Layout layout);

using Extents = std::vector<std::int64_t>;

class TensorBuffer {
 public:
  TensorBuffer() = default;  // no tensor given
  TensorBuffer(DType dtype, const Extents& extents, Layout layout = Layout::contiguous,
               Placement placement = Placement::heap);
  TensorBuffer(DType dtype, const Extents& extents, const Extents& strides,
               Placement placement = Placement::heap);

  bool given() const { return tensor_.given(); }
  Tensor view() const { return tensor_; }
  DType dtype() const { return tensor_.dtype; }
  std::int64_t extent(int axis) const { return tensor_.extent(axis); }
  std::int64_t count() const;  // elements

  bool contiguous() const;

  // Element by row-major index in [0, count()).
  double at(std::int64_t index) const;
  void set(std::int64_t index, double value);
  // Row-major index of element (i0, i1, ...); as many indices as axes.
  std::int64_t index(std::initializer_list<std::int64_t> position) const;

  void fill(const std::function<double()>& next);  // in row-major order
  std::vector<double> values() const;              // in row-major order

  // The same elements elsewhere.
  TensorBuffer copied(Layout layout, Placement placement = Placement::heap) const;
  TensorBuffer copied_as(DType dtype) const;
  // A view of the same memory: [begin, begin + count) of one axis.
  TensorBuffer sliced(int axis, std::int64_t begin, std::int64_t count) const;

  // No byte that belongs to no element has changed.
  bool gaps_untouched() const;

 private:
  std::int64_t offset(std::int64_t index) const;  // in elements from tensor_.data
  void allocate(Placement placement);

  Tensor tensor_;
  std::shared_ptr<std::byte> memory_;  // shared: copies of a buffer are views of the same elements
  std::size_t memory_bytes_ = 0;
};

// The first element whose bytes differ, as "[1, 0, 17]: 0.25 against 0.5"; empty when none does.
// NaNs of any payload are equal.
std::string first_difference(const TensorBuffer& a, const TensorBuffer& b);

}  // namespace poise::test
