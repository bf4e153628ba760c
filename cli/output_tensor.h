// Memory for a tensor that attention writes.
//
// In: dtype and extents, as long as they are not negative. Out: a contiguous tensor that lives as
// long as the object. Errors: std::bad_alloc when the elements do not fit into memory; a tensor
// with an extent of 0 always fits, whatever the other extents are.
// Must not happen here: a rule on shapes, which are attention's to check.
#pragma once

#include <poise/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <vector>

namespace poise::cli {

class OutputTensor {
 public:
  OutputTensor(DType dtype, std::initializer_list<std::int64_t> extents) {
    tensor_ = detail::contiguous_view<Tensor>(static_cast<void*>(nullptr), dtype, extents);
    const bool has_elements = std::find(extents.begin(), extents.end(), 0) == extents.end();
    std::int64_t bytes = has_elements ? size_bytes(dtype) : 0;
    for (const std::int64_t extent : extents)
      if (__builtin_mul_overflow(bytes, extent, &bytes)) throw std::bad_alloc();
    // One byte at least: a tensor without elements still needs an address.
    memory_.resize(static_cast<std::size_t>(bytes) + 1);
    tensor_.data = memory_.data();
  }

  // The view stays good when the object moves: the memory does not.
  const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

}  // namespace poise::cli
